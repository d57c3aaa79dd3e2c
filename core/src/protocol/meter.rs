//! What is noted of an answer while it passes: how many bytes and events, whether it broke off inside of
//! one, whether it has had content, and the engine's own figures of what it cost. Nothing is held back,
//! and of all that passes only the figures are kept.
//!
//! An event of a stream is walked through only if it speaks of usage at all, which a search for that word
//! tells. An event that comes in several pieces is walked through as they come.

use memchr::{memchr, memchr_iter, memmem};

use super::Api;
use super::content::{DATA, FirstContent, SseLine};
use super::usage::{UsagePlace, Walk, read};
use crate::domain::Usage;

/// What an event with figures holds.
const MARK: &[u8] = b"\"usage\"";

#[derive(Debug)]
pub struct Meter {
    figures: Figures,
    bytes: u64,
    events: u64,
    /// Whether the line now being received has anything on it.
    in_line: bool,
    /// Whether the event now being received has anything in it.
    in_event: bool,
}

/// How figures are looked for.
#[derive(Debug)]
enum Figures {
    /// There are none that could be believed.
    None,
    /// In one JSON object, which is the answer.
    Whole(Walk),
    /// In the events of a stream.
    Events(Box<Stream>),
}

#[derive(Debug)]
struct Stream {
    first: FirstContent,
    /// Looks for the word for figures.
    mark: memmem::Finder<'static>,
    walk: Walk,
    line: SseLine,
    /// Whether the event now being received has had a line of data. More than one make no object.
    had_data: bool,
    /// The latest figures at the top level of an event.
    late: Vec<u8>,
    /// The latest figures in the object that the API names.
    within: Vec<u8>,
}

impl Meter {
    /// Reads no figures: for an answer that is not there yet, or whose figures mean nothing.
    pub const fn blind() -> Self {
        Self { figures: Figures::None, bytes: 0, events: 0, in_line: false, in_event: false }
    }

    /// Reads a good answer of `api`, in one piece or as a stream of events.
    pub fn new(api: Api, stream: bool) -> Self {
        let figures = match (api, stream) {
            (Api::Other, _) => Figures::None,
            (_, false) => Figures::Whole(Walk::new(UsagePlace::WHOLE)),
            (_, true) => Figures::Events(Box::new(Stream::new(api))),
        };
        Self { figures, ..Self::blind() }
    }

    pub fn on_chunk(&mut self, chunk: &[u8]) {
        self.bytes = self.bytes.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        let speaks = match &mut self.figures {
            Figures::None => false,
            Figures::Whole(walk) => {
                walk.on_piece(chunk);
                false
            }
            Figures::Events(stream) => {
                if !stream.first.is_seen() {
                    stream.first.on_chunk(chunk);
                }
                let speaks = stream.speaks_of_usage(chunk);
                // As nearly all of a stream comes: nothing to be read, nothing left over.
                if !speaks
                    && !self.in_event
                    && stream.line == SseLine::Begins(0)
                    && is_one_event(chunk)
                {
                    self.events += 1;
                    return;
                }
                speaks
            }
        };
        self.count(chunk, speaks);
    }

    /// Bytes received.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Events received whole.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Tells whether this is a stream that can be read and that has had no content so far. Of any other
    /// answer the first byte is all that can be waited for.
    pub const fn awaits_content(&self) -> bool {
        match &self.figures {
            Figures::Events(stream) => !stream.first.is_seen(),
            Figures::None | Figures::Whole(_) => false,
        }
    }

    /// Waits for content once more, because another replica goes on from here.
    pub fn await_content(&mut self) {
        if let Figures::Events(stream) = &mut self.figures {
            stream.first.look_again();
        }
    }

    /// Events received whole since the first content, that one included. Where content cannot be told, one
    /// event is taken to come before it.
    pub const fn content_events(&self) -> u64 {
        let empty = match &self.figures {
            Figures::Events(stream) => stream.first.empty_events(),
            Figures::None | Figures::Whole(_) => 1,
        };
        self.events.saturating_sub(empty)
    }

    /// Tells whether the answer so far ends inside an event.
    pub const fn is_mid_event(&self) -> bool {
        self.in_event
    }

