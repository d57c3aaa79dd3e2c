//! A cache that never forgets: which blocks were ever sent? It is the yardstick for every real
//! cache. Blocks are kept as ranges, because traces number new content in sequence: a set of single
//! ids would need a thousand times the memory.

use std::collections::BTreeMap;

use super::prompt::{Prompt, Run};

/// Blocks seen so far, as disjoint ranges that never touch.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// Space and first id to last id.
    ranges: BTreeMap<(u64, u32), u32>,
    blocks: u64,
}

impl Seen {
    /// Counts the leading tokens of a prompt that were seen before.
    pub fn cached_tokens(&self, prompt: &Prompt) -> u32 {
        let mut blocks = 0;
        for &run in prompt.runs() {
            let leading = self.leading(run);
            blocks += leading;
            if leading < run.count {
                break;
            }
        }
        blocks.saturating_mul(prompt.block_tokens().get()).min(prompt.tokens())
    }

    /// Remembers all blocks of a prompt.
    pub fn insert(&mut self, prompt: &Prompt) {
        for &run in prompt.runs() {
            self.insert_run(run);
        }
    }

    /// Counts the different blocks seen.
    pub fn blocks(&self) -> u64 {
        self.blocks
    }

    fn leading(&self, run: Run) -> u32 {
        match self.ranges.range(..=(run.space, run.first)).next_back() {
            Some((&(space, _), &last)) if space == run.space && run.first <= last => {
                (last - run.first).saturating_add(1).min(run.count)
            }
            _ => 0,
        }
    }

    fn insert_run(&mut self, run: Run) {
        let (mut first, mut last) = (run.first, run.last());
        if self.leading(run) == run.count {
            return;
        }
        // Every range that overlaps or touches the new one starts at or before the block after it.
        let reach = (run.space, last.saturating_add(1));
        while let Some((&(space, start), &end)) = self.ranges.range(..=reach).next_back() {
            if space != run.space || end.saturating_add(1) < first {
                break;
            }
            self.ranges.remove(&(space, start));
            self.blocks -= u64::from(end - start) + 1;
            first = first.min(start);
            last = last.max(end);
        }
        self.ranges.insert((run.space, first), last);
        self.blocks += u64::from(last - first) + 1;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::num::NonZeroU32;

    use proptest::prelude::*;

    use super::super::prompt::Runs;
    use super::*;

    fn prompt(runs: &[(u64, u32, u32)]) -> Prompt {
        let mut list = Runs::default();
        for &(space, first, count) in runs {
            list.push(Run { space, first, count });
        }
        list.prompt(list.blocks(), NonZeroU32::MIN)
    }

    proptest! {
        #[test]
        fn ranges_know_what_a_set_of_blocks_would_know(
            prompts in prop::collection::vec(
                prop::collection::vec((0u64..3, 0u32..40, 1u32..12), 1..4), 1..40),
        ) {
            let mut seen = Seen::default();
            let mut set = BTreeSet::new();
            for runs in prompts {
                let blocks: Vec<_> = runs
                    .iter()
                    .flat_map(|&(space, first, count)| (first..first + count).map(move |id| (space, id)))
                    .collect();
                let leading = blocks.iter().take_while(|block| set.contains(*block)).count();
                let prompt = prompt(&runs);
                prop_assert_eq!(usize::try_from(seen.cached_tokens(&prompt)).unwrap(), leading);
                seen.insert(&prompt);
                set.extend(blocks);
                prop_assert_eq!(seen.blocks(), u64::try_from(set.len()).unwrap());
            }
        }
    }
}
