//! What engines keep under an id (responses, conversations, files, batches), and at which replica: such state is in
//! the memory of one process, so a request that names it can be served there and nowhere else. An id belongs to
//! the owner that had it first. For any other owner it does not exist, though an engine would hand it out.
//!
//! A set-associative table of fixed size, 32 bytes an id, allocated once; the id of eight neighbours that was not
//! used for the longest time makes room. Ids and owners are known by their hashes only.

use twox_hash::XxHash3_64;

use crate::domain::Place;

const WAYS: usize = 8;
/// Rows that wait to be written down; if more come in between, the table is written whole.
const FRESH_MAX: usize = 1 << 14;

/// An id by its hash, its owner, the replica that keeps it, and when it was last used, counted in uses. All zeros is
/// an empty place, so that a fresh table costs no memory until it is used.
type KeptEntry = [u64; 4];

/// One id as it is written down: hash, owner and replica.
pub type KeptRow = [u64; 3];

/// What is known of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeptAt {
    Replica(Place),
    /// It belongs to another owner.
    Foreign,
    /// It was made before this router started, or it is long ago, or it does not exist.
    Unknown,
}

/// Where ids are kept.
#[derive(Debug)]
pub struct KeptIds {
    entries: Vec<KeptEntry>,
    uses: u64,
    /// Noted since it was last asked for; `None` if there were too many.
    fresh: Option<Vec<KeptRow>>,
}

impl KeptIds {
    pub fn new(bytes_max: usize) -> Self {
        let sets_max = bytes_max / (WAYS * size_of::<KeptEntry>());
        // Rounded down to a power of two, so that the bound holds and the index is a mask.
        let sets = (sets_max / 2 + 1).next_power_of_two().min(sets_max.max(1));
        let entries = vec![[0; 4]; sets * WAYS];
        Self { entries, uses: 0, fresh: Some(Vec::new()) }
    }

    /// Finds which replica keeps an id of `owner`.
    pub fn find(&mut self, owner: u64, id: &str) -> KeptAt {
        let hash = hash(id);
        self.uses += 1;
        let count = self.uses;
        let entry = self.set(hash).iter_mut().find(|it| holds(it, hash));
        let Some([_, owned_by, place, used]) = entry else { return KeptAt::Unknown };
        if *owned_by != owner {
            return KeptAt::Foreign;
        }
        *used = count;
        KeptAt::Replica(Place(*place))
    }

    /// Notes that a replica keeps an id of `owner`, unless the id belongs to another owner. Returns what is new of it.
    pub fn remember(&mut self, owner: u64, id: &str, place: Place) -> Option<KeptRow> {
        let row = [hash(id), owner, place.0];
        if !self.put(row) {
            return None;
        }
        self.fresh = self.fresh.take().filter(|it| it.len() < FRESH_MAX).map(|mut fresh| {
            fresh.push(row);
            fresh
        });
        Some(row)
    }

    /// Takes on an id that was written down, or that another router told.
    pub fn restore(&mut self, row: KeptRow) {
        self.put(row);
    }

    /// Takes what was noted since the last call; `None` if that is too much, and all is to be written anew.
    pub fn take_fresh(&mut self) -> Option<Vec<KeptRow>> {
        self.fresh.replace(Vec::new())
    }

    /// Lists all ids, those used last at the end.
    pub fn rows(&self) -> Vec<KeptRow> {
        let mut known: Vec<&KeptEntry> = self.entries.iter().filter(|it| used(it) != 0).collect();
        known.sort_unstable_by_key(|it| used(it));
        known.into_iter().map(|[id, owner, place, _]| [*id, *owner, *place]).collect()
    }

    /// How many ids it can hold.
    pub fn capacity(&self) -> usize {
        self.entries.len()
    }

    /// Puts a row in its place; tells whether it was put there and was not known before.
    fn put(&mut self, [id, owner, place]: KeptRow) -> bool {
        self.uses += 1;
        let count = self.uses;
        let set = self.set(id);
        let at = match set.iter().position(|it| holds(it, id)) {
            Some(at) if set[at][1] != owner => return false,
            Some(at) => at,
            None => (0..WAYS).min_by_key(|at| used(&set[*at])).unwrap_or(0),
        };
        let before = std::mem::replace(&mut set[at], [id, owner, place, count]);
        !(holds(&before, id) && before[2] == place)
    }

