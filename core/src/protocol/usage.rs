//! Where an answer says what it cost, and what it says there. A client can have text of its own echoed in
//! an answer: as metadata, as its input, in an error. So a `usage` object counts only in its place: at
//! the top level of a whole answer, or in the stream's own event for it. Telling the place takes the
//! nesting, so the text is walked through once, in pieces as they come. Strings are skipped at the speed
//! of `memchr`, and nothing but the object itself is kept.

use memchr::memchr;
use serde::Deserialize;

use crate::domain::Usage;

use super::Api;
use super::word::Word;

/// A longer object is no usage.
const OBJECT_BYTES_MAX: usize = 4096;
/// The longest key that is looked for has fewer bytes.
const KEY_BYTES_MAX: usize = 16;

type Key = Word<KEY_BYTES_MAX>;

/// A string is looked through byte by byte up to here.
const SHORT_BYTES: usize = 16;

const USAGE: &[u8] = b"usage";

const fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// Where figures stand in one object of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct UsagePlace {
    /// Whether `usage` at the top level counts.
    top: bool,
    /// The object at the top level whose `usage` counts.
    within: Option<&'static [u8]>,
}

impl UsagePlace {
    /// Figures of an answer in one piece.
    pub(super) const WHOLE: Self = Self { top: true, within: None };

    /// Figures of a stream, in the data of one event.
    pub(super) const fn of_event(api: Api) -> Self {
        match api {
            Api::Chat | Api::Completions => Self { top: true, within: None },
            // In `response.completed` and its kin.
            Api::Responses => Self { top: false, within: Some(b"response") },
            // In `message_start`, and in `message_delta`.
            Api::Messages => Self { top: true, within: Some(b"message") },
            Api::Other => Self { top: false, within: None },
        }
    }
}

/// What one object says of its cost, as it stands there.
#[derive(Clone, Debug, Default)]
pub(super) struct Found {
    /// At the top level.
    pub(super) top: Vec<u8>,
    /// In the object that the place names.
    pub(super) within: Vec<u8>,
}

/// Walks through one JSON object that comes in pieces.
#[derive(Clone, Debug)]
pub(super) struct Walk {
    place: UsagePlace,
    /// Brackets that are open.
    depth: u32,
    /// The depth at which keys count: 1, or 2 inside of the object that the place names.
    watched: u32,
    in_string: bool,
    /// Whether the next byte of a string is escaped.
    escaped: bool,
    /// Whether a colon came since the last comma, at the watched depth.
    in_value: bool,
    /// The last byte that is no blank.
    last: u8,
    /// The last key at the watched depth.
    key: Key,
    /// Where the object is copied to that is now passed through, and the depth at which it ends.
    copied: Option<Copied>,
    state: WalkState,
    found: Found,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WalkState {
    Open,
    /// The object is over; only blanks may follow.
    Over,
    /// It is no JSON object.
    Broken,
}

#[derive(Clone, Copy, Debug)]
struct Copied {
    within: bool,
    ends_at: u32,
}

impl Walk {
    pub(super) fn new(place: UsagePlace) -> Self {
        Self {
            place,
            depth: 0,
            watched: 1,
            in_string: false,
            escaped: false,
            in_value: false,
            last: b' ',
            key: Key::default(),
            copied: None,
            state: WalkState::Open,
            found: Found::default(),
        }
    }

    /// Begins anew; what was kept for the last object is let go, its memory is not.
    pub(super) fn reset(&mut self) {
        let Found { mut top, mut within } = std::mem::take(&mut self.found);
        top.clear();
        within.clear();
        *self = Self { found: Found { top, within }, ..Self::new(self.place) };
    }

    /// Says what was found, once the object is whole.
    pub(super) fn found(&self) -> Option<&Found> {
        (self.state == WalkState::Over).then_some(&self.found)
    }

    /// Goes on with the next piece.
    pub(super) fn on_piece(&mut self, piece: &[u8]) {
        let mut at = if self.in_string { self.skip_string(piece, 0) } else { 0 };
        let mut copied_from = 0;
        while let Some(&byte) = piece.get(at) {
            at += 1;
            if is_blank(byte) {
                continue;
            }
            if self.depth == 0 && (byte != b'{' || self.state != WalkState::Open) {
                self.state = WalkState::Broken;
                return;
            }
            match byte {
                b'"' => at = self.on_string(piece, at),
                b'{' | b'[' => {
                    let copying = self.copied.is_some();
                    self.open(byte);
                    if !copying && self.copied.is_some() {
                        copied_from = at - 1;
                    }
                }
                b'}' | b']' => {
                    if let Some(ended) = self.close() {
                        self.copy(ended, &piece[copied_from..at]);
                    }
                }
                b':' if self.is_watched() => self.on_colon(),
                b',' if self.is_watched() => self.in_value = false,
                _ => {}
            }
            self.last = byte;
        }
        if let Some(it) = self.copied {
            self.copy(it, &piece[copied_from..]);
        }
    }

