//! Load over the key space: ranges with a rate and a weight of state, and hot keys inside them. It
//! answers how much a slice carries and where to cut it. Inside a range load is taken as uniform;
//! a hot key is a range of one key, so it can be isolated but never cut.
//!
//! Load is whatever the caller counts, per second or not; state is what a move costs, in Cleave the
//! KV tokens that would have to be computed again.

use crate::domain::float;

use super::numbers::{count, key as to_key};
use super::slice::Slice;

/// What one range carries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RangeLoad {
    pub slice: Slice,
    pub load: f64,
    pub state: f64,
}

/// What one key carries, as part of its range's load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct KeyLoad {
    pub key: u64,
    pub load: f64,
}

/// Load and state below each of a list of borders, so that any range is a difference of two.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadMap {
    /// Where each piece begins; between pieces there is nothing.
    pieces: Vec<LoadPiece>,
    load_total: f64,
    state_total: f64,
    /// Spread evenly over all keys.
    uniform: f64,
    keys: Vec<KeyLoad>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
struct LoadPiece {
    slice: Slice,
    load: f64,
    state: f64,
    load_before: f64,
    state_before: f64,
}

impl LoadMap {
    /// Takes ranges that do not overlap and the hot keys among them. What is not finite or below
    /// zero counts as zero.
    pub fn new(ranges: &[RangeLoad], keys: &[KeyLoad]) -> Self {
        let mut ranges: Vec<RangeLoad> = ranges.to_vec();
        ranges.sort_unstable_by_key(|it| it.slice.low);
        debug_assert!(ranges.is_sorted_by(|a, b| a.slice.high < b.slice.low), "ranges overlap");
        let mut keys: Vec<KeyLoad> = keys.to_vec();
        keys.sort_unstable_by_key(|it| it.key);
        keys.dedup_by_key(|it| it.key);
        let mut map = Self::default();
        let mut rest = keys.as_slice();
        for range in ranges {
            let skipped = rest.partition_point(|it| it.key < range.slice.low);
            rest = &rest[skipped..];
            let inside = rest.partition_point(|it| it.key <= range.slice.high);
            map.push_range(range, &rest[..inside]);
            rest = &rest[inside..];
        }
        map
    }

    /// Adds up what several observers saw, each in its own ranges.
    pub fn sum(maps: &[Self]) -> Self {
        let mut borders: Vec<u64> = Vec::new();
        for piece in maps.iter().flat_map(|it| &it.pieces) {
            borders.push(piece.slice.low);
            borders.extend(piece.slice.high.checked_add(1));
        }
        borders.sort_unstable();
        borders.dedup();
        let highs = borders.iter().skip(1).map(|it| it - 1).chain([u64::MAX]);
        let mut map = Self::default();
        for (low, high) in borders.iter().copied().zip(highs) {
            let slice = Slice { low, high };
            let load = maps.iter().map(|it| it.load_of(&slice)).sum();
            let state = maps.iter().map(|it| it.state_of(&slice)).sum();
            map.push_piece(slice, load, state);
        }
        let mut keys: Vec<u64> = maps.iter().flat_map(|it| &it.keys).map(|it| it.key).collect();
        keys.sort_unstable();
        keys.dedup();
        let load = |key: u64| map.load_of(&Slice::of_key(key));
        map.keys = keys.into_iter().map(|key| KeyLoad { key, load: load(key) }).collect();
        map
    }

    /// Returns the map with `load` more, spread evenly over all keys: a little of it keeps unused
    /// slices from all being put in one place.
    #[must_use]
    pub fn with_uniform(mut self, load: f64) -> Self {
        self.uniform += load.max(0.0);
        self
    }

    pub fn total(&self) -> f64 {
        self.load_total + self.uniform
    }

    pub const fn state_total(&self) -> f64 {
        self.state_total
    }

    /// Lists the hot keys in order of key.
    pub fn keys(&self) -> &[KeyLoad] {
        &self.keys
    }

    pub fn load_of(&self, slice: &Slice) -> f64 {
        (self.load_below(slice.high, true) - self.load_below(slice.low, false)).max(0.0)
    }

    pub fn state_of(&self, slice: &Slice) -> f64 {
        let below =
            |key, whole| self.below(key, |it| (it.state_before, it.state), self.state_total, whole);
        (below(slice.high, true) - below(slice.low, false)).max(0.0)
    }

