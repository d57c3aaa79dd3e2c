//! What the operator may set about recordings.

use std::path::PathBuf;

/// Whether, where and how much is recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordSettings {
    /// Whether it is on from the start.
    pub starts_on: bool,
    /// Where files go; without a folder it cannot be turned on.
    pub dir: Option<PathBuf>,
    /// When a file is full and the next one begins.
    pub file_bytes_max: u64,
    /// What all files of the folder may have together; the oldest go.
    pub bytes_max: u64,
}

impl Default for RecordSettings {
    fn default() -> Self {
        Self { starts_on: false, dir: None, file_bytes_max: 64 << 20, bytes_max: 1 << 30 }
    }
}
