//! Request lines: Mooncake (with ids of 512-token blocks) and Azure (lengths only), one JSON object per
//! request: `timestamp` in milliseconds, `input_length`, `output_length`, `hash_ids`. There is no
//! session id; in the Mooncake traces every request shares the first block and the second one tells
//! chats apart, so it stands in for one.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::Moment;
use serde::Deserialize;

use super::super::draw;
use super::super::lines::{Lines, TraceError};
use super::super::prompt::{Prompt, Run, Runs, mix, named};
use super::super::request::{Class, Request, Tenant, Ticket};
use super::{UNSHARED_BLOCK_TOKENS, iterate_reader};

const MOONCAKE_BLOCK_TOKENS: NonZeroU32 = NonZeroU32::new(512).expect("not zero");

/// Spaces for ids that no trace numbers: of the block ids, and of sessions that are one request.
const SPACE: u64 = named("mooncake blocks");
const ALONE: u64 = named("lone requests");

#[derive(Deserialize)]
struct RequestLine {
    timestamp: f64,
    input_length: u32,
    output_length: u32,
    #[serde(default)]
    hash_ids: Vec<u32>,
}

pub(in super::super) struct RequestLines {
    lines: Lines,
    requests: u64,
}

impl RequestLines {
    pub(in super::super) fn new(lines: Lines) -> Self {
        Self { lines, requests: 0 }
    }

    fn read(&mut self) -> Result<Option<Request>, TraceError> {
        let Some(line) = self.lines.next_json::<RequestLine>()? else { return Ok(None) };
        self.requests += 1;
        let alone = mix(ALONE, self.requests);
        let prompt = if line.hash_ids.is_empty() {
            Prompt::unshared(alone, line.input_length, UNSHARED_BLOCK_TOKENS)
        } else {
            self.prompt(&line)?
        };
        let session = line.hash_ids.get(1).map_or(alone, |&id| u64::from(id));
        let arrival = self.lines.in_order(Moment::ZERO + draw::seconds(line.timestamp / 1e3))?;
        Ok(Some(lone_request(arrival, session, prompt, line.output_length)))
    }

    fn prompt(&self, line: &RequestLine) -> Result<Prompt, TraceError> {
        let mut runs = Runs::default();
        for &first in &line.hash_ids {
            runs.push(Run { space: SPACE, first, count: 1 });
        }
        let blocks = line.input_length.div_ceil(MOONCAKE_BLOCK_TOKENS.get());
        if runs.blocks() != blocks {
            let problem = format!("{} hash_ids for a prompt of {blocks} blocks", runs.blocks());
            return Err(self.lines.complain(problem));
        }
        Ok(runs.prompt(line.input_length, MOONCAKE_BLOCK_TOKENS))
    }
}

iterate_reader!(RequestLines => Request);

/// Makes a request of which nothing more is known.
pub(in super::super) fn lone_request(
    arrival: Moment,
    session: u64,
    prompt: Prompt,
    output: u32,
) -> Request {
    Request {
        arrival,
        ticket: Ticket::default(),
        tenant: Tenant::default(),
        session,
        stream: 0,
        model: None::<Arc<str>>,
        class: Class::default(),
        deadline: None::<Duration>,
        think: None,
        prompt,
        output_tokens: output,
        next: None,
    }
}