    /// Finds the first key of the upper part when `slice` is cut so that the lower part carries
    /// about `share` of its load; `None` when it is one key. A hot key goes wholly to one side, so
    /// two cuts isolate it.
    pub fn cut(&self, slice: &Slice, share: f64) -> Option<u64> {
        if slice.is_one_key() {
            return None;
        }
        let wanted = self.load_of(slice) * share;
        let low = self.reaching(self.load_below(slice.low, false) + wanted);
        let low = low.clamp(slice.low, slice.high);
        // `low` is the key that reaches what is wanted: before it or after it, whichever is nearer.
        let with = self.load_of(&Slice { low: slice.low, high: low });
        let alone = self.load_of(&Slice::of_key(low));
        let after = with - wanted <= wanted - (with - alone);
        let cut = if after { low.checked_add(1)? } else { low };
        Some(cut.clamp(slice.low + 1, slice.high))
    }

    /// Measures the most loaded of `shares` when the key space is cut in fixed parts of these
    /// sizes, once and for all: what a fleet without an auto-sharder would see.
    pub fn static_peak(&self, shares: &[f64]) -> f64 {
        let total: f64 = shares.iter().sum();
        let (mut low, mut passed, mut peak) = (0, 0.0, 0.0_f64);
        for share in shares {
            passed += share;
            let high = to_key(passed / total * KEYS).max(low);
            let slice = Slice { low, high };
            peak = peak.max(self.load_of(&slice) / share);
            low = high.saturating_add(1);
        }
        peak
    }

    fn load_below(&self, key: u64, whole: bool) -> f64 {
        let before = self.below(key, |it| (it.load_before, it.load), self.load_total, whole);
        before + self.uniform * (float(key) + f64::from(u8::from(whole))) / KEYS
    }

    /// Finds the key with which the load from the first key on reaches `wanted`.
    fn reaching(&self, wanted: f64) -> u64 {
        let uniform = self.uniform / KEYS;
        let before = |it: &LoadPiece| it.load_before + uniform * float(it.slice.low);
        let next = self.pieces.partition_point(|it| before(it) <= wanted);
        let (mut first, mut passed, mut density) = (0, 0.0, uniform);
        if let Some(piece) = next.checked_sub(1).map(|it| &self.pieces[it]) {
            let width = piece.slice.width();
            (first, passed) = (piece.slice.low, before(piece));
            density = piece.load / width + uniform;
            let end = passed + density * width;
            if end < wanted {
                (first, passed, density) = (piece.slice.high.saturating_add(1), end, uniform);
            }
        }
        if density <= 0.0 {
            first
        } else {
            first.saturating_add(to_key((wanted - passed) / density))
        }
    }

    fn below(
        &self,
        key: u64,
        of: impl Fn(&LoadPiece) -> (f64, f64),
        total: f64,
        whole: bool,
    ) -> f64 {
        let next = self.pieces.partition_point(|it| it.slice.low <= key);
        let Some(piece) = next.checked_sub(1).map(|it| &self.pieces[it]) else { return 0.0 };
        let (before, own) = of(piece);
        if piece.slice.high < key {
            return self.pieces.get(next).map_or(total, |it| of(it).0);
        }
        let keys = float(key - piece.slice.low) + f64::from(u8::from(whole));
        before + own * (keys / piece.slice.width())
    }

    fn push_range(&mut self, range: RangeLoad, keys: &[KeyLoad]) {
        let (load, state) = (sound(range.load), sound(range.state));
        let hot: f64 = keys.iter().map(|it| sound(it.load)).sum();
        let width = range.slice.width() - count(keys.len());
        // Keys are measured apart from their range: they may claim more than all of it, or less
        // where there is nothing else.
        let scale = if 0.0 < hot && (load < hot || width < 0.5) { load / hot } else { 1.0 };
        let rest = (load - hot * scale).max(0.0);
        let state_per_load = if 0.0 < load { state / load } else { 0.0 };
        let mut next = Some(range.slice.low);
        for it in keys {
            let own = sound(it.load) * scale;
            if let Some(low) = next.filter(|low| *low < it.key) {
                let gap = Slice { low, high: it.key - 1 };
                let share = rest * (gap.width() / width);
                self.push_piece(gap, share, share * state_per_load);
            }
            self.push_piece(Slice::of_key(it.key), own, own * state_per_load);
            self.keys.push(KeyLoad { key: it.key, load: own });
            next = it.key.checked_add(1);
        }
        if let Some(low) = next.filter(|low| *low <= range.slice.high) {
            let gap = Slice { low, high: range.slice.high };
            let share = rest * (gap.width() / width);
            let state = if 0.0 < load { share * state_per_load } else { state };
            self.push_piece(gap, share, state);
        }
    }

