//! What beginnings of prompts were counted to. A beginning is named by the hash of its last block,
//! at a fixed stride of blocks. Bounded in number: the older half is dropped whole when the newer
//! is full, which costs nothing per use.

use std::collections::HashMap;

/// Beginnings in each half: about half a MiB.
const HALF_MAX: usize = 16_384;
/// A beginning is noted, and looked for, at multiples of this many blocks.
const STRIDE: usize = 16;
/// How many places are looked at, from the end.
const PROBES_MAX: usize = 64;

#[derive(Debug, Default)]
pub(super) struct Beginnings {
    newer: HashMap<u64, u32>,
    older: HashMap<u64, u32>,
}

impl Beginnings {
    /// Finds the longest beginning that was counted: its blocks and its tokens.
    pub(super) fn longest(&self, blocks: &[u64]) -> (usize, u32) {
        let places = (1..=blocks.len() / STRIDE).rev().take(PROBES_MAX).map(|it| it * STRIDE);
        let mut found = places.filter_map(|it| Some((it, self.get(blocks[it - 1])?)));
        found.next().unwrap_or((0, 0))
    }

    /// The blocks that are noted when the whole prompt is counted.
    pub(super) const fn noted(blocks: usize) -> usize {
        blocks / STRIDE * STRIDE
    }

    pub(super) fn note(&mut self, last: u64, tokens: u32) {
        if HALF_MAX <= self.newer.len() {
            self.older = std::mem::take(&mut self.newer);
        }
        self.newer.insert(last, tokens);
    }

    fn get(&self, last: u64) -> Option<u32> {
        self.newer.get(&last).or_else(|| self.older.get(&last)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_beginning_is_found_and_the_number_is_bounded() {
        let mut beginnings = Beginnings::default();
        let blocks: Vec<u64> = (0..100).collect();
        assert_eq!(beginnings.longest(&blocks), (0, 0));
        assert_eq!(Beginnings::noted(100), 96);
        beginnings.note(blocks[31], 7);
        beginnings.note(blocks[95], 20);
        assert_eq!(beginnings.longest(&blocks), (96, 20));
        assert_eq!(beginnings.longest(&blocks[..90]), (32, 7));
        assert_eq!(beginnings.longest(&blocks[..15]), (0, 0));
        (1000..100_000).for_each(|it| beginnings.note(it, 1));
        assert!(beginnings.newer.len() + beginnings.older.len() <= 2 * HALF_MAX);
        assert!(beginnings.get(99_999).is_some() && beginnings.get(1000).is_none());
    }
}