    /// Reads what the engine said of the cost; later figures win.
    pub fn usage(&self) -> Usage {
        match &self.figures {
            Figures::None => Usage::default(),
            Figures::Whole(walk) => walk.found().map_or_else(Usage::default, |it| read(&it.top)),
            Figures::Events(stream) => {
                let (early, late) = (read(&stream.within), read(&stream.late));
                Usage {
                    input: late.input.or(early.input),
                    output: late.output.or(early.output),
                    cached: late.cached.or(early.cached),
                }
            }
        }
    }

    /// An event ends with an empty line; lines end with LF or CRLF. `speaks` tells whether the chunk
    /// holds the word for figures.
    fn count(&mut self, chunk: &[u8], speaks: bool) {
        let mut start = 0;
        for end in memchr_iter(b'\n', chunk) {
            self.on_text(&chunk[start..end], speaks, true);
            if !self.in_line {
                self.events += u64::from(self.in_event);
                self.in_event = false;
                if let Figures::Events(stream) = &mut self.figures {
                    stream.had_data = false;
                }
            }
            self.in_line = false;
            start = end + 1;
        }
        self.on_text(&chunk[start..], speaks, false);
    }

    /// Takes in some of a line, or the rest of it.
    fn on_text(&mut self, text: &[u8], speaks: bool, ends: bool) {
        if !text.is_empty() && text != b"\r" {
            self.in_line = true;
            self.in_event = true;
        }
        if let Figures::Events(stream) = &mut self.figures {
            stream.on_text(text, speaks, ends);
        }
    }
}

/// Tells whether the chunk is one event of one line of data, and nothing else.
fn is_one_event(chunk: &[u8]) -> bool {
    let line = chunk.strip_suffix(b"\n\n");
    line.is_some_and(|it| it.starts_with(DATA) && memchr(b'\n', it).is_none())
}

impl Stream {
    fn new(api: Api) -> Self {
        let (mark, walk) = (memmem::Finder::new(MARK), Walk::new(UsagePlace::of_event(api)));
        let (late, within) = (Vec::new(), Vec::new());
        let (first, line) = (FirstContent::default(), SseLine::Begins(0));
        Self { first, mark, walk, line, had_data: false, late, within }
    }

    /// Tells whether an object with figures may begin in the chunk. In streams that end with figures
    /// every other event says that it has none.
    fn speaks_of_usage(&self, chunk: &[u8]) -> bool {
        let mut from = 0;
        while let Some(at) = self.mark.find(&chunk[from..]) {
            let end = from + at + MARK.len();
            let rest = chunk[end..].trim_ascii_start();
            let value = rest.strip_prefix(b":").map(<[u8]>::trim_ascii_start);
            if rest.is_empty() || value.is_some_and(|it| it.is_empty() || it.starts_with(b"{")) {
                return true;
            }
            // In a text that is no JSON, the quote at the end may begin the word once more.
            from = end - 1;
        }
        false
    }

    /// Takes in some of a line, or the rest of it. A line that comes whole is walked through only if
    /// its chunk speaks of figures.
    fn on_text(&mut self, text: &[u8], speaks: bool, ends: bool) {
        let has_begun = !matches!(self.line, SseLine::Begins(_));
        let text = self.line.on_text(text);
        if !has_begun && self.line == SseLine::Data {
            self.line = self.begin_data(speaks || !ends);
        }
        if self.line == SseLine::Data {
            self.walk.on_piece(text);
        }
        if ends {
            self.end_line();
        }
    }

    fn begin_data(&mut self, is_read: bool) -> SseLine {
        let goes_on = std::mem::replace(&mut self.had_data, true);
        if goes_on || !is_read {
            return SseLine::Other;
        }
        self.walk.reset();
        SseLine::Data
    }

    fn end_line(&mut self) {
        let line = std::mem::replace(&mut self.line, SseLine::Begins(0));
        let Some(found) = self.walk.found().filter(|_| line == SseLine::Data) else { return };
        if !found.top.is_empty() {
            self.late.clone_from(&found.top);
        }
        if !found.within.is_empty() {
            self.within.clone_from(&found.within);
        }
    }
}

#[cfg(test)]
mod tests;
