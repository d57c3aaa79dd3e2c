//! What workloads ask for, and how many replicas each needs for it.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::{Moment, SliceKey};
use crate::sharding::{
    Bounds, KeyLoad, LoadMap, LoadMeter, Lookup, MeterSettings, Sizer, SizerSettings, Sketch,
};

/// Demand is an average over about half a minute, so that a burst moves no workload.
const DEMAND_HALF_LIFE: Duration = Duration::from_secs(20);
/// Workloads whose demand is known; any above a two-thousandth of all load is among them.
const WORKLOADS_MAX: usize = 4096;
/// Shares of all demand are shares of this part of what the pool can do at least: the first workload of an idle pool
/// has all of the demand, and needs next to nothing.
const IDLE_PART: f64 = 0.05;
/// The part of a pool beyond which a workload only grows by what it needs.
const SHARE_PART: f64 = 0.5;
/// The part of all demand from which on a workload had the pool to itself.
const ALONE_PART: f64 = 0.9;

#[derive(Debug)]
pub(super) struct SubsetDemand {
    sizer: Sizer,
    meter: LoadMeter,
    sketch: Sketch,
}

impl Default for SubsetDemand {
    fn default() -> Self {
        Self {
            sizer: Sizer::new(SizerSettings::default()),
            meter: LoadMeter::new(MeterSettings { half_life: DEMAND_HALF_LIFE, keys_max: 1024 }),
            sketch: Sketch::new(WORKLOADS_MAX, DEMAND_HALF_LIFE),
        }
    }
}

impl SubsetDemand {
    /// Counts a request that is sent: its work, and the tokens it leaves in a cache.
    pub(super) fn add(
        &mut self,
        now: Moment,
        lookup: Option<&Lookup>,
        key: SliceKey,
        work_mu: f64,
        tokens: u32,
    ) {
        self.sketch.add(now, u64::from(key.workload()), work_mu);
        if let Some(lookup) = lookup {
            self.meter.add(now, lookup, key, work_mu, f64::from(tokens));
        }
    }

    /// Counts the workloads that are known.
    pub(super) fn len(&self) -> usize {
        self.sketch.len()
    }

    /// Lists what each workload asks for, the most first; `scale` turns decayed sums into the caller's unit.
    pub(super) fn top(&self, now: Moment, scale: f64) -> Vec<KeyLoad> {
        self.sketch.top(now, 0.0, scale)
    }

    /// Turns decayed sums into model units a second.
    pub(super) fn per_s() -> f64 {
        std::f64::consts::LN_2 / DEMAND_HALF_LIFE.as_secs_f64()
    }

    /// Shows what is asked for by key.
    pub(super) fn map(&self, now: Moment) -> LoadMap {
        self.meter.map(now)
    }

    /// Measures by the slices of a new assignment from now on.
    pub(super) fn reshape(&mut self, now: Moment, lookup: &Lookup) {
        self.meter.reshape(now, lookup);
    }

    /// Takes a workload for one that needs as many replicas.
    pub(super) fn seed(&mut self, now: Moment, workload: u32, replicas: u32) {
        self.sizer.seed(now, workload, replicas);
    }

    /// Lets the workload that had the pool to itself keep all of it; it shrinks from there.
    pub(super) fn seed_alone(&mut self, now: Moment, replicas: usize) {
        let demand = self.top(now, 1.0);
        let total: f64 = demand.iter().map(|it| it.load).sum();
        let alone = demand.iter().find(|it| ALONE_PART * total < it.load);
        if let Some(workload) = alone.and_then(|it| u32::try_from(it.key).ok()) {
            self.seed(now, workload, u32::try_from(replicas).unwrap_or(u32::MAX));
        }
    }

    /// Sizes the workloads that need more than their floor, in a pool of `replicas` that each do `capacity`.
    /// What is sent again and again because replicas die under it (`in_trouble`) is not demand.
    pub(super) fn sizes(
        &mut self,
        now: Moment,
        (replicas, capacity): (u32, f64),
        bounds_of: impl Fn(u32) -> Bounds,
        in_trouble: impl Fn(u32) -> bool,
    ) -> BTreeMap<u32, u32> {
        let pool = capacity * f64::from(replicas);
        let demand = self.top(now, Self::per_s());
        let total: f64 = demand.iter().map(|it| it.load).sum();
        let mut loads: BTreeMap<u32, f64> = self.sizer.grown().map(|it| (it, 0.0)).collect();
        loads.extend(demand.iter().map(|it| (u32::try_from(it.key).unwrap_or(0), it.load)));
        let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
        for (workload, load) in loads {
            let bounds = bounds_of(workload);
            let load = if in_trouble(workload) { 0.0 } else { load };
            // Its part of the pool is what it may have while no other wants it, as far as the pool has work at all.
            let share = load / total.max(IDLE_PART * pool).max(f64::MIN_POSITIVE);
            let load = load.max(share.min(SHARE_PART) * pool * self.sizer.target());
            let size = self.sizer.size(now, workload, load, capacity, bounds);
            if bounds.floor < size {
                sizes.insert(workload, size);
            }
        }
        sizes
    }
}
