//! Images, sounds and files in a prompt, told by where they stand: in a part of a message's content, under
//! a field that holds such things. What looks like an image elsewhere is text, and an engine reads it
//! as text: a client that wrote its prompt without blanks would otherwise have it counted as one image.
//!
//! Messages are walked through once, with strings skipped. That is done only where something looks like
//! data, or like the name of a field that holds an address.

use memchr::memchr_iter;

use super::sound;

/// A shorter text is none of an attachment's data, but an address.
const DATA_BYTES_MIN: usize = 256;
/// How much of a text is looked at to tell data from an address.
const PROBE_BYTES: usize = 64;
/// How far a data URL's own words go.
const PREFIX_BYTES_MAX: usize = 128;

/// How the turns of a prompt begin.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in super::super) enum Turns {
    /// With the first value of the first message; it is its content or something else.
    Message { is_content: bool },
    /// With a list of messages, or with text.
    List,
    /// They are text, or tokens.
    #[default]
    Bare,
}

/// What a prompt holds beside text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Media {
    /// Those that are in the prompt with their data, and what they take there.
    pub(super) attachments: u32,
    pub(super) bytes: usize,
    pub(super) sounds: u32,
    pub(super) sound_ms: u32,
    /// All of them, those at some address included.
    pub(super) named: u32,
}

/// Where in a prompt the walk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spot {
    List,
    Message,
    Content,
    Part,
    /// Under a field of a part that holds an image, a sound or a file.
    Media,
    /// Where it says of itself what it is.
    Kind,
    Other,
}

/// An object or a list that is open.
#[derive(Clone, Copy, Debug)]
struct Frame {
    spot: Spot,
    is_object: bool,
    /// Whether the next string is a value.
    in_value: bool,
    /// Where the value of the last key leads.
    leads_to: Spot,
    /// What was found before it.
    before: Media,
    /// Whether it says of itself that it is text.
    is_text: bool,
}

impl Frame {
    const fn new(spot: Spot, is_object: bool, before: Media) -> Self {
        let leads_to = if is_object { Spot::Other } else { inside(spot) };
        let (in_value, is_text) = (!is_object, false);
        Self { spot, is_object, in_value, leads_to, before, is_text }
    }
}

/// Says what an element of a list is.
const fn inside(list: Spot) -> Spot {
    match list {
        Spot::List => Spot::Message,
        Spot::Content => Spot::Part,
        Spot::Media => Spot::Media,
        Spot::Message | Spot::Part | Spot::Kind | Spot::Other => Spot::Other,
    }
}

/// Finds what a prompt holds beside text. `has_data` tells whether anything in it looks like the data of an
/// image; without that, there can be addresses only.
pub(super) fn find(turns: &str, begin: Turns, has_data: bool) -> Media {
    let text = turns.as_bytes();
    let (stack, outside) = match begin {
        Turns::Bare => return Media::default(),
        Turns::Message { is_content } => {
            let message = Frame::new(Spot::Message, true, Media::default());
            let leads_to = if is_content { Spot::Content } else { Spot::Other };
            (vec![Frame { in_value: true, leads_to, ..message }], Spot::Message)
        }
        Turns::List => (Vec::new(), Spot::List),
    };
    if !has_data && !may_name_address(text) {
        return Media::default();
    }
    let mut walk = MediaWalk { text, stack, outside, found: Media::default() };
    walk.run();
    walk.found
}

/// Looks for what is in every prompt that names an image, a sound or a file by its address: a key that
/// ends with `_url`, is `source` or begins with `file`. One pass over the quotes finds all three.
fn may_name_address(text: &[u8]) -> bool {
    memchr_iter(b'"', text).any(|at| {
        let (before, after) = (&text[..at], &text[at + 1..]);
        before.ends_with(b"_url") || after.starts_with(b"source\"") || after.starts_with(b"file")
    })
}

struct MediaWalk<'a> {
    text: &'a [u8],
    stack: Vec<Frame>,
    /// What stands outside of all that is open.
    outside: Spot,
    found: Media,
}

