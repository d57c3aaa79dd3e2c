//! What lies in any cache of the fleet. No router sees this: it is the truth that measures compare
//! decisions with. A count per block follows the engines' journals, so a lookup costs the same for
//! eight replicas as for a hundred.

use rustc_hash::FxHashMap;

use crate::engine::{Engine, KvChange};

#[derive(Debug, Default)]
pub(super) struct Residency {
    /// How many replicas have a block.
    holders: FxHashMap<u64, u32>,
}

impl Residency {
    /// Takes in what has changed in an engine's cache.
    pub(super) fn follow(&mut self, engine: &mut Engine) {
        for change in engine.drain_kv_changes() {
            match change {
                KvChange::Stored(hash) => *self.holders.entry(hash).or_insert(0) += 1,
                KvChange::Evicted(hash) => self.remove(hash),
            }
        }
    }

    /// Forgets what an engine had that is gone.
    pub(super) fn forget(&mut self, engine: &mut Engine) {
        self.follow(engine);
        for hash in engine.cached_blocks() {
            self.remove(hash);
        }
    }

    /// Counts the leading blocks that some replica has.
    pub(super) fn leading(&self, hashes: &[u64]) -> usize {
        hashes.iter().take_while(|hash| self.holders.contains_key(hash)).count()
    }

    pub(super) fn blocks(&self) -> usize {
        self.holders.len()
    }

    fn remove(&mut self, hash: u64) {
        if let Some(count) = self.holders.get_mut(&hash) {
            *count -= 1;
            if *count == 0 {
                self.holders.remove(&hash);
            }
        }
    }
}
