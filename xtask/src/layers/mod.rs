//! `cargo xtask layers`: which crate and module may use which. Zones are crates, and their law is
//! checked on what cargo resolved; rooms are modules, and their law is checked on the paths that
//! their files write. The compiler could enforce rooms only if each were a crate, and a crate needs
//! a better reason.

mod rooms;
mod zones;

use anyhow::Result;

use crate::finding;
use crate::repo;
use crate::source::Source;

/// Checks every law and prints what it found.
pub(crate) fn run() -> Result<()> {
    let root = repo::root();
    let mut findings = zones::broken(&zones::read(&root)?);
    for path in repo::files(&root, &["rs"])? {
        let source = Source::read(&root, &path)?;
        findings.extend(rooms::unlisted(&source));
        findings.extend(rooms::forbidden_edges(&source));
        findings.extend(rooms::machines_that_meet(&source));
        findings.extend(rooms::json_outside_protocol(&source));
        findings.extend(rooms::environment_outside_config(&source));
    }
    finding::report("layers", findings)
}
