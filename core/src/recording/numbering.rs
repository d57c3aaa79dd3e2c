//! Numbers for the blocks of prompts. A prompt is written as runs of numbers; two prompts share the blocks whose
//! numbers they share. Hashes would tell the same and take eight bytes a block, of which none compress: a
//! conversation names its whole history with every turn.
//!
//! What is remembered is bounded. A block that was forgotten gets another number when it comes again, as if
//! it had never been there; by then caches have forgotten it too.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

/// Consecutive blocks: the number of the first, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NumberedRun(pub u64, pub u32);

/// Numbers that were given together.
#[derive(Clone, Copy, Debug)]
struct GivenRun {
    count: u32,
    /// The block before the first of them; none at the beginning of a prompt.
    after: Option<u64>,
    /// When a prompt had it last, in prompts.
    used: u64,
}

/// The blocks that are remembered.
#[derive(Clone, Debug)]
pub struct BlockNumbers {
    numbers: FxHashMap<u64, u64>,
    /// By their first number.
    runs: BTreeMap<u64, GivenRun>,
    next: u64,
    prompts: u64,
    blocks_max: usize,
}

impl BlockNumbers {
    /// Remembers as many blocks as that.
    pub fn new(blocks_max: usize) -> Self {
        Self {
            numbers: FxHashMap::default(),
            runs: BTreeMap::new(),
            next: 0,
            prompts: 0,
            blocks_max: blocks_max.max(1),
        }
    }

    /// Numbers the blocks of a prompt, given by hashes that name a block and all before it.
    pub fn number(&mut self, blocks: &[u64]) -> Vec<NumberedRun> {
        self.prompts += 1;
        let (mut runs, known) = self.known(blocks);
        let new = blocks.get(known..).unwrap_or_default();
        if let Some(run) = self.give(new, runs.last().copied()) {
            runs.push(run);
        }
        if self.blocks_max < self.numbers.len() {
            self.forget();
        }
        runs
    }

    /// How many blocks are remembered.
    pub fn len(&self) -> usize {
        self.numbers.len()
    }

    pub fn is_empty(&self) -> bool {
        self.numbers.is_empty()
    }

    /// Finds the leading blocks that have numbers, and says how many they are. Only the last of them is looked
    /// up: what came before it is known with it.
    fn known(&mut self, blocks: &[u64]) -> (Vec<NumberedRun>, usize) {
        let found = blocks.iter().enumerate().rev();
        let found = found.map(|(at, it)| (at, self.numbers.get(it))).find(|it| it.1.is_some());
        let Some((at, Some(&last))) = found else { return (Vec::new(), 0) };
        let (mut runs, mut left, mut end) = (Vec::new(), at + 1, Some(last));
        while let Some(number) = end {
            let run = self.runs.range_mut(..=number).next_back();
            let Some((first, run)) = run.filter(|(first, run)| number - **first < run.count.into())
            else {
                return (Vec::new(), 0);
            };
            run.used = self.prompts;
            let count = u32::try_from(number - first + 1).unwrap_or(u32::MAX);
            runs.push(NumberedRun(*first, count));
            let Some(rest) = usize::try_from(count).ok().and_then(|it| left.checked_sub(it)) else {
                return (Vec::new(), 0);
            };
            (left, end) = (rest, run.after);
        }
        if left != 0 {
            return (Vec::new(), 0);
        }
        runs.reverse();
        (runs, at + 1)
    }

    /// Gives numbers to blocks that follow what is known.
    fn give(&mut self, blocks: &[u64], after: Option<NumberedRun>) -> Option<NumberedRun> {
        let count = u32::try_from(blocks.len()).ok().filter(|it| 0 < *it)?;
        let first = self.next;
        for (number, block) in (first..).zip(blocks) {
            self.numbers.insert(*block, number);
        }
        self.next += u64::from(count);
        let after = after.map(|NumberedRun(first, count)| first + u64::from(count) - 1);
        self.runs.insert(first, GivenRun { count, after, used: self.prompts });
        Some(NumberedRun(first, count))
    }

