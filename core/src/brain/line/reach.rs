//! Where those who wait may go, in a pool that is divided: the replicas of their workload's subset, and
//! beyond it those it may spill to once everybody inside has a longer line than the class should wait.
//! The subsets decide that for one request at a time; here it is kept for every workload that waits, so
//! that who goes next is found without asking them for each. It is looked up anew every second, and
//! the pick itself asks the subsets again.

use rustc_hash::{FxHashMap, FxHashSet};

use crate::domain::{Moment, ReplicaId, SliceKey, span_ms};

use super::super::Brain;
use super::hold::Parked;
use super::lanes::{Fill, LaneKey, fill_of};

/// How many workloads that no longer wait are kept before they are cleared away, beside as many as wait.
const SPARE: usize = 64;

/// Where the workloads that wait may go.
#[derive(Debug, Default)]
pub(super) struct Reaches {
    /// By workload. About as many as wait, so bounded as the line is.
    table: FxHashMap<u32, Reach>,
    /// By class: who waits longer inside may go beyond.
    patience_ms: Vec<f64>,
}

/// Where the requests of one workload may go.
#[derive(Debug)]
pub(super) struct Reach {
    /// Any of its keys: a workload is never divided itself.
    key: SliceKey,
    inside: Vec<ReplicaId>,
    beyond: Vec<ReplicaId>,
}

impl Reach {
    /// Lists how full those are that may take a request which is content to wait so long.
    pub(super) fn fills<'a>(
        &'a self,
        fills: &'a [Fill],
        patience_ms: f64,
    ) -> impl Iterator<Item = &'a Fill> + Clone {
        let of = |ids: &'a [ReplicaId]| ids.iter().filter_map(|it| fill_of(fills, *it));
        let spills = of(&self.inside).all(|it| patience_ms < it.wait_ms);
        of(&self.inside).chain(of(if spills { &self.beyond } else { &[] }))
    }
}

impl Reaches {
    pub(super) fn get(&self, workload: u32) -> Option<&Reach> {
        self.table.get(&workload)
    }

    pub(super) fn patience_ms(&self, class: usize) -> f64 {
        self.patience_ms.get(class).copied().unwrap_or(0.0)
    }
}

impl Brain {
    /// Notes where a request that is about to wait may go, if it may not go everywhere.
    pub(super) fn note_reach(&mut self, now: Moment, parked: &Parked) {
        let workload = parked.key.workload();
        if !parked.is_divided || self.hold.reaches.table.contains_key(&workload) {
            return;
        }
        if SPARE + 2 * self.hold.line.len() < self.hold.reaches.table.len() {
            self.forget_reaches();
        }
        self.look_up_reach(now, parked.key);
    }

    /// Looks up anew where those who wait may go.
    pub(in super::super) fn refresh_reaches(&mut self, now: Moment) {
        if self.hold.reaches.table.is_empty() {
            return;
        }
        self.forget_reaches();
        let keys: Vec<SliceKey> = self.hold.reaches.table.values().map(|it| it.key).collect();
        for key in keys {
            self.look_up_reach(now, key);
        }
    }

    /// Forgets the workloads of which nobody waits.
    fn forget_reaches(&mut self) {
        let lanes = self.hold.line.lanes().map(LaneKey::from);
        let waiting: FxHashSet<u32> = lanes.filter_map(|it| it.workload).collect();
        self.hold.reaches.table.retain(|workload, _| waiting.contains(workload));
    }

    fn look_up_reach(&mut self, now: Moment, key: SliceKey) {
        if !self.select_subset_of(now, key) {
            // The pool is not divided any more.
            self.hold.reaches.table.remove(&key.workload());
            return;
        }
        let (fleet, subsets) = (&self.fleet, &mut self.subsets);
        let allowed = |it: &crate::brain::subsets::Subsets| -> Vec<ReplicaId> {
            fleet.iter().filter(|one| it.allows(one.place)).map(|it| it.id).collect()
        };
        let inside = allowed(subsets);
        let mut beyond = Vec::new();
        if subsets.spill(now, key) {
            beyond = allowed(subsets);
            beyond.retain(|it| !inside.contains(it));
        }
        let classes = self.settings.line.classes.iter();
        let patience = classes.map(|it| span_ms(subsets.patience(it.1.first_token)));
        self.hold.reaches.patience_ms = patience.collect();
        self.hold.reaches.table.insert(key.workload(), Reach { key, inside, beyond });
    }
}