    fn push_piece(&mut self, slice: Slice, load: f64, state: f64) {
        let (load_before, state_before) = (self.load_total, self.state_total);
        self.pieces.push(LoadPiece { slice, load, state, load_before, state_before });
        self.load_total += load;
        self.state_total += state;
    }
}

/// How many keys there are.
const KEYS: f64 = 18_446_744_073_709_551_616.0;

fn sound(load: f64) -> f64 {
    if load.is_finite() { load.max(0.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(low: u64, high: u64, load: f64) -> RangeLoad {
        RangeLoad { slice: Slice { low, high }, load, state: load * 10.0 }
    }

    fn near(one: f64, other: f64) -> bool {
        (one - other).abs() <= 1e-6 * one.abs().max(1.0)
    }

    #[test]
    fn a_part_of_a_range_has_its_part_of_the_load() {
        let map = LoadMap::new(&[range(0, 99, 10.0), range(200, 299, 30.0)], &[]);
        assert!(near(map.load_of(&Slice { low: 0, high: 49 }), 5.0));
        assert!(near(map.load_of(&Slice { low: 50, high: 249 }), 20.0));
        assert!(near(map.load_of(&Slice { low: 100, high: 199 }), 0.0));
        assert!(near(map.state_of(&Slice::ALL), 400.0));
        assert!(near(map.total(), 40.0));
    }

    #[test]
    fn a_hot_key_keeps_its_load_to_itself() {
        let keys = [KeyLoad { key: 50, load: 8.02 }];
        let map = LoadMap::new(&[range(0, 100, 10.02)], &keys);
        assert!(near(map.load_of(&Slice::of_key(50)), 8.02));
        assert!(near(map.load_of(&Slice { low: 0, high: 49 }), 1.0));
        assert_eq!(map.cut(&Slice { low: 0, high: 99 }, 0.5), Some(50));
        assert_eq!(map.cut(&Slice { low: 50, high: 99 }, 0.5), Some(51), "two cuts isolate it");
        assert_eq!(map.cut(&Slice::of_key(50), 0.5), None);
    }

    #[test]
    fn keys_never_claim_more_than_their_range() {
        let keys = [KeyLoad { key: 1, load: 30.0 }, KeyLoad { key: 2, load: f64::NAN }];
        let map = LoadMap::new(&[range(0, 99, 10.0)], &keys);
        assert!(near(map.total(), 10.0));
        assert!(near(map.load_of(&Slice::of_key(1)), 10.0));
    }

    #[test]
    fn a_cut_halves_the_load_even_where_nothing_is_measured() {
        let map = LoadMap::default().with_uniform(1.0);
        let cut = map.cut(&Slice::ALL, 0.5).unwrap();
        assert!(near(map.load_of(&Slice { low: 0, high: cut - 1 }), 0.5));
        assert!(near(map.load_of(&Slice::ALL), 1.0));
        let skewed = LoadMap::new(&[range(0, 9, 3.0), range(1 << 40, 1 << 41, 1.0)], &[]);
        let cut = skewed.cut(&Slice::ALL, 0.5).unwrap();
        assert!((5..=8).contains(&cut), "{cut}");
    }

    #[test]
    fn what_several_observers_saw_adds_up() {
        let one = LoadMap::new(&[range(0, 99, 14.9)], &[KeyLoad { key: 9, load: 5.0 }]);
        let other = LoadMap::new(&[range(50, 149, 10.0)], &[]);
        let both = LoadMap::sum(&[one, other]);
        assert!(near(both.total(), 24.9));
        assert!(near(both.load_of(&Slice { low: 50, high: 99 }), 5.0 + 5.0), "{both:?}");
        assert_eq!(both.keys().len(), 1);
        assert!(near(both.keys()[0].load, 5.0));
    }

    #[test]
    fn fixed_parts_show_what_a_fleet_without_a_planner_would_see() {
        let map = LoadMap::new(&[range(0, 9, 8.0)], &[]).with_uniform(4.0);
        assert!(near(map.static_peak(&[1.0; 4]), 9.0), "{}", map.static_peak(&[1.0; 4]));
    }
}
