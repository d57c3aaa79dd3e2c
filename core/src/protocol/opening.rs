//! The opening of a prompt: system text and the first message of the user. It stays the same over
//! the turns of one conversation, so its fingerprint stands in for a session id where the client
//! sent none. Only texts are hashed: clients move cache markers and add fields from turn to turn.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use twox_hash::XxHash3_64;

/// How much of a bare prompt counts: a later turn has an earlier one as its beginning.
const PROMPT_BYTES_MAX: usize = 256;

/// A content longer than this is hashed as it stands: looking for its texts would read it twice.
const PARTS_BYTES_MAX: usize = 8 << 10;

/// A fingerprint in the making; `None` until something was taken in.
#[derive(Debug, Default)]
pub(super) struct Opening(Option<u64>);

#[derive(Deserialize)]
struct Part<'a> {
    #[serde(borrow)]
    text: Option<&'a RawValue>,
}

impl Opening {
    /// Takes in what the Responses API calls input: messages, or the user's one message as text.
    pub(super) fn input(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        if raw.get().starts_with('"') {
            self.absorb(raw.get());
        } else {
            let mut json = serde_json::Deserializer::from_str(raw.get());
            self.join(Messages.deserialize(&mut json).ok().map(|it| it.opening).as_ref());
        }
    }

    /// Takes in a message's content: a string, or the texts among its parts.
    pub(super) fn content(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw.map(RawValue::get) else { return };
        // Asked first, because a parser that expects a list prints all of what it found instead.
        if raw.starts_with('[')
            && raw.len() <= PARTS_BYTES_MAX
            && let Ok(parts) = serde_json::from_str::<Vec<&RawValue>>(raw)
        {
            for part in parts {
                let text = serde_json::from_str::<Part<'_>>(part.get()).ok().and_then(|it| it.text);
                self.absorb(text.unwrap_or(part).get());
            }
        } else {
            self.absorb(raw);
        }
    }

    /// Takes in the beginning of a bare prompt.
    pub(super) fn prompt(&mut self, raw: Option<&RawValue>) {
        let Some(raw) = raw else { return };
        let text = raw.get().trim_end_matches('"').as_bytes();
        self.absorb_bytes(&text[..text.len().min(PROMPT_BYTES_MAX)]);
    }

    /// Goes on with what another one took in.
    pub(super) fn join(&mut self, other: Option<&Self>) {
        if let Some(Self(Some(hash))) = other {
            self.absorb_bytes(&hash.to_le_bytes());
        }
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

/// Accepts values of another type than the one looked for. They hold nothing of interest here; the
/// engine will say what it thinks of them.
macro_rules! accept_anything_else {
    () => {
        accept_anything_else!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64);
        accept_anything_else!(visit_str: &str);

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    ($($visit:ident: $kind:ty),+) => {$(
        fn $visit<E>(self, _: $kind) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    )+};
}

pub(super) use accept_anything_else;

/// Skips a list of messages, takes in its opening on the way and notes where it stands.
pub(super) struct Messages;

/// What was found in a list of messages.
#[derive(Debug, Default)]
pub(super) struct Listed<'a> {
    pub(super) opening: Opening,
    /// The first value of the first message and the last of the last one. They span the list but for
    /// its brackets, and cost nothing: the whole list as a raw value would be read twice.
    pub(super) span: Option<(&'a RawValue, &'a RawValue)>,
}

impl<'a> Listed<'a> {
    fn extend(&mut self, span: Option<(&'a RawValue, &'a RawValue)>) {
        let Some((first, last)) = span else { return };
        self.span = Some((self.span.map_or(first, |it| it.0), last));
    }
}

impl<'de> DeserializeSeed<'de> for Messages {
    type Value = Listed<'de>;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Listed<'de>, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Messages {
    type Value = Listed<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("messages")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Listed<'de>, A::Error> {
        let mut listed = Listed::default();
        while let Some(Message { role, content, span }) = seq.next_element()? {
            listed.extend(span);
            match role.map(RawValue::get) {
                Some("\"system\"" | "\"developer\"") => listed.opening.content(content),
                Some("\"user\"") => {
                    listed.opening.content(content);
                    break;
                }
                _ => {}
            }
        }
        while let Some(message) = seq.next_element::<&RawValue>()? {
            listed.extend(Some((message, message)));
        }
        Ok(listed)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Listed<'de>, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Listed::default())
    }

    accept_anything_else!();
}

/// One message, its values as they stand.
#[derive(Default)]
struct Message<'a> {
    role: Option<&'a RawValue>,
    content: Option<&'a RawValue>,
    /// The first value and the last.
    span: Option<(&'a RawValue, &'a RawValue)>,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "snake_case")]
enum MessageField {
    Role,
    Content,
    #[serde(other)]
    Other,
}

impl<'de> Deserialize<'de> for Message<'de> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(MessageVisitor)
    }
}

struct MessageVisitor;

impl<'de> Visitor<'de> for MessageVisitor {
    type Value = Message<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a message")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Message<'de>, A::Error> {
        let mut message = Message::default();
        while let Some(field) = map.next_key()? {
            let value: &RawValue = map.next_value()?;
            message.span = Some((message.span.map_or(value, |it| it.0), value));
            match field {
                MessageField::Role => message.role = Some(value),
                MessageField::Content => message.content = Some(value),
                MessageField::Other => {}
            }
        }
        Ok(message)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Message<'de>, A::Error> {
        while seq.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Message::default())
    }

    accept_anything_else!();
}
