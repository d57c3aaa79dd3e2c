//! What is noted of an answer while it passes: how many events, whether it broke off inside one, and
//! a little of its start and end, where the engine reports its usage. Nothing is parsed until the
//! answer is over, and nothing is held back.

use memchr::memchr_iter;

use super::Api;
use crate::domain::Usage;

const HEAD_BYTES: usize = 1024;
const TAIL_BYTES: usize = 1024;

#[derive(Debug)]
pub struct Meter {
    /// Kept only where the API reports something there.
    head_bytes: usize,
    head: Vec<u8>,
    /// Between one and two times `TAIL_BYTES`, so that most pieces are just appended.
    tail: Vec<u8>,
    events: u64,
    /// Whether the line now being received has anything on it.
    in_line: bool,
    /// Whether the event now being received has anything in it.
    in_event: bool,
}

impl Meter {
    pub fn new(api: Api) -> Self {
        let head_bytes = if api == Api::Messages { HEAD_BYTES } else { 0 };
        let (head, tail) = (Vec::new(), Vec::new());
        Self { head_bytes, head, tail, events: 0, in_line: false, in_event: false }
    }

    pub fn on_chunk(&mut self, chunk: &[u8]) {
        self.count(chunk);
        if self.head.len() < self.head_bytes {
            let room = self.head_bytes - self.head.len();
            self.head.extend_from_slice(&chunk[..chunk.len().min(room)]);
        }
        let kept = &chunk[chunk.len().saturating_sub(TAIL_BYTES)..];
        if kept.len() == TAIL_BYTES {
            self.tail.clear();
        } else if 2 * TAIL_BYTES < self.tail.len() + kept.len() {
            self.tail.drain(..self.tail.len() - TAIL_BYTES);
        }
        self.tail.extend_from_slice(kept);
    }

    /// Events received whole.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// Tells whether the answer so far ends inside an event.
    pub const fn is_mid_event(&self) -> bool {
        self.in_event
    }

    pub fn usage(&self) -> Usage {
        Usage::read(&self.head, &self.tail)
    }

    /// An event ends with an empty line; lines end with LF or CRLF.
    fn count(&mut self, chunk: &[u8]) {
        let mut start = 0;
        for end in memchr_iter(b'\n', chunk) {
            self.on_text(&chunk[start..end]);
            if !self.in_line {
                self.events += u64::from(self.in_event);
                self.in_event = false;
            }
            self.in_line = false;
            start = end + 1;
        }
        self.on_text(&chunk[start..]);
    }

    fn on_text(&mut self, text: &[u8]) {
        if !text.is_empty() && text != b"\r" {
            self.in_line = true;
            self.in_event = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn metered(chunks: &[&[u8]]) -> Meter {
        let mut meter = Meter::new(Api::Messages);
        for chunk in chunks {
            meter.on_chunk(chunk);
        }
        meter
    }

    #[test]
    fn events_are_counted_across_chunks_and_line_endings() {
        let check = |chunks: &[&[u8]], events, mid_event| {
            let meter = metered(chunks);
            assert_eq!((meter.events(), meter.is_mid_event()), (events, mid_event), "{chunks:?}");
        };
        check(&[], 0, false);
        check(&[b"data: 1\n\ndata: 2\n\n"], 2, false);
        check(&[b"data: 1\n", b"\nda", b"ta: 2\n"], 1, true);
        check(&[b"event: x\r\ndata: 1\r", b"\n\r", b"\n"], 1, false);
        check(&[b"\n\n\n\n: hi\n\n\n"], 1, false);
    }

    #[test]
    fn usage_is_found_at_the_end_of_a_long_answer() {
        let filler = vec![b'x'; 100_000];
        let end = br#","usage":{"prompt_tokens":3,"completion_tokens":4}}"#;
        let meter = metered(&[&filler, &filler, &end[..20], &end[20..]]);
        let usage = meter.usage();
        assert_eq!((usage.input, usage.output), (Some(3), Some(4)));
    }

    proptest! {
        #[test]
        fn what_is_kept_is_bounded_and_the_cut_does_not_matter(
            text in prop::collection::vec(prop::sample::select(b"\r\nx".to_vec()), 0..6000),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..20),
        ) {
            let mut cuts: Vec<usize> = cuts.iter().map(|it| it.index(text.len() + 1)).collect();
            cuts.extend([0, text.len()]);
            cuts.sort_unstable();
            let mut meter = Meter::new(Api::Messages);
            for pair in cuts.windows(2) {
                meter.on_chunk(&text[pair[0]..pair[1]]);
                prop_assert!(meter.tail.len() <= 2 * TAIL_BYTES && meter.head.len() <= HEAD_BYTES);
            }
            prop_assert!(text.ends_with(&meter.tail) && text.starts_with(&meter.head));
            prop_assert!(TAIL_BYTES.min(text.len()) <= meter.tail.len());
            if !text.contains(&b'\r') {
                let whole = metered(&[&text]);
                prop_assert_eq!(whole.events(), meter.events());
                prop_assert_eq!(whole.is_mid_event(), meter.is_mid_event());
            }
        }
    }
}
