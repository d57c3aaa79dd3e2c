//! Recordings, from what the user said to what telemetry relies on.

use std::path::{Path, PathBuf};

use super::problem::{Findings, Wrong};
use super::raw::RecordSection;
use crate::telemetry::RecordSettings;

/// Settles the section; files go beside what else outlives the process unless said.
pub(super) fn settle(
    raw: RecordSection,
    state_dir: Option<&Path>,
    findings: &mut Findings,
) -> RecordSettings {
    let dir = raw.dir.or_else(|| state_dir.map(usual_dir));
    if raw.enabled && dir.is_none() {
        let remedy = "give record.dir a folder";
        findings.report("record.enabled", Wrong::new("has no folder to write to", remedy));
    }
    if raw.total_mib_max < raw.file_mib_max.saturating_mul(2) {
        let remedy = format!("give at least {}", raw.file_mib_max.saturating_mul(2));
        let what = "is less than two files have (record.file_mib_max)";
        findings.report("record.total_mib_max", Wrong::new(what, remedy));
    }
    RecordSettings {
        starts_on: raw.enabled,
        dir,
        file_bytes_max: raw.file_mib_max.saturating_mul(1 << 20),
        bytes_max: raw.total_mib_max.saturating_mul(1 << 20),
    }
}

/// Where recordings go beside what else outlives the process.
pub(super) fn usual_dir(state_dir: &Path) -> PathBuf {
    state_dir.join("recordings")
}
