//! Finds the first content of a stream: text, a thought, a tool call, or the reason why there is none. Engines
//! begin streams with events without a token (a role, an envelope, a comment that keeps the connection open),
//! and the first token may come much later. An event counts as content unless it is known to be empty, so that
//! an unknown form counts from its first event. Events are read in pieces as they come, nothing is kept of
//! them but the word being read, and after the first content nothing is read any more.

use memchr::{memchr_iter, memchr2};

use super::word::Word;

/// How the data of an event begins.
pub(super) const DATA: &[u8] = b"data:";
/// The longest word that is looked for has fewer bytes.
const WORD_BYTES_MAX: usize = 40;
/// How deep the fields that are looked for stand; the first level is 1.
const FIELD_DEPTH_MAX: usize = 4;

/// Reads a stream up to its first content.
#[derive(Debug, Default)]
pub(super) struct FirstContent {
    is_seen: bool,
    /// Whole events that came before it.
    empty_events: u64,
    line: SseLine,
    /// Whether the event being received has anything in it.
    in_event: bool,
    data: Data,
}

/// What the line being received is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SseLine {
    /// The number of bytes that came, all as data begins.
    Begins(usize),
    Data,
    Other,
}

impl Default for SseLine {
    fn default() -> Self {
        Self::Begins(0)
    }
}

impl SseLine {
    /// Takes in some of a line; returns what of it stands behind the beginning of data.
    pub(super) fn on_text<'a>(&mut self, text: &'a [u8]) -> &'a [u8] {
        let Self::Begins(came) = *self else { return text };
        let both = DATA[came..].iter().zip(text);
        let shared = both.take_while(|(one, other)| one == other).count();
        let rest = &text[shared..];
        *self = match came + shared {
            all if all == DATA.len() => Self::Data,
            some if rest.is_empty() => Self::Begins(some),
            _ => Self::Other,
        };
        rest
    }
}

impl FirstContent {
    pub(super) const fn is_seen(&self) -> bool {
        self.is_seen
    }

    /// Whole events without content, up to the first that has some.
    pub(super) const fn empty_events(&self) -> u64 {
        self.empty_events
    }

    /// Begins anew at the next event, which another replica writes.
    pub(super) fn look_again(&mut self) {
        *self = Self { empty_events: self.empty_events, ..Self::default() };
    }

    /// Goes on with the next piece of the stream.
    pub(super) fn on_chunk(&mut self, chunk: &[u8]) {
        let mut start = 0;
        for end in memchr_iter(b'\n', chunk) {
            self.on_text(&chunk[start..end]);
            self.end_line();
            if self.is_seen {
                return;
            }
            start = end + 1;
        }
        self.on_text(&chunk[start..]);
    }

    /// Takes in some of a line, or the rest of it.
    fn on_text(&mut self, text: &[u8]) {
        if text.is_empty() || text == b"\r" {
            return;
        }
        self.in_event = true;
        let text = self.line.on_text(text);
        if self.line == SseLine::Data {
            self.is_seen |= self.data.on_text(text);
        }
    }

    fn end_line(&mut self) {
        let is_blank = std::mem::take(&mut self.line) == SseLine::Begins(0);
        if !is_blank || !std::mem::take(&mut self.in_event) {
            return;
        }
        let data = std::mem::take(&mut self.data);
        self.is_seen |= !data.is_empty();
        self.empty_events += u64::from(!self.is_seen);
    }
}

/// The data of one event, as far as it came.
#[derive(Debug, Default)]
struct Data {
    /// Brackets that are open.
    depth: usize,
    /// The field at each depth that leads to where the text is now.
    path: [ContentField; FIELD_DEPTH_MAX],
    place: StringPlace,
    /// The string being read, or the last one.
    word: Word<WORD_BYTES_MAX>,
    has_text: bool,
    /// Whether it is of a form whose content is known by its place.
    is_known: bool,
}

/// Where the next byte stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum StringPlace {
    #[default]
    Outside,
    String,
    /// In a string, behind a backslash.
    Escape,
    /// Behind a string: a colon makes it a key, a comma or a bracket a value.
    Behind,
}

/// A field that may lead to content.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ContentField {
    #[default]
    Other,
    /// The choices of a chat or a completion.
    Choices,
    /// What is new in a choice, a response or a message.
    Delta,
    /// A completion's text, and why a choice ends.
    Text,
    /// A block of a message.
    Block,
    /// An item of a response.
    Item,
    Name,
    /// The role or the type: says what something is, and nothing else.
    Label,
}

