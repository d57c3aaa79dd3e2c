//! Heavy hitters in bounded memory: which keys carry most of the load lately. Counts decay by half
//! in every half-life, done by letting new ones weigh more, so that nothing is ever scanned to be
//! aged. When the table is full, the median count is taken off every key and keys with nothing left
//! go, which costs a constant time per addition; what was taken off bounds the error.
//!
//! It counts keys of the whole key space and knows no slices, so splits and merges leave it alone.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::Moment;

use super::load::KeyLoad;

/// Weights are brought down again before they lose precision.
const GROWTH_MAX: f64 = 1e12;

/// Counts by key, the small ones forgotten.
#[derive(Clone, Debug)]
pub struct Sketch {
    counts: IndexMap<u64, f64, FxBuildHasher>,
    keys_max: usize,
    half_life_s: f64,
    /// What an addition weighs at `began`; it doubles with every half-life from there.
    began: Moment,
    /// The most that any key was denied, in weight.
    denied: f64,
    /// Reused when the table is full.
    spare: Vec<f64>,
}

impl Sketch {
    /// Makes a sketch of at most `keys_max` keys: any key above `2 / keys_max` of all load is in it.
    pub fn new(keys_max: usize, half_life: Duration) -> Self {
        Self {
            counts: IndexMap::default(),
            keys_max: keys_max.max(2),
            half_life_s: half_life.as_secs_f64().max(1e-3),
            began: Moment::ZERO,
            denied: 0.0,
            spare: Vec::new(),
        }
    }

    pub fn add(&mut self, now: Moment, key: u64, load: f64) {
        let mut growth = self.growth(now);
        if GROWTH_MAX < growth {
            self.rebase(now);
            growth = 1.0;
        }
        *self.counts.entry(key).or_insert(0.0) += load.max(0.0) * growth;
        if self.keys_max < self.counts.len() {
            self.thin();
        }
    }

    /// Estimates what a key carried over the last half-lives: never more than it did, and less by
    /// at most [`Self::error`].
    pub fn estimate(&self, now: Moment, key: u64) -> f64 {
        self.counts.get(&key).map_or(0.0, |it| it / self.growth(now))
    }

    pub fn error(&self, now: Moment) -> f64 {
        self.denied / self.growth(now)
    }

    /// Lists the keys that carry at least `load_min`, hottest first; `scale` turns decayed sums
    /// into the caller's unit.
    pub fn top(&self, now: Moment, load_min: f64, scale: f64) -> Vec<KeyLoad> {
        let growth = self.growth(now);
        let all = self.counts.iter();
        let loads = all.map(|(key, it)| KeyLoad { key: *key, load: it / growth * scale });
        let mut top: Vec<KeyLoad> = loads.filter(|it| load_min <= it.load).collect();
        top.sort_unstable_by(|a, b| b.load.total_cmp(&a.load).then(a.key.cmp(&b.key)));
        top
    }

    /// Counts the keys it knows.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.counts.is_empty()
    }

    fn growth(&self, now: Moment) -> f64 {
        (now.since(self.began).as_secs_f64() / self.half_life_s).exp2()
    }

    fn rebase(&mut self, now: Moment) {
        let growth = self.growth(now);
        self.counts.values_mut().for_each(|it| *it /= growth);
        self.counts.retain(|_, it| 1e-9 < *it);
        self.denied /= growth;
        self.began = now;
    }

    fn thin(&mut self) {
        self.spare.clear();
        self.spare.extend(self.counts.values());
        let middle = self.spare.len() / 2;
        let median = *self.spare.select_nth_unstable_by(middle, f64::total_cmp).1;
        self.counts.values_mut().for_each(|it| *it -= median);
        self.counts.retain(|_, it| 0.0 < *it);
        self.denied += median;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HALF_LIFE: Duration = Duration::from_secs(10);

    #[test]
    fn a_hot_key_is_found_among_a_million_cold_ones() {
        let mut sketch = Sketch::new(64, HALF_LIFE);
        for number in 0..1_000_000_u64 {
            sketch.add(Moment::ZERO, number, 1.0);
            if number % 10 == 0 {
                sketch.add(Moment::ZERO, 7, 1.0);
            }
        }
        let top = sketch.top(Moment::ZERO, 50_000.0, 1.0);
        assert_eq!(top.iter().map(|it| it.key).collect::<Vec<_>>(), [7]);
        assert!(sketch.len() <= 64);
    }

    #[test]
    fn load_halves_in_every_half_life_and_is_forgotten_in_the_end() {
        let mut sketch = Sketch::new(8, HALF_LIFE);
        sketch.add(Moment::ZERO, 1, 8.0);
        let later = Moment::ZERO + HALF_LIFE * 3;
        assert!((sketch.estimate(later, 1) - 1.0).abs() < 1e-9);
        let much_later = Moment::ZERO + HALF_LIFE * 100;
        sketch.add(much_later, 2, 1.0);
        assert_eq!(sketch.top(much_later, 1e-6, 1.0).len(), 1);
    }

    proptest::proptest! {
        #[test]
        fn estimates_are_below_the_truth_by_at_most_the_error(
            additions in proptest::collection::vec((0_u64..40, 0.0..10.0, 0_u64..3), 1..400),
        ) {
            let (mut sketch, mut now) = (Sketch::new(10, HALF_LIFE), Moment::ZERO);
            let mut truth = std::collections::BTreeMap::<u64, f64>::new();
            for (key, load, seconds) in additions {
                let passed = Duration::from_secs(seconds);
                now = now + passed;
                let kept = (-passed.as_secs_f64() / HALF_LIFE.as_secs_f64()).exp2();
                for it in truth.values_mut() {
                    *it *= kept;
                }
                *truth.entry(key).or_default() += load;
                sketch.add(now, key, load);
            }
            let total: f64 = truth.values().sum();
            proptest::prop_assert!(sketch.error(now) <= total * 2.0 / 10.0 + 1e-6);
            for (key, truth) in truth {
                let low = sketch.estimate(now, key);
                proptest::prop_assert!(low <= truth + 1e-6 && truth <= low + sketch.error(now) + 1e-6);
            }
        }
    }
}
