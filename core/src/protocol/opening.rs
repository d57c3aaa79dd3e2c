//! The opening of a prompt: system text and the first message of the user. It stays the same over
//! the turns of one conversation, so its fingerprint stands in for a session id nobody sent. Only
//! texts are hashed: clients move cache markers and add fields from turn to turn.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer as _, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;
use twox_hash::XxHash3_64;

/// How much of a bare prompt counts: a later turn has an earlier one as its beginning.
const PROMPT_BYTES_MAX: usize = 256;

/// A fingerprint in the making; `None` until something was taken in.
#[derive(Debug, Default)]
pub(super) struct Opening(Option<u64>);

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

impl Opening {
    /// Takes in messages up to and with the first of the user. A plain string, as the Responses API
    /// allows, is that message itself.
    pub(super) fn messages(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        if raw.get().starts_with('"') {
            self.absorb(raw.get());
        } else {
            let mut json = serde_json::Deserializer::from_str(raw.get());
            // An error is how the visitor stops early; what it took in until then counts.
            _ = json.deserialize_seq(Messages(self));
        }
    }

    /// Takes in a message's content: a string, or the texts among its parts.
    pub(super) fn content(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        if raw.get().starts_with('[')
            && let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(raw.get())
        {
            for part in parts {
                let text = serde_json::from_str::<Part<'_>>(part.get()).ok().and_then(|it| it.text);
                self.absorb(text.unwrap_or(part).get());
            }
        } else {
            self.absorb(raw.get());
        }
    }

    /// Takes in the beginning of a bare prompt.
    pub(super) fn prompt(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        let text = raw.get().trim_end_matches('"').as_bytes();
        self.absorb_bytes(&text[..text.len().min(PROMPT_BYTES_MAX)]);
    }

    /// The fingerprint, if there was anything to take it from.
    pub(super) fn finish(self) -> Option<u64> {
        self.0
    }

    fn absorb(&mut self, text: &str) {
        self.absorb_bytes(text.as_bytes());
    }

    fn absorb_bytes(&mut self, bytes: &[u8]) {
        self.0 = Some(XxHash3_64::oneshot_with_seed(self.0.unwrap_or(0), bytes));
    }
}

struct Messages<'o>(&'o mut Opening);

impl<'de> Visitor<'de> for Messages<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<(), A::Error> {
        while let Some(message) = seq.next_element::<Message<'_>>()? {
            match message.role.as_deref() {
                Some("system" | "developer") => self.0.content(message.content),
                Some("user") => {
                    self.0.content(message.content);
                    return Err(A::Error::custom("enough"));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