    /// Goes over a string from behind its first quote.
    fn on_string(&mut self, piece: &[u8], from: usize) -> usize {
        if self.is_watched() && !self.in_value {
            self.key = Key::default();
        }
        self.skip_string(piece, from)
    }

    /// Takes in the colon behind a key. Behind anything else it makes no sense, and nothing is believed
    /// of what follows.
    fn on_colon(&mut self) {
        if self.in_value || self.last != b'"' {
            self.key = Key::default();
        }
        self.in_value = true;
    }

    /// Goes into an object or a list, which is a key's value if it follows the colon.
    fn open(&mut self, byte: u8) {
        let is_value = byte == b'{' && self.last == b':' && self.is_watched() && self.in_value;
        if is_value && self.key.is(USAGE) && (self.place.top || self.watched == 2) {
            let within = self.watched == 2;
            let kept = if within { &mut self.found.within } else { &mut self.found.top };
            kept.clear();
            self.copied = Some(Copied { within, ends_at: self.depth });
        } else if is_value
            && self.watched == 1
            && self.place.within.is_some_and(|it| self.key.is(it))
        {
            self.watched = 2;
            self.in_value = false;
        }
        // An answer has fewer bytes than that.
        self.depth = self.depth.saturating_add(1);
    }

    /// Goes out of an object or a list; says so if it is the one that is copied.
    fn close(&mut self) -> Option<Copied> {
        let outside = self.depth.saturating_sub(1);
        self.depth = outside;
        let ended = self.copied.take_if(|it| it.ends_at == outside);
        if outside < self.watched {
            // Behind the object that was looked into, or at the end of all.
            (self.in_value, self.key, self.watched) = (true, Key::default(), 1);
        }
        if outside == 0 {
            self.state = WalkState::Over;
        }
        ended
    }

    /// Goes to the end of the string, or of the piece; a key is noted on the way. Only quotes are looked
    /// for, because texts have far more escapes of other kinds.
    fn skip_string(&mut self, piece: &[u8], from: usize) -> usize {
        let escaped = std::mem::take(&mut self.escaped);
        let (mut end, mut looked) = (None, from);
        while end.is_none()
            && let Some(quote) = find_quote(&piece[looked..])
        {
            let at = looked + quote;
            end = (!ends_escaped(&piece[from..at], escaped)).then_some(at);
            looked = at + 1;
        }
        let at = end.unwrap_or(piece.len());
        if self.is_watched() && !self.in_value {
            self.key.push(&piece[from..at]);
        }
        self.in_string = end.is_none();
        self.escaped = end.is_none() && ends_escaped(&piece[from..], escaped);
        at + usize::from(end.is_some())
    }

    const fn is_watched(&self) -> bool {
        self.depth == self.watched && self.copied.is_none()
    }

    fn copy(&mut self, copied: Copied, text: &[u8]) {
        let kept = if copied.within { &mut self.found.within } else { &mut self.found.top };
        let room = OBJECT_BYTES_MAX.saturating_sub(kept.len());
        // What is cut off is not JSON, and says nothing.
        kept.extend_from_slice(&text[..text.len().min(room)]);
    }
}

/// Finds the next quote. Keys and most values are short, and for those a call costs more than a look.
fn find_quote(text: &[u8]) -> Option<usize> {
    let near = &text[..text.len().min(SHORT_BYTES)];
    let is_near = near.iter().position(|it| *it == b'"');
    is_near.or_else(|| memchr(b'"', text.get(SHORT_BYTES..)?).map(|it| SHORT_BYTES + it))
}

/// Tells whether the byte behind `text` is escaped, given whether its first byte is.
fn ends_escaped(text: &[u8], begins_escaped: bool) -> bool {
    match text.last() {
        None => begins_escaped,
        Some(b'\\') => {
            let slashes = text.iter().rev().take_while(|it| **it == b'\\').count();
            (slashes % 2 == 1) != (begins_escaped && slashes == text.len())
        }
        Some(_) => false,
    }
}

#[derive(Deserialize)]
struct Raw {
    #[serde(alias = "input_tokens")]
    prompt_tokens: Option<u32>,
    #[serde(alias = "output_tokens")]
    completion_tokens: Option<u32>,
    #[serde(alias = "input_tokens_details")]
    prompt_tokens_details: Option<Details>,
    cache_read_input_tokens: Option<u32>,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: Option<u32>,
}

/// Reads a usage object. One with a figure that is no count of tokens says nothing at all.
pub(super) fn read(object: &[u8]) -> Usage {
    let raw = serde_json::from_slice::<Raw>(object);
    raw.map_or_else(|_| Usage::default(), Usage::from)
}

impl From<Raw> for Usage {
    fn from(raw: Raw) -> Self {
        let details = raw.prompt_tokens_details.and_then(|it| it.cached_tokens);
        let cached = details.or(raw.cache_read_input_tokens);
        Self { input: raw.prompt_tokens, output: raw.completion_tokens, cached }
    }
}