    /// Forgets about half of all blocks, those first that no prompt had for longest. What a prompt begins with
    /// was used no longer ago than what follows it, so that no beginning goes before its end.
    fn forget(&mut self) {
        let mut ages: Vec<(u64, u32)> = self.runs.values().map(|it| (it.used, it.count)).collect();
        ages.sort_unstable_by(|a, b| b.cmp(a));
        let (mut kept, mut oldest) = (0, self.prompts);
        for (used, count) in ages {
            kept += usize::try_from(count).unwrap_or(usize::MAX);
            if self.blocks_max / 2 < kept {
                break;
            }
            oldest = used;
        }
        self.runs.retain(|_, it| oldest <= it.used);
        let runs = &self.runs;
        self.numbers.retain(|_, number| {
            let run = runs.range(..=*number).next_back();
            run.is_some_and(|(first, run)| *number - first < run.count.into())
        });
        // One prompt that fills the table alone is not worth it.
        if self.blocks_max < self.numbers.len() {
            self.runs.clear();
            self.numbers.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn spelled(runs: &[NumberedRun]) -> Vec<u64> {
        runs.iter().flat_map(|run| run.0..run.0 + u64::from(run.1)).collect()
    }

    #[test]
    fn a_later_turn_has_the_numbers_of_the_earlier_one_and_new_ones_behind() {
        let mut numbers = BlockNumbers::new(100);
        assert_eq!(numbers.number(&[11, 12, 13]), [NumberedRun(0, 3)]);
        assert_eq!(numbers.number(&[11, 12, 13, 14]), [NumberedRun(0, 3), NumberedRun(3, 1)]);
        assert_eq!(numbers.number(&[11, 22]), [NumberedRun(0, 1), NumberedRun(4, 1)]);
        assert_eq!(numbers.number(&[]), []);
    }

    #[test]
    fn what_is_remembered_is_bounded_and_what_was_used_last_stays() {
        let mut numbers = BlockNumbers::new(64);
        let system = [1, 2, 3, 4];
        let first = numbers.number(&system);
        for user in 0..1_000_u64 {
            let mut prompt = system.to_vec();
            prompt.extend((0..8).map(|it| 1_000 + user * 8 + it));
            assert_eq!(numbers.number(&prompt)[0], first[0], "user {user}");
            assert!(numbers.len() <= 64);
        }
        let long: Vec<u64> = (1 << 20..(1 << 20) + 500).collect();
        assert_eq!(spelled(&numbers.number(&long)).len(), 500);
        assert!(numbers.len() <= 64);
    }

    proptest! {
        #[test]
        fn two_prompts_share_numbers_exactly_as_far_as_they_share_blocks(
            prompts in prop::collection::vec(prop::collection::vec(0_u64..3, 0..12), 1..30),
        ) {
            // Chained, as hashes of blocks are.
            let chained = |words: &Vec<u64>| -> Vec<u64> {
                words.iter().scan(1_u64, |hash, word| {
                    *hash = hash.wrapping_mul(31).wrapping_add(word + 7);
                    Some(*hash)
                }).collect()
            };
            let prompts: Vec<Vec<u64>> = prompts.iter().map(chained).collect();
            let mut numbers = BlockNumbers::new(1 << 12);
            let written: Vec<Vec<u64>> =
                prompts.iter().map(|it| spelled(&numbers.number(it))).collect();
            for (one, of_one) in prompts.iter().zip(&written) {
                prop_assert_eq!(one.len(), of_one.len());
                for (other, of_other) in prompts.iter().zip(&written) {
                    let shared = one.iter().zip(other).take_while(|(a, b)| a == b).count();
                    let told = of_one.iter().zip(of_other).take_while(|(a, b)| a == b).count();
                    prop_assert_eq!(shared, told);
                }
            }
        }
    }
}
