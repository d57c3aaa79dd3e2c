//! What operators see of an assignment: slices, which replicas hold them and why, what they carry, and how well
//! it is balanced.

use std::sync::Arc;

use crate::domain::{Moment, Place, SliceKey};
use crate::sharding::{
    Assignment, Balance, Churn, Generation, Held, KeyLoad, LoadMap, PlanActions, Slice,
    SliceReason, expected_overlap,
};

use super::demand::SubsetDemand;
use super::{SubsetTotals, Subsets};

/// A session that asks for more than this part of a replica stands out.
const HOT_PART: f64 = 0.1;

/// The assignment of one pool, with figures.
#[derive(Clone, Debug, PartialEq)]
pub struct AssignmentView {
    pub generation: Generation,
    /// Whether workloads have subsets at all; a small pool is not divided.
    pub divided: bool,
    pub frozen: bool,
    pub drained: Vec<Place>,
    pub slices: Vec<SliceView>,
    pub workloads: Vec<WorkloadView>,
    pub hot_keys: Vec<KeyLoad>,
    /// How many replicas two workloads of the smallest size share on average.
    pub overlap_expected: f64,
    pub balance: Balance,
    /// Of the last round.
    pub churn: Churn,
    pub deeds: PlanActions,
    pub totals: SubsetTotals,
    /// To be kept over a restart.
    pub assignment: Arc<Assignment>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SliceView {
    pub slice: Slice,
    pub holders: Vec<Place>,
    pub why: SliceReason,
    pub since: u64,
    /// The replica that held the state before.
    pub previous: Option<Place>,
    pub mu_per_min: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct WorkloadView {
    pub workload: u32,
    /// What the configuration calls it.
    pub name: Option<String>,
    pub replicas: Vec<Place>,
    pub mu_per_min: f64,
    pub pinned: bool,
    pub exclusive: bool,
}

impl Subsets {
    pub(crate) fn view(&self, now: Moment) -> AssignmentView {
        let load = self.demand.map(now);
        let divided = self.lookup.is_some();
        let slice = |it: Held<'_>| SliceView {
            slice: it.slice,
            holders: it.holders.to_vec(),
            why: it.why,
            since: it.since,
            previous: it.previous,
            mu_per_min: load.load_of(&it.slice) * 60.0,
        };
        let slices = if divided { self.assignment.iter().map(slice).collect() } else { Vec::new() };
        let replicas = u32::try_from(self.planned.iter().len()).unwrap_or(u32::MAX);
        AssignmentView {
            generation: self.assignment.generation(),
            divided,
            frozen: self.orders.frozen,
            drained: self.orders.drained.clone(),
            slices,
            workloads: self.workload_views(now),
            hot_keys: if divided { self.hot_keys(&load) } else { Vec::new() },
            overlap_expected: expected_overlap(self.floor(), self.floor(), replicas),
            balance: self.rounds.balance,
            churn: self.rounds.churn,
            deeds: self.rounds.deeds,
            totals: self.totals,
            assignment: Arc::clone(&self.assignment),
        }
    }

    /// Lists the sessions that stand out: each asks for more than a tenth of what a usual replica can do.
    fn hot_keys(&self, load: &LoadMap) -> Vec<KeyLoad> {
        let serving = self.planned.iter().filter(|it| !it.closed && !it.out);
        let (count, capacity) = serving.fold((0.0, 0.0), |(count, capacity), it| {
            (count + 1.0, capacity + it.capacity_mu_per_min / 60.0)
        });
        let hot = HOT_PART * capacity / f64::max(count, 1.0);
        load.keys().iter().filter(|it| hot < it.load).copied().collect()
    }

    fn workload_views(&self, now: Moment) -> Vec<WorkloadView> {
        let demand = self.demand.top(now, SubsetDemand::per_s() * 60.0);
        let view = |workload: u32, mu_per_min: f64| {
            let low = SliceKey(Slice::of_prefix(workload).low);
            let held = self.lookup.as_ref().map(|it| it.holders(low).to_vec());
            let pinned = self.orders.pinned.get(&workload);
            let own = self.settings.own(workload);
            WorkloadView {
                workload,
                name: own.map(|it| it.name.clone()),
                replicas: pinned.cloned().or(held).unwrap_or_default(),
                mu_per_min,
                pinned: pinned.is_some(),
                exclusive: own.is_some_and(|it| it.exclusive),
            }
        };
        let mut views: Vec<WorkloadView> =
            demand.iter().map(|it| view(u32::try_from(it.key).unwrap_or(0), it.load)).collect();
        let quiet = self.settings.workloads.iter().map(|it| it.workload);
        let quiet: Vec<u32> =
            quiet.filter(|it| views.iter().all(|view| view.workload != *it)).collect();
        views.extend(quiet.into_iter().map(|it| view(it, 0.0)));
        views
    }
}
