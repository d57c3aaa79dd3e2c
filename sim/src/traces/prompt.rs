//! What a prompt contains, as far as a prefix cache can tell: block ids in runs. A prompt of 900,000
//! tokens is a handful of runs, so a million requests need no list of blocks anywhere. Ids are
//! chained as the traces have them: equal space and id mean the same content *and* the same
//! content before it. Text is never kept; two prompts are compared by their blocks alone.

use std::num::NonZeroU32;

/// A stretch of consecutive block ids. The space keeps apart what was numbered apart: two sessions
/// that both count from one, or two tenants that were dealt the same recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    pub space: u64,
    pub first: u32,
    pub count: u32,
}

impl Run {
    /// Names the last block of the run, which must not be empty.
    pub(super) fn last(self) -> u32 {
        self.first + (self.count - 1)
    }
}

/// A list of runs under construction; neighbours are joined as they are added.
#[derive(Clone, Debug, Default)]
pub struct Runs(Vec<Run>);

impl Runs {
    /// Appends a run; an empty one changes nothing.
    pub fn push(&mut self, run: Run) {
        if run.count == 0 {
            return;
        }
        match self.0.last_mut() {
            Some(last)
                if last.space == run.space && last.last().checked_add(1) == Some(run.first) =>
            {
                last.count += run.count;
            }
            _ => self.0.push(run),
        }
    }

    /// Keeps the leading `blocks` and forgets the rest; false when there are fewer.
    pub fn keep(&mut self, blocks: u32) -> bool {
        let mut left = blocks;
        let mut kept = 0;
        for run in &mut self.0 {
            if left == 0 {
                break;
            }
            run.count = run.count.min(left);
            left -= run.count;
            kept += 1;
        }
        self.0.truncate(kept);
        left == 0
    }

    /// Counts the blocks.
    pub fn blocks(&self) -> u32 {
        self.0.iter().map(|run| run.count).sum()
    }

    /// Makes a prompt of what has been collected.
    pub fn prompt(&self, tokens: u32, block_tokens: NonZeroU32) -> Prompt {
        Prompt { tokens, block_tokens, runs: self.0.as_slice().into() }
    }
}

/// The content of one prompt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    tokens: u32,
    block_tokens: NonZeroU32,
    runs: Box<[Run]>,
}

impl Prompt {
    /// Makes a prompt that shares nothing with any other, for traces that tell only lengths.
    pub fn unshared(space: u64, tokens: u32, block_tokens: NonZeroU32) -> Self {
        let run = Run { space, first: 0, count: tokens.div_ceil(block_tokens.get()) };
        let mut runs = Runs::default();
        runs.push(run);
        runs.prompt(tokens, block_tokens)
    }

    /// All tokens of the prompt, those without a block id included.
    pub fn tokens(&self) -> u32 {
        self.tokens
    }

    /// Tokens per block as the trace cut them.
    pub fn block_tokens(&self) -> NonZeroU32 {
        self.block_tokens
    }

    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Counts the blocks; the last one may be partial.
    pub fn blocks(&self) -> u32 {
        self.runs.iter().map(|run| run.count).sum()
    }

    /// Tokens that lie in blocks. Session traces leave the unfinished last block out.
    pub fn covered_tokens(&self) -> u32 {
        self.blocks().saturating_mul(self.block_tokens.get()).min(self.tokens)
    }

    /// Yields the chained hash of each whole block of `block_tokens` tokens, whatever size the trace
    /// was cut in: a trace block is named by all that went before it, so the block a cache block
    /// ends in and the place where it ends there name the cache block.
    pub fn hashes(&self, block_tokens: NonZeroU32) -> impl Iterator<Item = u64> + '_ {
        let size = self.block_tokens.get();
        let mut runs = self.runs.iter();
        let mut run = runs.next();
        let mut run_starts = 0;
        (1..=self.covered_tokens() / block_tokens).map_while(move |number| {
            let end = number * block_tokens.get();
            let block = (end - 1) / size;
            while let Some(passed) = run.filter(|run| run_starts + run.count <= block) {
                run_starts += passed.count;
                run = runs.next();
            }
            let run = run?;
            let offset = end - block * size;
            Some(mix(
                run.space,
                (u64::from(offset) << 32) | u64::from(run.first + (block - run_starts)),
            ))
        })
    }

    /// Moves the content into other spaces, so that the same recording can be played twice.
    pub(super) fn respaced(&self, salt: u64) -> Self {
        let moved = |run: &Run| Run { space: mix(salt, run.space), ..*run };
        Self { runs: self.runs.iter().map(moved).collect(), ..*self }
    }
}

/// Mixes two words into one, evenly; a fixed function, so that a seed means the same everywhere.
pub(super) fn mix(one: u64, other: u64) -> u64 {
    let mut word = one.rotate_left(32) ^ other.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    word ^ (word >> 31)
}

/// Makes a number of a name, for spaces and streams of draws that must differ from each other.
pub(super) const fn named(name: &str) -> u64 {
    let mut rest = name.as_bytes();
    let mut hash: u64 = 0xCBF2_9CE4_8422_2325;
    while let [byte, after @ ..] = rest {
        // FNV-1a; `u64::from` is not const.
        let bytes = [*byte, 0, 0, 0, 0, 0, 0, 0];
        hash = (hash ^ u64::from_le_bytes(bytes)).wrapping_mul(0x0100_0000_01B3);
        rest = after;
    }
    hash
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn size(tokens: u32) -> NonZeroU32 {
        NonZeroU32::new(tokens).unwrap()
    }

    fn prompt(parts: &[(u32, u32)], tokens: u32, block_tokens: u32) -> Prompt {
        let mut runs = Runs::default();
        for &(first, count) in parts {
            runs.push(Run { space: 7, first, count });
        }
        runs.prompt(tokens, size(block_tokens))
    }

    #[test]
    fn neighbouring_runs_become_one() {
        assert_eq!(prompt(&[(1, 4), (5, 2), (9, 1)], 448, 64).runs().len(), 2);
    }

    #[test]
    fn keeping_more_blocks_than_there_are_is_refused() {
        let mut runs = Runs::default();
        runs.push(Run { space: 0, first: 1, count: 3 });
        assert!(!runs.keep(4));
        assert!(runs.keep(2));
        assert_eq!(runs.blocks(), 2);
    }

    #[test]
    fn only_whole_blocks_have_a_hash() {
        let prompt = prompt(&[(0, 2)], 700, 512);
        assert_eq!(prompt.hashes(size(512)).count(), 1);
        assert_eq!(prompt.hashes(size(16)).count(), 700 / 16);
    }

    #[test]
    fn tokens_beyond_the_recorded_blocks_have_no_hash() {
        let prompt = prompt(&[(0, 1)], 100, 64);
        assert_eq!(prompt.covered_tokens(), 64);
        assert_eq!(prompt.hashes(size(16)).count(), 4);
    }

    proptest! {
        #[test]
        fn prompts_share_hashes_exactly_as_far_as_they_share_content(
            shared in 0u32..40, one in 1u32..40, other in 1u32..40,
            block in prop::sample::select(vec![16u32, 64, 512]), engine in 1u32..200,
        ) {
            let left = prompt(&[(0, shared), (1000, one)], (shared + one) * block, block);
            let right = prompt(&[(0, shared), (2000, other)], (shared + other) * block, block);
            let alike = left
                .hashes(size(engine))
                .zip(right.hashes(size(engine)))
                .take_while(|(a, b)| a == b)
                .count();
            prop_assert_eq!(u32::try_from(alike).unwrap(), shared * block / engine);
        }
    }
}
