//! Which adapters a replica used lately, and so need not load. Engines keep a few beside the model and
//! drop the one that was used longest ago. Which model an adapter belongs to does not matter here.

use std::collections::BTreeMap;

use crate::domain::ReplicaId;

/// As many as engines are commonly set to keep. Where one keeps fewer, a wrong guess costs a load.
const KEPT: usize = 8;

/// The adapters of each replica, by the hashes of their names, the latest last; 0 for none.
#[derive(Debug, Default)]
pub(super) struct Adapters(BTreeMap<ReplicaId, [u64; KEPT]>);

impl Adapters {
    /// Tells whether the replica would have to load it.
    pub(super) fn lacks(&self, replica: ReplicaId, adapter: u64) -> bool {
        adapter != 0 && !self.0.get(&replica).is_some_and(|it| it.contains(&adapter))
    }

    pub(super) fn on_sent(&mut self, replica: ReplicaId, adapter: u64) {
        if adapter == 0 {
            return;
        }
        let kept = self.0.entry(replica).or_default();
        let at = kept.iter().position(|it| *it == adapter).unwrap_or(0);
        kept[at..].rotate_left(1);
        kept[KEPT - 1] = adapter;
    }

    pub(super) fn forget(&mut self, replica: ReplicaId) {
        self.0.remove(&replica);
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.len() * size_of::<(ReplicaId, [u64; KEPT])>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: ReplicaId = ReplicaId(0);

    #[test]
    fn a_replica_keeps_the_adapters_it_used_last() {
        let mut adapters = Adapters::default();
        assert!(adapters.lacks(HERE, 1) && !adapters.lacks(HERE, 0), "no adapter lacks nowhere");
        (1..=8).for_each(|it| adapters.on_sent(HERE, it));
        adapters.on_sent(HERE, 1);
        adapters.on_sent(HERE, 9);
        let lacked: Vec<u64> = (1..=9).filter(|it| adapters.lacks(HERE, *it)).collect();
        assert_eq!(lacked, [2], "the one that was used longest ago");
        assert!(adapters.lacks(ReplicaId(1), 9));
        adapters.forget(HERE);
        assert!(adapters.lacks(HERE, 9));
    }

    #[test]
    fn its_memory_does_not_grow_with_the_adapters() {
        let mut adapters = Adapters::default();
        adapters.on_sent(HERE, 1);
        let bytes = adapters.bytes();
        (2..10_000).for_each(|it| adapters.on_sent(HERE, it));
        assert_eq!(adapters.bytes(), bytes);
    }
}
