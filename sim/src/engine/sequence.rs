//! One job on its way through the engine, and the slots that jobs live in. A sequence knows its
//! tokens and blocks; what happens to it when is `schedule`'s business.

use std::sync::Arc;

use cleave_core::domain::Moment;

use super::kv::{BlockId, KvPool};

/// What an engine is asked to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    pub id: u64,
    /// Names the blocks of prompt and answer in order. Each hash covers its block and all before it,
    /// so equal hashes mean equal prefixes. The list may end early; blocks beyond it are never shared.
    /// The answer's blocks belong into it so that the next turn of a conversation finds them.
    pub block_hashes: Arc<[u64]>,
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Leading tokens whose keys and values are handed over with the job, as from a store that all
    /// replicas share; they are not computed.
    pub given_tokens: u32,
}

/// Something a job's owner wants to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Output {
    pub id: u64,
    pub at: Moment,
    pub event: Event,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    FirstToken {
        cached_tokens: u32,
    },
    Token,
    /// Follows the last token, at the same moment.
    Finished {
        cached_tokens: u32,
        preemptions: u32,
    },
}

#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) job: Job,
    /// Tokens whose keys and values are in the cache, or will be at the end of the step.
    pub(super) computed_tokens: u32,
    pub(super) generated_tokens: u32,
    /// Tokens the first admission found in the cache.
    pub(super) cached_tokens: u32,
    pub(super) preemptions: u32,
    pub(super) blocks: Vec<BlockId>,
    named_blocks: usize,
}

impl Sequence {
    /// Takes a job in. An engine always computes something and always answers something, so both
    /// counts are at least one.
    pub(super) fn new(mut job: Job) -> Self {
        job.prompt_tokens = job.prompt_tokens.max(1);
        job.output_tokens = job.output_tokens.max(1);
        Self {
            job,
            computed_tokens: 0,
            generated_tokens: 0,
            cached_tokens: 0,
            preemptions: 0,
            blocks: Vec::new(),
            named_blocks: 0,
        }
    }

    /// Counts the tokens that will lie in the cache at the end; the last one is never fed back.
    pub(super) fn tokens_at_end(&self) -> u64 {
        u64::from(self.job.prompt_tokens) + u64::from(self.job.output_tokens) - 1
    }

    pub(super) fn known_tokens(&self) -> u32 {
        self.job.prompt_tokens + self.generated_tokens
    }

    pub(super) fn missing_tokens(&self) -> u32 {
        self.known_tokens() - self.computed_tokens
    }

    /// Says whether all known tokens are computed, so that the step yields the next one.
    pub(super) fn is_computed(&self) -> bool {
        self.missing_tokens() == 0
    }

    pub(super) fn held_blocks(&self) -> u32 {
        u32::try_from(self.blocks.len()).expect("block ids are 32 bits")
    }

    /// Returns the hashes of the blocks that may come from the cache: full ones, and never all
    /// tokens, because the step that yields the next token needs one to compute.
    pub(super) fn shareable_prefix(&self, block_tokens: u32) -> &[u64] {
        let full = usize::try_from((self.known_tokens() - 1) / block_tokens).unwrap_or(usize::MAX);
        &self.job.block_hashes[..full.min(self.job.block_hashes.len())]
    }

    /// Holds the leading `count` blocks, found in the cache; `tokens` need not be computed.
    pub(super) fn take_prefix(&mut self, kv: &mut KvPool, count: u32, tokens: u32) {
        let count = usize::try_from(count).expect("fewer blocks than hashes");
        for hash in &self.job.block_hashes[..count] {
            self.blocks.push(kv.hold(*hash).expect("the prefix was found"));
        }
        self.named_blocks = count;
        self.computed_tokens = tokens;
        if self.preemptions == 0 {
            self.cached_tokens = tokens;
        }
    }

    /// Makes every full block with a name known to the cache.
    pub(super) fn name_full_blocks(&mut self, kv: &mut KvPool, block_tokens: u32) {
        let full = usize::try_from(self.computed_tokens / block_tokens).unwrap_or(usize::MAX);
        let last = full.min(self.job.block_hashes.len());
        for at in self.named_blocks..last {
            kv.name(self.blocks[at], self.job.block_hashes[at]);
        }
        self.named_blocks = self.named_blocks.max(last);
    }

    /// Gives all blocks back, the last one first, so that the end of a prompt is forgotten before its
    /// beginning: a prefix without its head is worthless.
    pub(super) fn release(&mut self, kv: &mut KvPool) {
        for block in self.blocks.drain(..).rev() {
            kv.release(block);
        }
    }

    pub(super) fn preempt(&mut self, kv: &mut KvPool) {
        self.release(kv);
        self.computed_tokens = 0;
        self.named_blocks = 0;
        self.preemptions += 1;
    }
}

/// Places for sequences, numbered and reused.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<Sequence>>,
    empty: Vec<u32>,
}

impl Slots {
    pub(super) fn insert(&mut self, sequence: Sequence) -> u32 {
        let slot = self.empty.pop().unwrap_or_else(|| {
            self.slots.push(None);
            u32::try_from(self.slots.len() - 1).expect("fewer than 2^32 jobs at once")
        });
        self.slots[index(slot)] = Some(sequence);
        slot
    }

    pub(super) fn remove(&mut self, slot: u32) -> Sequence {
        self.empty.push(slot);
        self.slots[index(slot)].take().expect("the slot is taken")
    }

    pub(super) fn is_taken(&self, slot: u32) -> bool {
        self.slots[index(slot)].is_some()
    }

    pub(super) fn get(&self, slot: u32) -> &Sequence {
        self.slots[index(slot)].as_ref().expect("the slot is taken")
    }

    pub(super) fn get_mut(&mut self, slot: u32) -> &mut Sequence {
        self.slots[index(slot)].as_mut().expect("the slot is taken")
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Sequence> {
        self.slots.iter().flatten()
    }
}

/// Widens a number of a slot or block for indexing.
#[expect(clippy::as_conversions, reason = "usize has at least 32 bits wherever an engine runs")]
pub(super) fn index(at: u32) -> usize {
    at as usize
}
