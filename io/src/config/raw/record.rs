//! The section about recordings.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

/// Recordings of what came and what became of it, without any text, for `cleave replay` and `cleave simulate`.
/// `POST /record` on the admin port turns them on and off while the router runs.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct RecordSection {
    /// Records from the start.
    pub enabled: bool,
    /// Folder for the files; only files named `cleave-….rec` are ever removed from it.
    #[schemars(extend("x-default" = "`recordings` in `subsets.state_dir`"))]
    pub dir: Option<PathBuf>,
    /// Size at which a file is full and the next one begins.
    #[schemars(range(min = 1, max = 65_536))]
    pub file_mib_max: u64,
    /// What all files of the folder may have together; the oldest go.
    #[schemars(range(min = 2, max = 16_777_216))]
    pub total_mib_max: u64,
}

impl Default for RecordSection {
    fn default() -> Self {
        Self { enabled: false, dir: None, file_mib_max: 64, total_mib_max: 1024 }
    }
}
