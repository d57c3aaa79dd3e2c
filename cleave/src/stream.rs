//! A streamed answer as it arrives, for the commands that are clients: its text, when each piece came,
//! and at the end what the engine says it cost. Counts come from the engine's usage figures alone; pieces are only clocks, because an engine may put
//! several tokens into one piece and none into another.

use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::Deserialize;
use thiserror::Error;
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
    fn words(&self) -> &str {
        let content = self.delta.as_ref().and_then(|it| it.content.as_deref());
        self.text.as_deref().or(content).unwrap_or_default()
    }

    fn only_opens(&self) -> bool {
        self.delta.as_ref().is_some_and(|it| it.role.is_some()) && self.words().is_empty()
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
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) sent_at: Instant,
    /// When each piece came; never empty.
    pub(crate) pieces_at: Vec<Instant>,
    pub(crate) prompt_tokens: u32,
    /// Not every engine says so.
    pub(crate) cached_tokens: Option<u32>,
    pub(crate) output_tokens: u32,
}

impl Answer {
    pub(crate) fn ttft(&self) -> Duration {
        self.pieces_at[0].saturating_duration_since(self.sent_at)
    }

    pub(crate) fn ttft_ms(&self) -> f64 {
        ms_between(self.sent_at, self.pieces_at[0])
    }

    /// Counts the tokens that a piece stands for, on average, after the first.
    pub(crate) fn tokens_per_piece(&self) -> f64 {
        let pieces = u32::try_from(self.pieces_at.len()).unwrap_or(u32::MAX);
        f64::from(self.output_tokens.saturating_sub(1)) / f64::from(pieces.saturating_sub(1).max(1))
    }
}

pub(crate) fn ms_between(from: Instant, to: Instant) -> f64 {
    to.saturating_duration_since(from).as_secs_f64() * 1e3
}

/// Why the bytes of a replica are no answer to measure.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum Unusable {
    /// The stream ended early, or is not a stream of events.
    #[error("the replica broke off an answer; look into its log")]
    CutOff,
    #[error(
        "the answer's stream reports no usage, so its tokens are unknown; use an engine that knows \
         stream_options.include_usage"
    )]
    NoUsage,
    #[error("the answer is no OpenAI stream; give the address of the engine itself")]
    NotOpenAi,
}

/// Reads a body to its end and clocks it.
pub(crate) async fn listen(mut body: Incoming, sent_at: Instant) -> Result<Answer, Unusable> {
    let mut arriving = Arriving::new(sent_at);
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|_| Unusable::CutOff)?;
        if let Ok(data) = frame.into_data() {
            arriving.take(&data, Instant::now())?;
        }
    }
    arriving.finish()
}

/// An answer of which some bytes have come.
#[derive(Debug)]
struct Arriving {
    sent_at: Instant,
    /// Bytes of a line that is not whole yet.
    rest: Vec<u8>,
    text: String,
    pieces_at: Vec<Instant>,
    usage: Option<Usage>,
    /// Whether its end was told, by a reason to finish or by `[DONE]`, which not every engine sends.
    is_done: bool,
}

impl Arriving {
    fn new(sent_at: Instant) -> Self {
        Self {
            sent_at,
            rest: Vec::new(),
            text: String::new(),
            pieces_at: Vec::new(),
            usage: None,
            is_done: false,
        }
    }

    /// Takes in the bytes that came at `now`.
    fn take(&mut self, bytes: &[u8], now: Instant) -> Result<(), Unusable> {
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
            self.is_done |= choice.finish_reason.is_some();
            self.text.push_str(choice.words());
            if !choice.words().is_empty() || is_bare || is_only {
                self.pieces_at.push(now);
            }
        }
        self.usage = event.usage.or(self.usage);
    }

    /// Ends an answer whose body came to its proper end.
    fn finish(self) -> Result<Answer, Unusable> {
        if !self.is_done || self.pieces_at.is_empty() {
            return Err(Unusable::CutOff);
        }
        let usage = self.usage.ok_or(Unusable::NoUsage)?;
        Ok(Answer {
            text: self.text,
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
        let answer = answer.unwrap();
        assert_eq!(seconds(&answer), [2, 3]);
        assert_eq!((answer.text.as_str(), answer.ttft()), ("b", Duration::from_secs(2)));
    }

    #[test]
    fn an_answer_reads_the_same_however_it_is_cut() {
        let stream = format!(
            "data: {{\"choices\":[{{\"delta\":{{\"content\":\"Lorem\"}}}}]}}\n\n\
             data: {{\"choices\":[{{\"delta\":{{\"content\":\" ipsum\"}}}}]}}\n\n{USAGE}"
        );
        for piece in [1, 7, 64, stream.len()] {
            let start = Instant::now();
            let mut arriving = Arriving::new(start);
            for bytes in stream.as_bytes().chunks(piece) {
                arriving.take(bytes, start).unwrap();
            }
            let answer = arriving.finish().unwrap();
            assert_eq!((answer.text.as_str(), answer.cached_tokens), ("Lorem ipsum", Some(4)));
        }
    }

    #[test]
    fn one_token_without_text_is_still_a_token() {
        let answer = read(&format!(
            "data: {{\"choices\":[{{\"text\":\"\",\"finish_reason\":\"length\"}}]}}\n\n{USAGE}"
        ));
        assert_eq!(seconds(&answer.unwrap()), [1]);
    }

    #[test]
    fn an_answer_that_gave_its_reason_to_finish_is_whole_without_done() {
        let answer = read(
            "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":\"stop\"}],\
             \"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n",
        );
        assert_eq!(answer.unwrap().text, "a");
    }

    #[test]
    fn what_cannot_be_measured_says_why() {
        let piece = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";
        assert_eq!(read(piece).unwrap_err(), Unusable::CutOff);
        assert_eq!(read(&format!("{piece}data: [DONE]\n\n")).unwrap_err(), Unusable::NoUsage);
        assert_eq!(read("data: nonsense\n\n").unwrap_err(), Unusable::NotOpenAi);
    }
}
