//! Which format is it? Told by the first line, or by name when that fails. Readers never guess on
//! their own: one place decides, so that a file is never read as two things.

use std::str::FromStr;

use serde::Deserialize;
use serde::de::IgnoredAny;

/// A format this room can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Request lines with 512-token block ids.
    Mooncake,
    /// Request lines with lengths only.
    Azure,
    /// One session per line, turns as differences: Claude Code and tau-bench recordings.
    Sessions,
    /// One client per line: rates, burstiness, lengths.
    ServeGen,
    /// Agent runs with their text.
    LmCache,
    /// Request lines with 16-token block ids and parent chats.
    Bailian,
    /// Comma-separated lengths, with sessions in the newer files.
    BurstGpt,
    /// What a router of Cleave recorded.
    Recording,
}

pub(super) const NAMES: [(&str, Format); 8] = [
    ("mooncake", Format::Mooncake),
    ("azure", Format::Azure),
    ("sessions", Format::Sessions),
    ("servegen", Format::ServeGen),
    ("lmcache", Format::LmCache),
    ("bailian", Format::Bailian),
    ("burstgpt", Format::BurstGpt),
    ("recording", Format::Recording),
];

/// The given name is none of ours.
#[derive(Debug, thiserror::Error)]
#[error("no trace format is called {0:?}; there are: {names}", names = Format::names())]
pub struct UnknownName(String);

/// The keys that tell formats apart.
#[derive(Deserialize)]
struct Keys {
    chat_id: Option<IgnoredAny>,
    cleave_recording: Option<IgnoredAny>,
    client: Option<IgnoredAny>,
    hash_ids: Option<IgnoredAny>,
    input: Option<IgnoredAny>,
    input_length: Option<IgnoredAny>,
    reqs: Option<IgnoredAny>,
    session_id: Option<IgnoredAny>,
    window_fields: Option<IgnoredAny>,
}

impl Format {
    /// Tells the format by the first line of a file.
    pub fn detect(line: &str) -> Option<Self> {
        if line.starts_with("Timestamp,") {
            return Some(Self::BurstGpt);
        }
        let keys: Keys = serde_json::from_str(line).ok()?;
        if keys.cleave_recording.is_some() {
            Some(Self::Recording)
        } else if keys.chat_id.is_some() {
            Some(Self::Bailian)
        } else if keys.reqs.is_some() {
            Some(Self::Sessions)
        } else if keys.window_fields.is_some() || keys.client.is_some() {
            Some(Self::ServeGen)
        } else if keys.session_id.is_some() && keys.input.is_some() {
            Some(Self::LmCache)
        } else if keys.hash_ids.is_some() {
            Some(Self::Mooncake)
        } else if keys.input_length.is_some() {
            Some(Self::Azure)
        } else {
            None
        }
    }

    pub(super) fn names() -> String {
        NAMES.map(|(name, _)| name).join(", ")
    }
}

impl FromStr for Format {
    type Err = UnknownName;

    fn from_str(text: &str) -> Result<Self, UnknownName> {
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found.map(|&(_, format)| format).ok_or_else(|| UnknownName(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_nothing_known_has_no_format() {
        assert_eq!(Format::detect("{\"a\":1}"), None);
        assert_eq!(Format::detect("timestamp;input"), None);
    }

    #[test]
    fn every_name_is_read_back() {
        for (name, format) in NAMES {
            assert_eq!(name.parse::<Format>().unwrap(), format);
        }
        assert!("moon".parse::<Format>().unwrap_err().to_string().contains("mooncake"));
    }
}
