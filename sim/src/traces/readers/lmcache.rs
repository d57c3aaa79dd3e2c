//! `LMCache` agent runs, one JSON object per call, calls of a session one after another. Two published
//! shapes: `timestamp`, `input` and `output` as text, `session_id` (the agent-trace repository; seconds,
//! milliseconds or microseconds), and `session_id`, `model`, `input` as messages, `output_length`,
//! `pre_gap` in seconds (the agentic-traces data set). The text itself is not kept: its JSON bytes are
//! cut into blocks of 16 tokens at four bytes each and hashed, so lengths are estimates and
//! prefixes are exact to the block.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use twox_hash::XxHash3_64;

use super::super::draw;
use super::super::lines::{Lines, TraceError};
use super::super::prompt::{Prompt, mix, named};
use super::super::request::{Session, Turn};
use super::chain::Chain;
use super::iterate_reader;
use super::names::Names;

const BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(16).expect("not zero");
const TOKEN_BYTES: usize = 4;
const SESSIONS: u64 = named("lmcache sessions");

#[derive(Deserialize)]
struct LmCacheLine<'a> {
    session_id: String,
    model: Option<String>,
    timestamp: Option<f64>,
    pre_gap: Option<f64>,
    #[serde(borrow)]
    input: &'a RawValue,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    output_length: Option<u32>,
}

pub(in super::super) struct LmCache {
    lines: Lines,
    chain: Chain,
    models: Names,
    sessions: u64,
    /// The first call of the next session, read to find the end of this one.
    next: Option<Call>,
}

struct Call {
    session: String,
    model: Option<Arc<str>>,
    seconds: Option<f64>,
    gap: Option<f64>,
    prompt: Prompt,
    output_tokens: u32,
}

impl LmCache {
    pub(in super::super) fn new(lines: Lines) -> Self {
        Self { lines, chain: Chain::default(), models: Names::default(), sessions: 0, next: None }
    }

    fn read(&mut self) -> Result<Option<Session>, TraceError> {
        let Some(mut call) = self.next.take().map_or_else(|| self.call(), |call| Ok(Some(call)))?
        else {
            return Ok(None);
        };
        self.sessions += 1;
        let mut session = Session { id: mix(SESSIONS, self.sessions), ..Session::default() };
        let name = call.session.clone();
        let mut at = Duration::ZERO;
        let mut before: Option<(u32, Option<f64>)> = None;
        loop {
            let between = before.and_then(|(_, then)| Some(call.seconds? - then?));
            let think = draw::seconds(call.gap.or(between).unwrap_or(0.0));
            at += think;
            session.timed |= between.is_some();
            let mut turn = Turn::new(at, think, call.prompt, call.output_tokens);
            turn.model = call.model;
            let after: Vec<u32> = before.into_iter().map(|(turn, _)| turn).collect();
            before = Some((session.push(turn, &after), call.seconds));
            match self.call()? {
                Some(next) if next.session == name => call = next,
                other => {
                    self.next = other;
                    return Ok(Some(session));
                }
            }
        }
    }

    fn call(&mut self) -> Result<Option<Call>, TraceError> {
        if !self.lines.advance()? {
            return Ok(None);
        }
        let line: LmCacheLine<'_> = self.lines.json()?;
        let text = opened(line.input);
        let tokens = text.len().div_ceil(TOKEN_BYTES);
        let block_bytes = TOKEN_BYTES * 16;
        // Only whole blocks: the end of an unfinished one would change with the next turn.
        let blocks = text.chunks_exact(block_bytes).map(XxHash3_64::oneshot);
        let runs = self.chain.runs(blocks);
        let runs = runs.ok_or_else(|| self.lines.complain("more blocks than can be numbered"))?;
        let tokens = u32::try_from(tokens).map_err(|problem| self.lines.complain(problem))?;
        let answer = line.output.map_or(0, |output| opened(output).len().div_ceil(TOKEN_BYTES));
        let output = line.output_length.unwrap_or(u32::try_from(answer).unwrap_or(u32::MAX));
        Ok(Some(Call {
            session: line.session_id,
            model: line.model.map(|name| self.models.get(&name)),
            seconds: line.timestamp.map(in_seconds),
            gap: line.pre_gap,
            prompt: runs.prompt(tokens, BLOCK_TOKENS),
            output_tokens: output.max(1),
        }))
    }
}

/// The bytes of a JSON string or list without what opens and closes it, so that a longer one
/// begins with a shorter one.
fn opened(value: &RawValue) -> &[u8] {
    let bytes = value.get().as_bytes();
    bytes.get(1..bytes.len().saturating_sub(1)).unwrap_or_default()
}

/// Tells seconds, milliseconds and microseconds of the Unix clock apart by their size.
fn in_seconds(timestamp: f64) -> f64 {
    match timestamp {
        micros if 1e14 < micros => micros / 1e6,
        millis if 1e11 < millis => millis / 1e3,
        seconds => seconds,
    }
}

iterate_reader!(LmCache => Session);
