//! What opens engines, from what the user said to what the other rooms rely on: a key and TLS, said of a
//! replica, of its pool or of all. The nearest word counts. Files are read here, so that a check of the
//! configuration finds what is wrong with them.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::problem::{Findings, Wrong, join};
use super::raw::{EngineTlsSection, Text, TlsSection};
use super::read_bytes;
use super::trust::settle_secret;
use crate::admin::Secret;
use crate::replicas::{Access, EngineKey, Origin};
use crate::tls::{EngineTls, EngineTlsFiles, RenewableTls, ServerTls, ShownTo, TlsError};

/// What was said at one level of the file.
#[derive(Default)]
pub(super) struct AccessWords {
    pub api_key: Option<Text<Secret>>,
    pub api_key_file: Option<PathBuf>,
    pub engine_tls: Option<EngineTlsSection>,
}

/// What holds at one level of the file.
#[derive(Clone, Debug, Default)]
pub(super) struct AccessLevel {
    key: Option<EngineKey>,
    files: EngineTlsFiles,
    /// Where TLS was spoken of; empty if it was not.
    tls_path: String,
}

/// TLS to engines, read once for each set of files.
#[derive(Default)]
pub(super) struct EngineTlsBook(BTreeMap<EngineTlsFiles, Result<Arc<EngineTls>, String>>);

impl AccessLevel {
    /// Settles what the table at `path` says, within what is said around it.
    pub(super) fn within(&self, path: &str, words: AccessWords, findings: &mut Findings) -> Self {
        let AccessWords { api_key, api_key_file, engine_tls } = words;
        let at = |key: &str| if path.is_empty() { key.to_owned() } else { join(path, key) };
        let key = settle_secret(&at("api_key"), api_key, api_key_file, findings);
        let key = key.and_then(|Secret(it)| EngineKey::new(&it)).or_else(|| self.key.clone());
        let Some(section) = engine_tls else { return Self { key, ..self.clone() } };
        let tls_path = at("engine_tls");
        let files = settle_files(section, &tls_path, findings);
        Self { key, files, tls_path }
    }

    pub(super) const fn has_key(&self) -> bool {
        self.key.is_some()
    }

    /// Makes what is needed to reach `origin`, which stands at `path`; without one, what a replica that is
    /// discovered may need.
    pub(super) fn access(
        &self,
        book: &mut EngineTlsBook,
        (path, origin): (&str, Option<&Origin>),
        findings: &mut Findings,
    ) -> Access {
        let is_needed = origin.is_some_and(Origin::is_secure) || !self.tls_path.is_empty();
        if origin.is_some() && !is_needed {
            return Access { key: self.key.clone(), tls: None };
        }
        let tls = match book.read(&self.files, ShownTo::Engines, findings) {
            Ok(tls) => Some(tls),
            Err(message) if is_needed => {
                let at = if self.tls_path.is_empty() { path } else { &self.tls_path };
                let remedy = "give PEM files that can be read: engine_tls.ca for the CA that signs \
                              the engines' certificates";
                if !findings.is_refused(at) {
                    findings.report(at, Wrong::new(message, remedy));
                }
                None
            }
            Err(_) => None,
        };
        Access { key: self.key.clone(), tls }
    }
}

impl EngineTlsBook {
    fn read(
        &mut self,
        files: &EngineTlsFiles,
        shown_to: ShownTo,
        findings: &mut Findings,
    ) -> Result<Arc<EngineTls>, String> {
        if let Some(known) = self.0.get(files) {
            return known.clone();
        }
        let bundle = std::env::var_os("SSL_CERT_FILE").filter(|it| !it.is_empty());
        let read = EngineTls::read(files, bundle.map(PathBuf::from).as_deref());
        let read = read.map(Arc::new).map_err(|it: TlsError| it.to_string());
        if let Some((cert, key)) = &files.identity {
            findings.show(shown_to, cert);
            findings.watch(key);
        }
        files.ca.iter().for_each(|it| findings.watch(it));
        self.0.insert(files.clone(), read.clone());
        read
    }
}

/// Reads how a collector or a store is reached over TLS; nothing where its files do not serve.
pub(super) fn read_engine_tls(
    path: &str,
    section: EngineTlsSection,
    shown_to: ShownTo,
    findings: &mut Findings,
) -> Option<RenewableTls> {
    let files = settle_files(section, path, findings);
    let read = EngineTlsBook::default().read(&files, shown_to, findings);
    let remedy = "give PEM files that can be read: ca for the CA that signs its certificate";
    let read = read.map_err(|message| findings.report(path, Wrong::new(message, remedy)));
    read.ok().map(RenewableTls::new)
}

fn settle_files(raw: EngineTlsSection, path: &str, findings: &mut Findings) -> EngineTlsFiles {
    let EngineTlsSection { ca, cert, key, server_name } = raw;
    let identity = match (cert, key) {
        (Some(cert), Some(key)) => Some((cert, key)),
        (None, None) => None,
        (Some(_), None) => {
            let remedy = "add key, the PEM file of its private key";
            findings.report(&join(path, "cert"), Wrong::new("has no key", remedy));
            None
        }
        (None, Some(_)) => {
            let remedy = "add cert, the PEM file of its certificate chain";
            findings.report(&join(path, "key"), Wrong::new("has no certificate", remedy));
            None
        }
    };
    EngineTlsFiles { ca, identity, server_name: server_name.map(|it| it.0.0) }
}

/// Settles the certificate that clients or operators see, on a port that speaks the protocols `alpn`.
pub(super) fn settle_tls(
    (path, shown_to): (&str, ShownTo),
    raw: TlsSection,
    alpn: &[&str],
    findings: &mut Findings,
) -> Option<ServerTls> {
    let (cert_path, key_path) = (format!("{path}.cert"), format!("{path}.key"));
    match raw {
        TlsSection { cert: None, key: None } => None,
        TlsSection { cert: Some(cert), key: Some(key) } => {
            findings.show(shown_to, &cert);
            findings.watch(&key);
            let files = [(&cert_path, &cert), (&key_path, &key)];
            let unread = files.map(|(path, file)| Some((path, read_bytes(file).err()?)));
            if unread.iter().any(Option::is_some) {
                unread.into_iter().flatten().for_each(|(path, wrong)| findings.report(path, wrong));
                return None;
            }
            let report = |error: TlsError| {
                let at = if error.concerns(&key) { &key_path } else { &cert_path };
                let remedy = "give a certificate chain and its key, both as PEM";
                findings.report(at, Wrong::new(error, remedy));
            };
            ServerTls::read(&cert, &key, alpn).map_err(report).ok()
        }
        TlsSection { cert: Some(_), key: None } => {
            let remedy = format!("add {key_path}, the PEM file of its private key");
            findings.report(&cert_path, Wrong::new("has no key", remedy));
            None
        }
        TlsSection { cert: None, key: Some(_) } => {
            let remedy = format!("add {cert_path}, the PEM file of its certificate chain");
            findings.report(&key_path, Wrong::new("has no certificate", remedy));
            None
        }
    }
}
