//! Key to replicas, for every request. A lookup holds one assignment and an index over its slices;
//! a look-up allocates nothing. It also covers the time until the planner reacts: when a holder is
//! dead, the next replica in rendezvous order stands in. That follows from the key, the assignment
//! and the set of live replicas alone, so all routers choose the same one without a message between
//! them.

use std::sync::Arc;

use crate::domain::{Place, SliceKey};

use super::assignment::{Assignment, Held};
use super::generation::Generation;
use super::numbers::{at, rendezvous, short};

/// Slices per place of the index, on average, before it grows.
const INDEX_BITS_MAX: u32 = 16;

/// Finds the holders of a key.
#[derive(Clone, Debug)]
pub struct Lookup {
    assignment: Arc<Assignment>,
    /// For each value of the key's first bits, the slice of the first such key.
    index: Vec<u32>,
    shift: u32,
    /// Every replica that may stand in, with its capacity, in order of place.
    roster: Vec<(Place, f64)>,
}

impl Lookup {
    /// Makes a lookup; `roster` lists the existing replicas and the capacity of each.
    pub fn new(
        assignment: Arc<Assignment>,
        roster: impl IntoIterator<Item = (Place, f64)>,
    ) -> Self {
        let bits = assignment.len().next_power_of_two().trailing_zeros().clamp(1, INDEX_BITS_MAX);
        let shift = 64 - bits;
        let mut index = Vec::with_capacity((1 << bits) + 1);
        let mut position = 0;
        for first in 0..1_u64 << bits {
            let low = first << shift;
            while assignment.lows.get(position + 1).is_some_and(|next| *next <= low) {
                position += 1;
            }
            index.push(short(position));
        }
        index.push(short(assignment.len() - 1));
        let mut roster: Vec<(Place, f64)> = roster.into_iter().collect();
        roster.sort_unstable_by_key(|it| it.0);
        roster.dedup_by_key(|it| it.0);
        Self { assignment, index, shift, roster }
    }

    pub fn generation(&self) -> Generation {
        self.assignment.generation()
    }

    pub const fn assignment(&self) -> &Arc<Assignment> {
        &self.assignment
    }

    /// Finds the slice of a key, by position.
    pub fn position(&self, key: SliceKey) -> usize {
        let first = usize::try_from(key.0 >> self.shift).unwrap_or(0);
        let (from, to) = (at(self.index[first]), at(self.index[first + 1]));
        // The slice of the next first key may begin in this one's range.
        from + self.assignment.lows[from + 1..=to].partition_point(|low| *low <= key.0)
    }

    /// Lists the holders of the key, in order of place.
    pub fn holders(&self, key: SliceKey) -> &[Place] {
        self.assignment.holders_at(self.position(key))
    }

    pub fn find(&self, key: SliceKey) -> Held<'_> {
        self.assignment.get(self.position(key))
    }

    /// Chooses one holder: each in proportion to its capacity, the same one for the same key, and
    /// only the keys of a dead one go elsewhere.
    pub fn pick(&self, key: SliceKey, is_alive: impl Fn(Place) -> bool) -> Option<Place> {
        let holders = self.holders(key).iter().copied();
        let holders = holders.filter(|it| is_alive(*it)).map(|it| (it, self.capacity(it)));
        first_of(key, holders).or_else(|| self.stand_in(key, &is_alive, &[]))
    }

    /// Names the next replica for a key beyond its holders and those in `taken`: the stand-in for a
    /// dead holder, and where to spill.
    pub fn stand_in(
        &self,
        key: SliceKey,
        is_alive: impl Fn(Place) -> bool,
        taken: &[Place],
    ) -> Option<Place> {
        let holders = self.holders(key);
        let others = self.roster.iter().copied();
        let others = others
            .filter(|it| !holders.contains(&it.0) && !taken.contains(&it.0) && is_alive(it.0));
        // By slice, not by session: the slice's keys stay together, and so bounded.
        let low = self.assignment.lows[self.position(key)];
        first_of(SliceKey(low), others)
    }

    fn capacity(&self, place: Place) -> f64 {
        let found = self.roster.binary_search_by_key(&place, |it| it.0);
        found.map_or(1.0, |position| self.roster[position].1)
    }
}

fn first_of(key: SliceKey, places: impl Iterator<Item = (Place, f64)>) -> Option<Place> {
    let scored = places.map(|(place, weight)| (place, rendezvous(key.0, place.0, weight)));
    scored.max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0))).map(|it| it.0)
}

#[cfg(test)]
mod tests {
    use super::super::assignment::{Row, SliceReason};
    use super::super::slice::Slice;
    use super::*;
    use crate::domain::Moment;

    fn rows(borders: &[u64], holders: u64) -> Vec<Row> {
        let mut lows = vec![0];
        lows.extend_from_slice(borders);
        let highs = borders.iter().map(|it| it - 1).chain([u64::MAX]);
        let row = |(low, high)| Row {
            slice: Slice { low, high },
            holders: (0..holders).map(|it| Place(it + low % 3)).collect(),
            why: SliceReason::First,
            since: 1,
            settled_at: Moment::ZERO,
            previous: None,
        };
        lows.iter().copied().zip(highs).map(row).collect()
    }

    fn lookup(borders: &[u64], holders: u64) -> Lookup {
        let assignment = Assignment::from_rows(Generation::default(), rows(borders, holders));
        Lookup::new(Arc::new(assignment.unwrap()), (0..8).map(|it| (Place(it), 1.0)))
    }

    proptest::proptest! {
        #[test]
        fn the_index_finds_what_the_search_finds(
            mut borders in proptest::collection::vec(1_u64.., 0..200),
            close in proptest::collection::vec(1_u64..500, 0..100), keys: Vec<u64>,
        ) {
            borders.extend(&close);
            borders.sort_unstable();
            borders.dedup();
            let lookup = lookup(&borders, 2);
            for key in keys.into_iter().chain(close).chain(borders).chain([0, u64::MAX]) {
                let key = SliceKey(key);
                proptest::prop_assert_eq!(lookup.position(key), lookup.assignment.position(key));
            }
        }
    }

    #[test]
    fn keys_are_picked_evenly_and_only_those_of_a_dead_holder_move() {
        let lookup = lookup(&[], 4);
        let mut counts = [0; 8];
        for key in 0..4000_u64 {
            let key = SliceKey(key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let before = lookup.pick(key, |_| true).unwrap();
            counts[usize::try_from(before.0).unwrap()] += 1;
            let after = lookup.pick(key, |it| it != Place(0)).unwrap();
            assert!(before == after || before == Place(0));
        }
        assert!(counts[..4].iter().all(|it| (850..1150).contains(it)), "{counts:?}");
        assert_eq!(counts[4..], [0; 4]);
    }

    #[test]
    fn two_lookups_agree_on_the_stand_in() {
        let (one, other) = (lookup(&[1 << 40], 2), lookup(&[1 << 40], 2));
        for key in (0..100).map(|it| SliceKey(it << 57)) {
            let dead = one.holders(key).to_vec();
            let alive = |it: Place| !dead.contains(&it);
            let stand_in = one.pick(key, alive);
            assert_eq!(stand_in, other.pick(key, alive));
            assert!(!dead.contains(&stand_in.unwrap()));
            let next = one.stand_in(key, alive, &[stand_in.unwrap()]);
            assert_ne!(next, stand_in);
        }
        assert_eq!(one.pick(SliceKey(1), |_| false), None);
    }
}
