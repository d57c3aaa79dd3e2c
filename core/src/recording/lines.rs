//! The lines of a recording. Keys are short because there is a line for every request, and what is not known
//! is left out.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::cost::StepTimes;

use super::NumberedRun;

/// The form that is written. A reader refuses any other.
pub const VERSION: u32 = 1;

/// A recording of another form.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("the recording has version {0}, and this program reads version {VERSION}")]
pub struct UnknownVersion(pub u32);

/// The first line of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileHead {
    /// The version.
    pub cleave_recording: u32,
    /// Names the process that wrote it: codes and numbers of two recorders have nothing in common.
    pub recorder: String,
    /// When the recorder's time began, in milliseconds since 1970. All times in the file count from there.
    pub began_ms: u64,
    /// The place of the file among those of its recorder.
    pub part: u64,
}

impl FileHead {
    /// Refuses a form that is not known.
    pub const fn check(&self) -> Result<(), UnknownVersion> {
        if self.cleave_recording == VERSION {
            Ok(())
        } else {
            Err(UnknownVersion(self.cleave_recording))
        }
    }
}

/// How a pool stood: at the beginning of each file, and again when it has changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PoolLine {
    /// Its number in this recording.
    pub pool: u32,
    pub at_us: u64,
    pub name: String,
    pub policy: String,
    /// Whether requests wait at the router, whether sessions do, and whether costs are learned.
    pub holds: bool,
    pub gates: bool,
    pub learns: bool,
    /// Heaviest first; requests name them by their place.
    pub classes: Vec<ClassLine>,
    pub replicas: Vec<ReplicaLine>,
    /// What work takes, for each class of hardware, as the router priced it then.
    pub costs: Vec<CostLine>,
}

/// A class of service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassLine {
    pub name: String,
    pub weight: f64,
    pub wait_max_ms: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token_gap_ms: Option<f64>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub is_default: bool,
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReplicaLine {
    pub id: u32,
    pub address: String,
    /// Its class of hardware.
    pub class: String,
    pub weight: f64,
    pub state: String,
    /// How many times as long as its class promises things took.
    pub pace: f64,
    /// Tokens that its KV memory holds, where its engine tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_tokens: Option<u64>,
}

/// What work takes on a class of hardware.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CostLine {
    pub class: String,
    pub step: StepTimes,
    /// What an answer's way to the client adds to its first token.
    pub overhead_ms: f64,
    pub is_learned: bool,
}

/// One request, when it ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestLine {
    /// When it came. All other times count from here.
    pub t: u64,
    pub pool: u32,
    pub tenant: String,
    pub session: String,
    pub class: u8,
    /// When its first token is due, where the client said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub due_us: Option<u64>,
    /// Bytes of its prompt.
    pub bytes: u32,
    /// Tokens of the prompt, of the answer, and of the prompt those that were cached.
    #[serde(rename = "in", default, skip_serializing_if = "Option::is_none")]
    pub input: Option<u32>,
    #[serde(rename = "out", default, skip_serializing_if = "Option::is_none")]
    pub output: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<u32>,
    /// The whole blocks of its prompt.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub blocks: Vec<NumberedRun>,
    /// Bytes behind each block.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub block: u32,
    /// When it was sent to the replica that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<u64>,
    /// When its first token came, where it streamed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first: Option<u64>,
    pub end: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<u32>,
    pub status: u16,
    /// `done`, `cut`, `cancelled`, `panicked`, or why it was refused.
    pub how: Cow<'static, str>,
    #[serde(default, skip_serializing_if = "is_false")]
    pub stream: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references over")]
const fn is_false(it: &bool) -> bool {
    !*it
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands references over")]
const fn is_zero(it: &u32) -> bool {
    *it == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_refused_by_its_number() {
        let head = FileHead { cleave_recording: 9, recorder: "a".to_owned(), began_ms: 0, part: 0 };
        let refusal = head.check().unwrap_err().to_string();
        assert!(refusal.contains('9') && refusal.contains('1'), "{refusal}");
    }
}
