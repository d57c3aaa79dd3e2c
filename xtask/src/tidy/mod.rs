//! `cargo xtask tidy`: what a reader would trip over and neither rustfmt nor Clippy sees. Every rule
//! is a function from a file to findings; none reads more than it is given. Style that a person can
//! argue about is not here: a rule must be right every time, or people learn to work around it.

mod files;
mod names;
mod plain;
mod promises;
mod words;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use crate::finding::{self, Finding};
use crate::repo;
use crate::source::Source;

const SCRIPTS: [&str; 7] = ["css", "html", "js", "py", "sh", "toml", "yaml"];

/// Checks the whole repository and prints what it found.
pub(crate) fn run() -> Result<()> {
    let root = repo::root();
    finding::report("tidy", check(&root)?)
}

fn check(root: &Path) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut proofs = BTreeSet::new();
    let mut names = names::TypeNames::default();
    for path in repo::files(root, &["rs"])? {
        let source = Source::read(root, &path)?;
        proofs.extend(promises::proofs(&source));
        findings.extend(files::too_long(&source));
        findings.extend(files::without_header(&source));
        findings.extend(files::leftover_in_rust(&source));
        findings.extend(files::metric_names(&source));
        findings.extend(files::machine_paths(&source.path, &source.text));
        names.note(&source);
        findings.extend(words::foreign(&source));
        findings.extend(plain::unclear(&source));
    }
    findings.extend(names.doubled());
    for path in repo::files(root, &SCRIPTS)? {
        let text = read(root, &path)?;
        findings.extend(files::leftover_in_text(&path.to_string_lossy(), &text));
        findings.extend(files::machine_paths(&path.to_string_lossy(), &text));
    }
    // Prose may speak of leftovers; it may not name a path of one machine.
    for path in repo::files(root, &["md"])? {
        let (name, text) = (path.to_string_lossy(), read(root, &path)?);
        findings.extend(files::machine_paths(&name, &text));
        findings.extend(plain::unclear_page(&name, &text));
    }
    let security = fs::read_to_string(root.join("SECURITY.md")).unwrap_or_default();
    findings.extend(promises::unproven(&security, &proofs));
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).unwrap_or_default();
    findings.extend(files::missing_from_map(&map, &members(root)?));
    Ok(findings)
}

fn read(root: &Path, path: &Path) -> Result<String> {
    fs::read_to_string(root.join(path)).with_context(|| format!("read {}", path.display()))
}

/// Lists the folders below the root that are crates; a crate inside a crate is that crate's affair.
fn members(root: &Path) -> Result<Vec<String>> {
    let manifests = repo::files(root, &["toml"])?;
    let crates = manifests.iter().filter(|it| it.file_name().is_some_and(|it| it == "Cargo.toml"));
    Ok(crates
        .filter_map(|it| it.parent())
        .map(|it| it.to_string_lossy().into_owned())
        .filter(|it| !it.is_empty() && !it.contains('/'))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_crate_of_this_repository_is_a_member() {
        let members = members(&repo::root()).unwrap();
        for name in ["cleave", "core", "io", "sim", "xtask"] {
            assert!(members.iter().any(|it| it == name), "{name} is missing");
        }
    }
}