impl ContentField {
    fn read(key: &[u8]) -> Self {
        match key {
            b"choices" => Self::Choices,
            b"delta" => Self::Delta,
            b"text" | b"finish_reason" => Self::Text,
            b"content_block" => Self::Block,
            b"item" => Self::Item,
            b"name" => Self::Name,
            b"role" | b"type" => Self::Label,
            _ => Self::Other,
        }
    }
}

/// Tells whether events of this type are empty if nothing stands where their content would.
fn may_be_empty(kind: &[u8]) -> bool {
    let is_envelope = matches!(
        kind,
        b"ping"
            | b"keepalive"
            | b"message_start"
            | b"content_block_start"
            | b"content_block_delta"
            | b"content_block_stop"
            | b"response.created"
            | b"response.queued"
            | b"response.in_progress"
            | b"response.output_item.added"
    );
    is_envelope || kind.ends_with(b"_part.added") || kind.ends_with(b".delta")
}

impl Data {
    /// Tells, at the end of the event, whether it has no content.
    const fn is_empty(&self) -> bool {
        self.is_known || !self.has_text
    }

    /// Goes on with the next piece; returns whether it has content.
    fn on_text(&mut self, text: &[u8]) -> bool {
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            if matches!(self.place, StringPlace::String | StringPlace::Escape) {
                at = self.skip_string(text, at);
                continue;
            }
            at += 1;
            match byte {
                b' ' | b'\t' | b'\r' => continue,
                b'"' => (self.place, self.word) = (StringPlace::String, Word::default()),
                b':' => self.on_key(),
                b'{' | b'[' => self.enter(),
                b',' | b'}' | b']' => {
                    if self.on_value() {
                        return true;
                    }
                    self.depth = self.depth.saturating_sub(usize::from(byte != b','));
                }
                _ => {}
            }
            self.has_text = true;
        }
        false
    }

    /// Goes to the next escape or the end of the string, or of the text.
    fn skip_string(&mut self, text: &[u8], from: usize) -> usize {
        if self.place == StringPlace::Escape {
            self.word.push(&text[from..=from]);
            self.place = StringPlace::String;
            return from + 1;
        }
        let found = memchr2(b'"', b'\\', &text[from..]).map(|it| from + it);
        let end = found.unwrap_or(text.len());
        self.word.push(&text[from..end]);
        match text.get(end) {
            None => end,
            Some(b'"') => {
                self.place = StringPlace::Behind;
                end + 1
            }
            Some(_) => {
                self.place = StringPlace::Escape;
                end + 1
            }
        }
    }

    /// Leaves the string that stands before this byte; returns whether there is one.
    fn leave_string(&mut self) -> bool {
        std::mem::take(&mut self.place) == StringPlace::Behind
    }

    fn enter(&mut self) {
        self.depth = self.depth.saturating_add(1);
        self.set_field(ContentField::Other);
    }

    fn on_key(&mut self) {
        if !self.leave_string() {
            return;
        }
        let field = self.word.known().map_or(ContentField::Other, ContentField::read);
        self.set_field(field);
        self.is_known |= self.depth == 1 && field == ContentField::Choices;
    }

    fn set_field(&mut self, field: ContentField) {
        let place = self.depth.checked_sub(1).and_then(|it| self.path.get_mut(it));
        if let Some(place) = place {
            *place = field;
        }
    }

    /// Takes in the end of a value; returns whether that was content. Only a string that is not empty can be.
    fn on_value(&mut self) -> bool {
        if !self.leave_string() || self.word.is(b"") {
            return false;
        }
        if self.depth == 1 && self.path[0] == ContentField::Label {
            self.is_known |= self.word.known().is_some_and(may_be_empty);
        }
        let [top, second, third, fourth] = self.path;
        match (top, self.depth) {
            (ContentField::Choices, 3) => third == ContentField::Text,
            (ContentField::Choices, 4) => {
                third == ContentField::Delta && fourth != ContentField::Label
            }
            (ContentField::Choices, 5..) => third == ContentField::Delta,
            (ContentField::Delta | ContentField::Block, 2) => second != ContentField::Label,
            (ContentField::Delta, 1) | (ContentField::Delta | ContentField::Block, 3..) => true,
            (ContentField::Item, 2) => second == ContentField::Name,
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests;