impl MediaWalk<'_> {
    fn run(&mut self) {
        let mut at = 0;
        while let Some(byte) = self.text.get(at) {
            match byte {
                b'"' => {
                    let end = end_of_string(self.text, at + 1);
                    self.on_string(at + 1, end);
                    at = end;
                }
                b'{' | b'[' => self.open(*byte == b'{'),
                b'}' | b']' => self.close(),
                b':' => self.set_in_value(true),
                b',' => self.set_in_value(false),
                _ => {}
            }
            at += 1;
        }
    }

    fn open(&mut self, is_object: bool) {
        let here = self.stack.last().map_or(self.outside, |it| it.leads_to);
        // An object that stands where a list is expected, or a list where an object is, is neither.
        let spot = match (here, is_object) {
            (Spot::List | Spot::Content, false)
            | (Spot::Message | Spot::Part, true)
            | (Spot::Media, _) => here,
            _ => Spot::Other,
        };
        self.stack.push(Frame::new(spot, is_object, self.found));
    }

    fn close(&mut self) {
        let Some(frame) = self.stack.pop() else { return };
        if frame.spot == Spot::Media && frame.is_text {
            let Media { attachments, bytes, sounds, sound_ms, .. } = frame.before;
            self.found = Media { attachments, bytes, sounds, sound_ms, ..self.found };
        }
    }

    fn set_in_value(&mut self, in_value: bool) {
        if let Some(frame) = self.stack.last_mut().filter(|it| it.is_object) {
            frame.in_value = in_value;
        }
    }

    fn on_string(&mut self, start: usize, end: usize) {
        let string = &self.text[start..end];
        let Some(frame) = self.stack.last_mut() else { return };
        if frame.is_object && !frame.in_value {
            frame.leads_to = led_by(frame.spot, string);
            self.found.named +=
                u32::from(frame.spot == Spot::Part && frame.leads_to == Spot::Media);
            return;
        }
        frame.is_text |= frame.leads_to == Spot::Kind && string == b"text";
        if frame.leads_to == Spot::Media && DATA_BYTES_MIN <= string.len() {
            self.on_data(start, string);
        }
    }

    fn on_data(&mut self, start: usize, string: &[u8]) {
        let is_url = string.starts_with(b"data:");
        let words = &string[..string.len().min(PREFIX_BYTES_MAX)];
        let prefix = words.iter().position(|it| is_url && *it == b',').map_or(0, |it| it + 1);
        let probe = &string[prefix..(prefix + PROBE_BYTES).min(string.len())];
        let is_base64 = |it: &u8| it.is_ascii_alphanumeric() || b"+/=-_\\".contains(it);
        if !probe.iter().all(is_base64) {
            return;
        }
        self.found.attachments += 1;
        self.found.bytes += string.len() - prefix;
        if let Some(lasts_ms) = sound::lasts_ms(self.text, start + 1) {
            self.found.sounds += 1;
            self.found.sound_ms = self.found.sound_ms.saturating_add(lasts_ms);
        }
    }
}

/// Says where the value of a key leads.
fn led_by(spot: Spot, key: &[u8]) -> Spot {
    match (spot, key) {
        (Spot::Media, b"type") => Spot::Kind,
        (Spot::Message | Spot::Part, b"content") => Spot::Content,
        (
            Spot::Part,
            b"image_url" | b"input_audio" | b"audio_url" | b"video_url" | b"source" | b"file"
            | b"image" | b"audio" | b"video" | b"image_embeds" | b"audio_embeds" | b"file_data"
            | b"file_id" | b"file_url",
        )
        | (Spot::Media, _) => Spot::Media,
        _ => Spot::Other,
    }
}

/// Finds the quote that ends the string whose text starts at `start`, or the end of all. Only quotes are
/// looked for, because texts have far more escapes of other kinds.
fn end_of_string(text: &[u8], start: usize) -> usize {
    let string = text.get(start..).unwrap_or_default();
    let is_escaped = |at: usize| {
        let slashes = string[..at].iter().rev().take_while(|it| **it == b'\\').count();
        slashes % 2 == 1
    };
    let mut quotes = memchr_iter(b'"', string);
    quotes.find(|at| !is_escaped(*at)).map_or(text.len(), |it| start + it)
}
