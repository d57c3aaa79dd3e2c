//! Numbers blocks by content and prefix. Some formats hash each block alone, and two prompts may then
//! show the same id in different places; a prefix cache would not call that a hit. Numbering what
//! (prefix, block) pairs were met, in order of appearance, makes ids chained and runs long.

use indexmap::IndexSet;
use rustc_hash::FxBuildHasher;

use super::super::prompt::{Run, Runs, mix};

/// Every prefix met so far, in order of appearance.
#[derive(Default)]
pub(super) struct Chain {
    prefixes: IndexSet<u64, FxBuildHasher>,
}

impl Chain {
    /// Numbers the blocks of one prompt; none when there are more than four billion.
    pub(super) fn runs(&mut self, blocks: impl Iterator<Item = u64>) -> Option<Runs> {
        let mut runs = Runs::default();
        let mut prefix = 0;
        for block in blocks {
            prefix = mix(prefix, block);
            let (place, _) = self.prefixes.insert_full(prefix);
            runs.push(Run { space: 0, first: u32::try_from(place).ok()?, count: 1 });
        }
        Some(runs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_block_after_another_prefix_is_another_block() {
        let mut chain = Chain::default();
        let one = chain.runs([1, 2, 3].into_iter()).unwrap();
        let same = chain.runs([1, 2, 3].into_iter()).unwrap();
        let other = chain.runs([9, 2, 3].into_iter()).unwrap();
        let first = |runs: &Runs| runs.prompt(3, std::num::NonZeroU32::MIN).runs()[0].first;
        assert_eq!(first(&one), first(&same));
        assert_eq!(first(&other), 3);
    }
}
