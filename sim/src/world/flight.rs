//! One request on its way through the world.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use cleave_core::domain::Moment;

use crate::engine::{EngineSettings, Job};
use crate::measure::{End, Ended, Exposure, Prefill};
use crate::traces::{Class, Prompt, Tenant, Ticket};
use crate::work;

#[derive(Debug)]
pub(super) struct Flight {
    pub(super) ticket: Ticket,
    pub(super) tenant: Tenant,
    pub(super) class: Class,
    pub(super) arrival: Moment,
    pub(super) deadline: Option<Duration>,
    pub(super) hashes: Arc<[u64]>,
    /// What goes on where its answer ends.
    pub(super) next: Option<Arc<Prompt>>,
    pub(super) prompt_tokens: u32,
    pub(super) output_tokens: u32,
    /// Whether its answer comes piece by piece, or whole at its end.
    pub(super) streams: bool,
    /// Tokens that some cache had when it was sent, and that were ever sent before it.
    pub(super) anywhere_tokens: u32,
    pub(super) seen_tokens: u32,
    pub(super) asked_ms: f64,
    pub(super) router: usize,
    /// Where it is; nowhere between two tries.
    pub(super) replica: Option<usize>,
    pub(super) tries: u32,
    /// When it was first sent anywhere.
    pub(super) sent: Option<Moment>,
    /// Whether it could not be in time when it was sent.
    pub(super) in_vain: bool,
    /// When the engine wrote it. Of an answer that does not stream the router learns it at the end.
    pub(super) first_token: Option<Moment>,
    /// What the first token found in the cache.
    pub(super) cached_tokens: u32,
    pub(super) exposure: Exposure,
}

impl Flight {
    pub(super) fn job(&self, id: u64, block_tokens: NonZeroU32) -> Job {
        Job {
            id,
            block_hashes: self.named_blocks(block_tokens),
            prompt_tokens: self.prompt_tokens,
            output_tokens: self.output_tokens,
            given_tokens: 0,
        }
    }

    /// Names the blocks of prompt and answer, as far as it is known what follows.
    fn named_blocks(&self, block_tokens: NonZeroU32) -> Arc<[u64]> {
        let Some(next) = &self.next else { return Arc::clone(&self.hashes) };
        let tokens = self.prompt_tokens.saturating_add(self.output_tokens) - 1;
        let blocks = usize::try_from(tokens / block_tokens).unwrap_or(usize::MAX);
        let longer: Vec<u64> = next.hashes(block_tokens).take(blocks).collect();
        // What follows begins with this prompt, or it says nothing about the answer.
        let goes_on = longer.starts_with(&self.hashes);
        if goes_on { longer.into() } else { Arc::clone(&self.hashes) }
    }

    /// Tells whether the router has seen anything of the answer; then it cannot go elsewhere.
    pub(super) fn has_shown(&self) -> bool {
        self.streams && self.first_token.is_some()
    }

    /// Tells whether its deadline cannot be kept by an engine that has nothing else to do and finds all
    /// of the prompt that was ever sent.
    pub(super) fn is_too_late(&self, now: Moment, engine: &EngineSettings) -> bool {
        let (seen, new) = (self.seen_tokens, self.prompt_tokens - self.seen_tokens);
        let alone_ms = work::alone_ms(&engine.times, engine.batched_tokens_max, new, seen);
        let alone = Duration::try_from_secs_f64(alone_ms / 1e3).unwrap_or(Duration::MAX);
        self.deadline.is_some_and(|it| self.arrival + it < now + alone)
    }

    pub(super) fn prefill(&self) -> Prefill {
        Prefill {
            prompt: self.prompt_tokens,
            cached: self.cached_tokens,
            anywhere: self.anywhere_tokens,
            seen: self.seen_tokens,
        }
    }

    pub(super) fn ended(&self, end: End) -> Ended {
        Ended {
            tenant: self.tenant,
            class: self.class,
            sent: self.sent,
            in_vain: self.in_vain,
            arrival: self.arrival,
            first_token: self.first_token,
            deadline: self.deadline,
            output_tokens: self.output_tokens,
            asked_ms: self.asked_ms,
            fault: self.exposure,
            end,
        }
    }
}
