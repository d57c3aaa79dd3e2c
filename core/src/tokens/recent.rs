//! A map with a fixed maximum of entries. When it is full, the least recently updated of a few
//! neighbours makes room. A list in order of use would cost a pointer chase at every answer to find
//! the very oldest, which is not needed.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// How many are looked at to find one that makes room.
const NEIGHBOURS: usize = 8;

#[derive(Debug)]
pub(crate) struct Recent<V> {
    entries: IndexMap<u64, RecentEntry<V>, FxBuildHasher>,
    entries_max: usize,
    /// Counts uses; an entry's own count says how recent it is.
    uses: u64,
    /// Where the next search for room begins.
    hand: usize,
}

#[derive(Debug, Default)]
struct RecentEntry<V> {
    used: u64,
    value: V,
}

impl<V: Default> Recent<V> {
    pub(crate) fn new(entries_max: usize) -> Self {
        Self { entries: IndexMap::default(), entries_max, uses: 0, hand: 0 }
    }

    pub(crate) fn get(&self, key: u64) -> Option<&V> {
        self.entries.get(&key).map(|it| &it.value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.entries.iter().map(|(key, entry)| (*key, &entry.value))
    }

    /// Finds the entry, or makes one and room for it.
    pub(crate) fn get_or_insert(&mut self, key: u64) -> &mut V {
        if self.entries.len() == self.entries_max && !self.entries.contains_key(&key) {
            self.make_room();
        }
        self.uses += 1;
        let entry = self.entries.entry(key).or_default();
        entry.used = self.uses;
        &mut entry.value
    }

    fn make_room(&mut self) {
        let count = self.entries.len();
        let neighbours = (0..NEIGHBOURS.min(count)).map(|it| (self.hand + it) % count);
        if let Some(oldest) = neighbours.min_by_key(|it| self.entries[*it].used) {
            self.entries.swap_remove_index(oldest);
        }
        self.hand = (self.hand + NEIGHBOURS) % count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_holds_more_and_keeps_what_is_used() {
        let mut recent = Recent::<u32>::new(64);
        for key in 0..10_000 {
            *recent.get_or_insert(key) += 1;
            *recent.get_or_insert(7) += 1;
            assert!(recent.entries.len() <= 64);
        }
        assert!(recent.get(7).is_some_and(|it| 9_000 < *it));
        let kept = (9_000..10_000).filter(|it| recent.get(*it).is_some()).count();
        assert!(55 <= kept, "{kept} of the newest");
    }
}
