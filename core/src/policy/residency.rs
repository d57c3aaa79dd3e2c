//! What a policy believes to lie in each replica's cache: what it sent there, forgotten as the
//! replica's KV memory says, where the engine tells how large that is. Rules that learn residency
//! from engine events are given this estimate too; none sees the truth. Blocks are those of the
//! request's outline, whatever a peer's own tree or block size is.

use crate::domain::{Outline, PromptTail, ReplicaId};
use crate::prefix::PrefixIndex;

use super::{Ask, Candidate};

/// What one policy may remember of all replicas together.
pub const BYTES_MAX: usize = 128 << 20;

/// How much a replica is believed to keep when its engine does not tell: llm-d's 31,250 blocks of 64.
const KV_TOKENS_UNKNOWN: u64 = 31_250 * 64;

#[derive(Debug)]
pub struct Residency {
    index: PrefixIndex,
    /// How many times its KV memory a replica is believed to keep; `None` for no limit of its own.
    kv_times: Option<u64>,
    depths: Vec<u32>,
}

impl Residency {
    /// Believes that a replica keeps what fits into its KV memory, `times` over.
    pub fn of_kv(times: u64) -> Self {
        Self { index: PrefixIndex::new(BYTES_MAX), kv_times: Some(times), depths: Vec::new() }
    }

    /// Believes that a replica keeps whatever this router remembers.
    pub fn boundless() -> Self {
        Self { index: PrefixIndex::new(BYTES_MAX), kv_times: None, depths: Vec::new() }
    }

    /// Looks the prompt up for all candidates; [`Self::blocks`] then tells.
    pub fn look_up(&mut self, ask: &Ask<'_>, candidates: &[Candidate]) {
        let ids = candidates.iter().map(|it| it.id);
        self.index.look_up(&ask.outline.blocks, ids, &mut self.depths);
    }

    /// Counts the leading blocks that the candidate at that position holds.
    pub fn blocks(&self, position: usize) -> usize {
        self.depths.get(position).and_then(|it| usize::try_from(*it).ok()).unwrap_or(0)
    }

    /// Counts the most leading blocks that any candidate holds.
    pub fn blocks_max(&self) -> usize {
        (0..self.depths.len()).map(|it| self.blocks(it)).max().unwrap_or(0)
    }

    /// Finds the replica that holds most of the prompt, candidate or not.
    pub fn deepest(&mut self, ask: &Ask<'_>) -> Option<(ReplicaId, usize)> {
        let (replica, blocks) = self.index.deepest(&ask.outline.blocks)?;
        Some((replica, usize::try_from(blocks).ok()?))
    }

    /// Counts the tokens a replica holds of anything.
    pub fn held_tokens(&self, outline: &Outline, replica: ReplicaId) -> u64 {
        let held = u64::try_from(self.index.held(replica)).unwrap_or(u64::MAX);
        held.saturating_mul(u64::from(outline.block_tokens))
    }

    /// Notes where the prompt goes; returns how many leading blocks of it were there already.
    pub fn on_sent(&mut self, ask: &Ask<'_>, to: &Candidate) -> usize {
        let blocks = &ask.outline.blocks;
        let before = self.index.depth(blocks, to.id);
        if !blocks.is_empty() {
            self.index.remember(to.id, blocks, self.room_blocks(ask.outline.block_tokens, to));
        }
        before
    }

    /// Notes what another router says was sent to a replica; `false` where the beginning of it is not known here.
    pub fn on_heard(&mut self, chain: &PromptTail, block_tokens: u32, to: &Candidate) -> bool {
        let Some(blocks) = self.index.whole(chain) else { return false };
        if !blocks.is_empty() {
            self.index.remember(to.id, &blocks, self.room_blocks(block_tokens, to));
        }
        true
    }

    /// What is believed of all caches, to tell other routers.
    pub const fn index(&mut self) -> &mut PrefixIndex {
        &mut self.index
    }

    pub fn forget(&mut self, replica: ReplicaId) {
        self.index.forget(replica);
    }

    pub fn bytes(&self) -> usize {
        self.index.bytes()
    }

    fn room_blocks(&self, block_tokens: u32, replica: &Candidate) -> usize {
        let Some(times) = self.kv_times else { return usize::MAX };
        let told = replica.report.and_then(|it| it.kv_tokens_max);
        let tokens = told.map_or(KV_TOKENS_UNKNOWN, |it| it.saturating_mul(times));
        usize::try_from(tokens / u64::from(block_tokens.max(1))).unwrap_or(usize::MAX)
    }
}