    fn set(&mut self, hash: u64) -> &mut [KeptEntry] {
        let sets = self.entries.len() / WAYS;
        let set = usize::try_from(hash >> 32).unwrap_or(0) & (sets - 1);
        &mut self.entries[set * WAYS..(set + 1) * WAYS]
    }
}

fn holds(entry: &KeptEntry, id: u64) -> bool {
    entry[0] == id && used(entry) != 0
}

const fn used(entry: &KeptEntry) -> u64 {
    entry[3]
}

fn hash(id: &str) -> u64 {
    XxHash3_64::oneshot(id.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Place = Place(11);
    const TWO: Place = Place(22);

    #[test]
    fn an_id_is_found_by_its_owner_and_foreign_to_all_others() {
        let mut ids = KeptIds::new(1 << 16);
        assert_eq!(ids.find(7, "resp_1"), KeptAt::Unknown);
        ids.remember(7, "resp_1", ONE);
        assert_eq!(ids.find(7, "resp_1"), KeptAt::Replica(ONE));
        assert_eq!(ids.find(8, "resp_1"), KeptAt::Foreign);
        assert_eq!(ids.find(7, "resp_2"), KeptAt::Unknown);
    }

    #[test]
    fn an_id_belongs_to_the_owner_that_had_it_first() {
        let mut ids = KeptIds::new(1 << 16);
        ids.remember(7, "chosen", ONE);
        ids.remember(8, "chosen", TWO);
        assert_eq!(ids.find(7, "chosen"), KeptAt::Replica(ONE));
        assert_eq!(ids.find(8, "chosen"), KeptAt::Foreign);
        ids.remember(7, "chosen", TWO);
        assert_eq!(ids.find(7, "chosen"), KeptAt::Replica(TWO), "its owner made it anew");
    }

    #[test]
    fn the_byte_bound_holds_for_any_size_and_any_number_of_ids() {
        for bytes_max in [0, 1, 255, 256, 600, 4096, 100_000] {
            let mut ids = KeptIds::new(bytes_max);
            for number in 0..20_000 {
                ids.remember(1, &number.to_string(), ONE);
            }
            let bytes = ids.entries.capacity() * size_of::<KeptEntry>();
            assert!(bytes <= bytes_max.max(256), "{bytes} for {bytes_max}");
            assert!(bytes_max < 4 * bytes, "{bytes} for {bytes_max}");
            assert!(ids.fresh.is_none(), "what waits to be written is bounded too");
            assert!(ids.rows().len() <= ids.capacity());
        }
        assert_eq!(size_of::<KeptEntry>(), 32);
    }

    #[test]
    fn the_id_that_was_not_used_for_longest_makes_room() {
        let mut ids = KeptIds::new(256);
        for number in 0..8 {
            ids.remember(1, &number.to_string(), ONE);
        }
        assert_eq!(ids.find(1, "0"), KeptAt::Replica(ONE));
        ids.remember(1, "one more", TWO);
        assert_eq!(ids.find(1, "0"), KeptAt::Replica(ONE));
        assert_eq!(ids.find(1, "1"), KeptAt::Unknown);
        assert_eq!(ids.find(1, "one more"), KeptAt::Replica(TWO));
    }

    #[test]
    fn what_was_written_down_is_known_again() {
        let mut ids = KeptIds::new(1 << 16);
        for number in 0..100_u64 {
            ids.remember(number % 3, &number.to_string(), Place(number));
        }
        let fresh = ids.take_fresh().unwrap();
        assert_eq!(fresh.len(), 100);
        ids.remember(0, "0", Place(0));
        assert!(ids.take_fresh().unwrap().is_empty(), "what is known is not written again");
        for rows in [fresh, ids.rows()] {
            let mut again = KeptIds::new(1 << 16);
            for row in rows {
                again.restore(row);
            }
            for number in 0..100_u64 {
                let found = again.find(number % 3, &number.to_string());
                assert_eq!(found, KeptAt::Replica(Place(number)));
            }
            assert!(again.take_fresh().unwrap().is_empty());
        }
    }
}
