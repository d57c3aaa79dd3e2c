//! An answer as it arrives: when each piece of text came, and at the end what the engine says it cost.
//! Counts come from the engine's usage figures alone; pieces are only clocks, because an engine may put
//! several tokens into one piece and none into another.

use serde::Deserialize;
use tokio::time::Instant;

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

/// A piece of a completion (`text`) or of a chat (`delta`).
#[derive(Debug, Deserialize)]
struct Choice {
    text: Option<String>,
    delta: Option<Delta>,
    finish_reason: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    role: Option<String>,
    content: Option<String>,
}

impl Choice {
    fn has_text(&self) -> bool {
        let content = self.delta.as_ref().and_then(|it| it.content.as_ref());
        self.text.as_ref().or(content).is_some_and(|it| !it.is_empty())
    }

    fn only_opens(&self) -> bool {
        self.delta.as_ref().is_some_and(|it| it.role.is_some()) && !self.has_text()
    }
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    prompt_tokens_details: Option<Details>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Details {
    cached_tokens: Option<u32>,
}

/// A whole answer, as the client saw it.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) sent_at: Instant,
    /// When each piece came; never empty.
    pub(super) pieces_at: Vec<Instant>,
    pub(super) prompt_tokens: u32,
    /// Not every engine says so.
    pub(super) cached_tokens: Option<u32>,
    pub(super) output_tokens: u32,
}

impl Answer {
    pub(super) fn ttft_ms(&self) -> f64 {
        ms_between(self.sent_at, self.pieces_at[0])
    }

    /// Counts the tokens that a piece stands for, on average, after the first.
    pub(super) fn tokens_per_piece(&self) -> f64 {
        let pieces = u32::try_from(self.pieces_at.len()).unwrap_or(u32::MAX);
        f64::from(self.output_tokens.saturating_sub(1)) / f64::from(pieces.saturating_sub(1).max(1))
    }
}

pub(super) fn ms_between(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}

/// Why the bytes of a replica are no answer to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unusable {
    /// The stream ended early, or is not a stream of events.
    CutOff,
    NoUsage,
    NotOpenAi,
}

/// An answer of which some bytes have come.
#[derive(Debug)]
pub(super) struct Arriving {
    sent_at: Instant,
    /// Bytes of a line that is not whole yet.
    rest: Vec<u8>,
    pieces_at: Vec<Instant>,
    usage: Option<Usage>,
    is_done: bool,
}

impl Arriving {
    pub(super) fn new(sent_at: Instant) -> Self {
        Self { sent_at, rest: Vec::new(), pieces_at: Vec::new(), usage: None, is_done: false }
    }

    /// Takes in the bytes that came at `now`.
    pub(super) fn take(&mut self, bytes: &[u8], now: Instant) -> Result<(), Unusable> {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in lines.split(|it| *it == b'\n') {
            match line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) {
                None => {}
                Some(b"[DONE]") => self.is_done = true,
                Some(data) => {
                    self.note(serde_json::from_slice(data).map_err(|_| Unusable::NotOpenAi)?, now);
                }
            }
        }
        Ok(())
    }

    fn note(&mut self, event: Event, now: Instant) {
        for choice in &event.choices {
            // A token may have no text of its own: half a character, or a mark that is not shown. The
            // end of the stream counts only where it is all there is.
            let is_bare = choice.finish_reason.is_none() && !choice.only_opens();
            let is_only = choice.finish_reason.is_some() && self.pieces_at.is_empty();
            if choice.has_text() || is_bare || is_only {
                self.pieces_at.push(now);
            }
        }
        self.usage = event.usage.or(self.usage);
    }

    pub(super) fn finish(self) -> Result<Answer, Unusable> {
        if !self.is_done || self.pieces_at.is_empty() {
            return Err(Unusable::CutOff);
        }
        let usage = self.usage.ok_or(Unusable::NoUsage)?;
        Ok(Answer {
            sent_at: self.sent_at,
            pieces_at: self.pieces_at,
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.prompt_tokens_details.and_then(|it| it.cached_tokens),
            output_tokens: usage.completion_tokens,
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\
        \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DONE]\n\n";

    /// Lets a second pass before each event.
    fn read(events: &str) -> Result<Answer, Unusable> {
        let start = Instant::now();
        let mut arriving = Arriving::new(start);
        for (event, second) in events.split_inclusive("\n\n").zip(1..) {
            arriving.take(event.as_bytes(), start + Duration::from_secs(second))?;
        }
        arriving.finish()
    }

    fn seconds(answer: &Answer) -> Vec<u64> {
        answer.pieces_at.iter().map(|it| (*it - answer.sent_at).as_secs()).collect()
    }

    #[test]
    fn pieces_of_a_completion_are_clocked_and_tokens_are_the_engine_s() {
        let answer = read(&format!(
            "data: {{\"choices\":[{{\"text\":\"a\",\"finish_reason\":null}}]}}\n\n\
             data: {{\"choices\":[{{\"text\":\"\",\"finish_reason\":null}}]}}\n\n\
             data: {{\"choices\":[{{\"text\":\"\",\"finish_reason\":\"length\"}}]}}\n\n{USAGE}"
        ));
        let answer = answer.unwrap();
        assert_eq!(seconds(&answer), [1, 2]);
        assert_eq!((answer.prompt_tokens, answer.cached_tokens), (9, Some(4)));
        assert!((answer.ttft_ms() - 1_000.0).abs() < 1e-9);
        assert!((answer.tokens_per_piece() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn the_opening_of_a_chat_is_no_token() {
        let answer = read(&format!(
            "data: {{\"choices\":[{{\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}}}}]}}\n\n\
             data: {{\"choices\":[{{\"delta\":{{\"reasoning\":\"hm\"}}}}]}}\n\n\
             data: {{\"choices\":[{{\"delta\":{{\"content\":\"b\"}},\"finish_reason\":\"length\"}}]}}\n\n{USAGE}"
        ));
        assert_eq!(seconds(&answer.unwrap()), [2, 3]);
    }

    #[test]
    fn one_token_without_text_is_still_a_token() {
        let answer = read(&format!(
            "data: {{\"choices\":[{{\"text\":\"\",\"finish_reason\":\"length\"}}]}}\n\n{USAGE}"
        ));
        assert_eq!(seconds(&answer.unwrap()), [1]);
    }

    #[test]
    fn what_cannot_be_measured_says_why() {
        let piece = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
        assert_eq!(read(piece).unwrap_err(), Unusable::CutOff);
        assert_eq!(read(&format!("{piece}data: [DONE]\n\n")).unwrap_err(), Unusable::NoUsage);
        assert_eq!(read("data: nonsense\n\n").unwrap_err(), Unusable::NotOpenAi);
    }
}
