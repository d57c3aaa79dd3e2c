//! One event of a streamed answer, read where it stands. What is no event at all is told apart from
//! what is merely not understood: the first means that the replica is broken.

use std::borrow::Cow;
use std::fmt;

use memchr::memchr_iter;
use serde::Deserialize;
use serde::de::{MapAccess, Visitor};
use serde_json::value::RawValue;

use crate::protocol::quoted;

/// Finds the end of the first whole event, its empty line included.
pub fn event_end(bytes: &[u8]) -> Option<usize> {
    let mut line = 0;
    for end in memchr_iter(b'\n', bytes) {
        if matches!(&bytes[line..end], b"" | b"\r") {
            return Some(end + 1);
        }
        line = end + 1;
    }
    None
}

/// What an event is.
#[derive(Debug)]
pub(super) enum Read<'a> {
    Chunk(Chunk<'a>),
    /// The mark at the end.
    Done,
    /// Nothing a client acts on.
    Comment,
    /// An event, but not of this API.
    Foreign,
    Garbage,
}

/// Reads a whole event.
pub(super) fn read(event: &[u8]) -> Read<'_> {
    let Ok(text) = std::str::from_utf8(event) else { return Read::Garbage };
    let mut lines = text.lines().filter(|it| !it.is_empty() && !it.starts_with(':'));
    let Some(first) = lines.next() else { return Read::Comment };
    if let (Some(data), None) = (first.strip_prefix("data:"), lines.next()) {
        return match data.trim() {
            "[DONE]" => Read::Done,
            data => serde_json::from_str(data).map_or(Read::Garbage, Read::Chunk),
        };
    }
    let fields = ["data:", "event:", "id:", "retry:", ":"];
    let is_field = |line: &str| line.is_empty() || fields.iter().any(|it| line.starts_with(it));
    if text.lines().all(is_field) { Read::Foreign } else { Read::Garbage }
}

/// What an event of a chat or a completion says.
#[derive(Debug, Deserialize)]
pub(super) struct Chunk<'a> {
    #[serde(borrow)]
    pub(super) id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) object: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) created: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) model: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) choices: Option<Vec<Choice<'a>>>,
    #[serde(borrow)]
    pub(super) usage: Option<UsageObject<'a>>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

impl Chunk<'_> {
    /// Tells whether the engine says that it has failed, rather than the request.
    pub(super) fn is_fault(&self) -> bool {
        #[derive(Deserialize)]
        struct Fault {
            code: u16,
        }
        let fault = self.error.and_then(|it| serde_json::from_str::<Fault>(it.get()).ok());
        fault.is_some_and(|it| 500 <= it.code)
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Choice<'a> {
    pub(super) index: Option<u32>,
    /// A chat's words and whatever comes beside them.
    #[serde(borrow)]
    pub(super) delta: Option<&'a RawValue>,
    /// A completion's words.
    #[serde(borrow)]
    pub(super) text: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) logprobs: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) finish_reason: Option<&'a RawValue>,
}

/// What the engine says the answer came to.
#[derive(Debug, Deserialize)]
pub(super) struct UsageObject<'a> {
    #[serde(borrow)]
    pub(super) prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) prompt_tokens_details: Option<TokenDetails<'a>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct TokenDetails<'a> {
    #[serde(borrow)]
    pub(super) cached_tokens: Option<&'a RawValue>,
}

/// The fields of a delta, in their order.
#[derive(Debug, Default)]
pub(super) struct Delta<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Delta<'a> {
    pub(super) fn read(raw: &'a RawValue) -> Option<Self> {
        serde_json::from_str(raw.get()).ok()
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        let value = self.0.iter().find(|it| it.0 == name)?.1;
        (value.get() != "null").then_some(value)
    }

    /// Tells whether there is anything but a role and words: a tool call, thoughts.
    pub(super) fn has_more(&self) -> bool {
        let nothing = |value: &RawValue| matches!(value.get(), "null" | "\"\"" | "[]" | "{}");
        self.0
            .iter()
            .any(|(name, value)| !matches!(name.as_ref(), "role" | "content") && !nothing(value))
    }

    /// Writes it without its role, and with other words if there are any.
    pub(super) fn rewritten(&self, words: Option<&str>) -> String {
        let mut out = String::from("{");
        for (name, value) in self.0.iter().filter(|it| it.0 != "role") {
            out.push_str(if out.len() == 1 { "" } else { "," });
            out.push_str(&quoted(name));
            out.push(':');
            match words {
                Some(words) if name == "content" => out.push_str(&quoted(words)),
                _ => out.push_str(value.get()),
            }
        }
        out.push('}');
        out
    }
}

impl<'de> Deserialize<'de> for Delta<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Fields;

        impl<'de> Visitor<'de> for Fields {
            type Value = Delta<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Delta<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Delta(fields))
            }
        }

        from.deserialize_map(Fields)
    }
}
