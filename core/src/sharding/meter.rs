//! Measures load by slice and by key while requests pass, for the planner. Rates are averages with a
//! half-life of a few seconds: a step of load is half visible after one. When the assignment changes
//! the counts are laid over the new slices; nothing is measured anew from zero.

use std::time::Duration;

use crate::domain::{Moment, SliceKey};

use super::load::{KeyLoad, LoadMap, RangeLoad};
use super::lookup::Lookup;
use super::numbers::count;
use super::sketch::Sketch;
use super::slice::Slice;

/// A key below this share of all load is not worth telling of.
const HOT_SHARE_MIN: f64 = 1e-3;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MeterSettings {
    pub half_life: Duration,
    /// How many keys the sketch may hold; 24 bytes each.
    pub keys_max: usize,
}

impl Default for MeterSettings {
    fn default() -> Self {
        Self { half_life: Duration::from_secs(5), keys_max: 4096 }
    }
}

/// Load seen by one observer.
#[derive(Clone, Debug)]
pub struct LoadMeter {
    settings: MeterSettings,
    slices: Vec<Slice>,
    /// Decayed sums of load and state as of `aged_at`.
    sums: Vec<[f64; 2]>,
    aged_at: Moment,
    began_at: Option<Moment>,
    sketch: Sketch,
}

impl LoadMeter {
    pub fn new(settings: MeterSettings) -> Self {
        Self {
            settings,
            slices: vec![Slice::ALL],
            sums: vec![[0.0; 2]],
            aged_at: Moment::ZERO,
            began_at: None,
            sketch: Sketch::new(settings.keys_max, settings.half_life),
        }
    }

    /// Counts one request: what it costs, and the state it leaves behind.
    pub fn add(&mut self, now: Moment, lookup: &Lookup, key: SliceKey, load: f64, state: f64) {
        self.age(now);
        self.began_at.get_or_insert(now);
        self.sketch.add(now, key.0, load);
        if let Some([load_sum, state_sum]) = self.sums.get_mut(lookup.position(key)) {
            *load_sum += load;
            *state_sum += state;
        }
    }

    /// Goes over to the slices of another assignment, keeping what was counted.
    pub fn reshape(&mut self, now: Moment, lookup: &Lookup) {
        let map = self.map(now);
        self.age(now);
        let scale = self.scale(now);
        self.slices = lookup.assignment().iter().map(|it| it.slice).collect();
        let sums = |it: &Slice| [map.load_of(it) / scale, map.state_of(it) / scale];
        self.sums = self.slices.iter().map(sums).collect();
    }

    /// Tells the load per second, by slice and for hot keys.
    pub fn map(&self, now: Moment) -> LoadMap {
        let kept = self.kept(now);
        let scale = self.scale(now) * kept;
        let ranges: Vec<RangeLoad> = self
            .slices
            .iter()
            .zip(&self.sums)
            .filter(|(_, sums)| 0.0 < sums[0])
            .map(|(slice, [load, state])| {
                let (load, state) = (load * scale, state * scale);
                RangeLoad { slice: *slice, load, state }
            })
            .collect();
        let total: f64 = ranges.iter().map(|it| it.load).sum();
        let load_min = (total * HOT_SHARE_MIN).max(total / count(self.settings.keys_max) * 4.0);
        let keys: Vec<KeyLoad> =
            if 0.0 < total { self.sketch.top(now, load_min, self.scale(now)) } else { Vec::new() };
        LoadMap::new(&ranges, &keys)
    }

    /// Turns a decayed sum into a rate per second: while less than a few half-lives have been seen,
    /// the sum covers less time.
    fn scale(&self, now: Moment) -> f64 {
        let half_life_s = self.settings.half_life.as_secs_f64();
        let whole = half_life_s / std::f64::consts::LN_2;
        let seen = self.began_at.map_or(0.0, |it| now.since(it).as_secs_f64());
        let covered = 1.0 - (-seen / half_life_s).exp2();
        1.0 / (whole * covered.max(0.1))
    }

    fn kept(&self, now: Moment) -> f64 {
        (-now.since(self.aged_at).as_secs_f64() / self.settings.half_life.as_secs_f64()).exp2()
    }

    fn age(&mut self, now: Moment) {
        // In steps, because this walks all slices.
        if Duration::from_millis(250) <= now.since(self.aged_at) {
            let kept = self.kept(now);
            self.sums.iter_mut().flatten().for_each(|it| *it *= kept);
            self.aged_at = now;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::assignment::Assignment;
    use super::super::generation::Generation;
    use super::*;

    fn lookup(borders: &[u64]) -> Lookup {
        let row = Assignment::empty().get(0).to_row();
        let lows = [0].into_iter().chain(borders.iter().copied());
        let highs = borders.iter().map(|it| it - 1).chain([u64::MAX]);
        let rows = lows.zip(highs).map(|(low, high)| {
            let mut row = row.clone();
            row.slice = Slice { low, high };
            row
        });
        let assignment = Assignment::from_rows(Generation::default(), rows.collect::<Vec<_>>());
        Lookup::new(Arc::new(assignment.unwrap()), [])
    }

    fn at_ms(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_steady_rate_is_told_as_it_is_from_early_on() {
        let (mut meter, lookup) = (LoadMeter::new(MeterSettings::default()), lookup(&[]));
        for ms in 0..20_000 {
            meter.add(at_ms(ms), &lookup, SliceKey(ms << 48), 2.0, 1.0);
            if ms == 2_000 {
                let rate = meter.map(at_ms(ms)).total();
                assert!((1800.0..2300.0).contains(&rate), "{rate}");
            }
        }
        let rate = meter.map(at_ms(20_000)).total();
        assert!((1850.0..2150.0).contains(&rate), "{rate}");
    }

    #[test]
    fn splits_and_merges_keep_rates_and_hot_keys() {
        let (mut meter, whole) = (LoadMeter::new(MeterSettings::default()), lookup(&[]));
        for ms in 0..10_000 {
            let key = if ms % 2 == 0 { 5 } else { ms << 45 };
            meter.add(at_ms(ms), &whole, SliceKey(key), 1.0, 1.0);
        }
        let now = at_ms(10_000);
        let before = meter.map(now);
        assert_eq!(before.keys().iter().map(|it| it.key).collect::<Vec<_>>(), [5]);
        meter.reshape(now, &lookup(&[5, 6, 1 << 60]));
        let split = meter.map(now);
        assert!((split.total() - before.total()).abs() < 1e-6 * before.total());
        let hot = split.load_of(&Slice::of_key(5));
        assert!((hot / before.keys()[0].load - 1.0).abs() < 1e-6, "{hot}");
        meter.reshape(now, &whole);
        let merged = meter.map(now);
        assert!((merged.total() - before.total()).abs() < 1e-6 * before.total());
        assert_eq!(merged.keys().len(), 1);
    }
}
