//! What of clients reaches engines, and what keeps tenants apart there, from what the user said to what
//! the other rooms rely on.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};

use cleave_core::protocol::Allowed;

use super::problem::{Findings, Wrong};
use super::raw::{
    AdminRights, AdminTokenSection, EngineFields, EngineHeaders, Slots, Text, TextValue,
};
use super::read_text;
use crate::admin::{AdminToken, Secret};
use crate::proxy::{CacheSecret, Passing};

/// A shorter one can be guessed.
const SECRET_CHARS_MIN: usize = 16;

pub(super) fn settle_passing(
    credentials: bool,
    fields: &EngineFields,
    headers: &EngineHeaders,
) -> Passing {
    let fields = fields.allow.iter().flatten().map(|it| it.0.0);
    let headers = headers.allow.iter().flatten().map(|it| it.0.0);
    Passing {
        credentials,
        fields: fields.fold(Allowed::default(), Allowed::with),
        headers: headers.fold(Allowed::default(), Allowed::with),
    }
}

/// Settles a secret that stands in the file at `path`, or in a file of its own.
pub(super) fn settle_secret(
    path: &str,
    given: Option<Text<Secret>>,
    file: Option<PathBuf>,
    findings: &mut Findings,
) -> Option<Secret> {
    let file_path = format!("{path}_file");
    if given.is_some() && file.is_some() {
        let wrong = Wrong::new(format!("is given beside {path}"), "keep one of the two");
        findings.report(&file_path, wrong);
    }
    let from_file = file.and_then(|file| {
        findings.watch(&file);
        let secret = read_text(&file).and_then(|text| Secret::read(text.trim()));
        secret.map_err(|wrong| findings.report(&file_path, wrong)).ok()
    });
    given.map(|it| it.0).or(from_file)
}

/// Settles the tokens of the admin port; the `only` one without a name may do everything.
pub(super) fn settle_tokens(
    only: Option<Secret>,
    raw: Slots<AdminTokenSection>,
    findings: &mut Findings,
) -> Vec<AdminToken> {
    let unnamed = only.map(|token| AdminToken { name: "admin".to_owned(), token, may_order: true });
    let mut settled: Vec<AdminToken> = unnamed.into_iter().collect();
    for (at, raw) in raw.into_iter().enumerate() {
        let Some(AdminTokenSection { name, token, token_file, rights }) = raw else { continue };
        let path = format!("admin.tokens[{at}].token");
        let is_given = token.is_some() || token_file.is_some();
        let Some(token) = settle_secret(&path, token, token_file, findings) else {
            if !is_given {
                findings.report(&path, Wrong::new("is missing", "give it, or token_file"));
            }
            continue;
        };
        if settled.iter().any(|it| it.name == name || it.token == token) {
            let what = "has the name or the token of another one";
            let wrong = Wrong::new(what, "give every token a name and a secret of its own");
            findings.report(&format!("admin.tokens[{at}]"), wrong);
        }
        settled.push(AdminToken { name, token, may_order: rights.0 == AdminRights::Order });
    }
    settled
}

/// Checks that orders can be written down.
pub(super) fn check_audit(file: Option<&Path>, findings: &mut Findings) {
    let opened = file.map(|it| OpenOptions::new().create(true).append(true).open(it));
    if let Some(Err(error)) = opened {
        let wrong = Wrong::new(format!("cannot be written: {error}"), "check the folder");
        findings.report("admin.audit_file", wrong);
    }
}

/// Settles what keys the salts of tenants; `None` where the router is to make it.
pub(super) fn settle_cache_secret(
    given: Option<Text<Secret>>,
    file: Option<PathBuf>,
    findings: &mut Findings,
) -> Option<CacheSecret> {
    let path = if file.is_some() { "keys.cache_secret_file" } else { "keys.cache_secret" };
    let Secret(text) = settle_secret("keys.cache_secret", given, file, findings)?;
    if text.len() < SECRET_CHARS_MIN {
        let what = format!("is shorter than {SECRET_CHARS_MIN} characters");
        findings.report(path, Wrong::new(what, "make one: openssl rand -hex 32"));
    }
    Some(CacheSecret::new(&text))
}
