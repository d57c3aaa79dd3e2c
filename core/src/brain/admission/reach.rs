//! Where requests that wait may go, in a pool that is divided: the replicas of their workload's subset, and
//! beyond it those it may spill to once every replica inside has a longer line than the class should wait.
//! The subsets decide that for one request at a time; here it is kept for every workload that waits, so
//! that the next one is found without asking them for each. It is looked up anew every second, and
//! the pick itself asks the subsets again.

use std::time::Duration;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::domain::{ReplicaId, SliceKey, span_ms};

use super::Admission;
use super::assess::Parked;
use super::lanes::{Fill, LaneKey, fill_of};

/// How many workloads that no longer wait are kept before they are cleared away, beside as many as wait.
const SPARE: usize = 64;

/// Where the workloads that wait may go.
#[derive(Debug, Default)]
pub(super) struct Reaches {
    /// By workload. About as many as wait, so bounded as the line is.
    table: FxHashMap<u32, Reach>,
    /// By class: a request that would wait longer than this inside its subset may go beyond.
    spill_wait_ms: Vec<f64>,
}

/// Where the requests of one workload may go.
#[derive(Debug)]
pub(in crate::brain) struct Reach {
    /// Any of its keys: a workload is never divided itself.
    pub(in crate::brain) key: SliceKey,
    pub(in crate::brain) inside: Vec<ReplicaId>,
    pub(in crate::brain) beyond: Vec<ReplicaId>,
}

impl Reach {
    /// Lists how full the replicas are that may take a request. Those beyond the subset are among them only
    /// if the wait at each replica inside is longer than `spill_wait_ms`.
    pub(super) fn fills<'a>(
        &'a self,
        fills: &'a [Fill],
        spill_wait_ms: f64,
    ) -> impl Iterator<Item = &'a Fill> + Clone {
        let of = |ids: &'a [ReplicaId]| ids.iter().filter_map(|it| fill_of(fills, *it));
        let spills = of(&self.inside).all(|it| spill_wait_ms < it.wait_ms);
        of(&self.inside).chain(of(if spills { &self.beyond } else { &[] }))
    }
}

impl Reaches {
    pub(super) fn get(&self, workload: u32) -> Option<&Reach> {
        self.table.get(&workload)
    }

    pub(super) fn spill_wait_ms(&self, class: usize) -> f64 {
        self.spill_wait_ms.get(class).copied().unwrap_or(0.0)
    }
}

impl Admission {
    /// Tells whether it must be found out where a request that is about to wait may go.
    pub(in crate::brain) fn lacks_reach(&mut self, parked: &Parked) -> bool {
        if !parked.is_divided || self.reaches.table.contains_key(&parked.key.workload()) {
            return false;
        }
        if SPARE + 2 * self.waiting.line().len() < self.reaches.table.len() {
            self.forget_reaches();
        }
        true
    }

    /// Lists a key of each workload that waits and may not go everywhere.
    pub(in crate::brain) fn reached(&mut self) -> Vec<SliceKey> {
        if self.reaches.table.is_empty() {
            return Vec::new();
        }
        self.forget_reaches();
        self.reaches.table.values().map(|it| it.key).collect()
    }

    /// Notes where requests of a workload may go; everywhere, if the pool is not divided any more. `spill_wait`
    /// turns the TTFT promised to a class into how long its requests may wait inside their subset.
    pub(in crate::brain) fn set_reach(
        &mut self,
        workload: u32,
        reach: Option<Reach>,
        spill_wait: impl Fn(Option<Duration>) -> Duration,
    ) {
        let Some(reach) = reach else {
            self.reaches.table.remove(&workload);
            return;
        };
        let classes = self.settings.classes.iter();
        let spill_wait_ms = classes.map(|it| span_ms(spill_wait(it.1.promise.first_token)));
        self.reaches.spill_wait_ms = spill_wait_ms.collect();
        self.reaches.table.insert(workload, reach);
    }

    /// Forgets the workloads of which no request waits.
    fn forget_reaches(&mut self) {
        let lanes = self.waiting.line().lanes().map(LaneKey::from);
        let waiting: FxHashSet<u32> = lanes.filter_map(|it| it.workload).collect();
        self.reaches.table.retain(|workload, _| waiting.contains(workload));
    }
}
