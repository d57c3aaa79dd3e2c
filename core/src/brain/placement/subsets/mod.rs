//! Which replicas may a workload use? The slow loop of the brain: every few seconds it measures what
//! workloads ask for, gives each as many replicas as it needs, and plans which ones. The picker
//! then chooses among them. What a workload breaks it breaks there, and its caches are few.
//!
//! A pool with no more replicas than the floor is not divided at all, nor is one that has only seen
//! one workload: there is no other to protect from it. A dead replica is replaced at
//! once by the next in rendezvous order, which is the same in every router; the plan follows later.

mod orders;
mod reach;
mod settings;
mod steps;
mod trouble;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::domain::{Moment, Place, ReplicaId, SliceKey};
use crate::sharding::{
    Assignment, Balance, Bounds, Churn, FleetMember, LoadMeter, Lookup, MeterSettings, PlanActions,
    Planner, PlannerSettings, Rule, Sizer, SizerSettings, Sketch, Slice,
};

pub use orders::Order;
pub(in crate::brain) use orders::Orders;
pub use reach::Beyond;
pub use settings::{SubsetSettings, WorkloadSettings};
pub use view::{AssignmentView, SliceView, WorkloadView};

pub(super) use reach::{Selection, Sight};
use steps::Steps;
use trouble::Troubles;

/// How often is planned.
const PLAN_INTERVAL: Duration = Duration::from_secs(2);
/// How long a replica may be out before its slices are given to others for good.
const OUT_MAX: Duration = Duration::from_secs(60);
/// How long after a start replicas may be missing that an assignment from before names.
const RETURN_MAX: Duration = Duration::from_secs(30);
/// Workloads whose demand is known; any above a two-thousandth of all load is among them.
const WORKLOADS_MAX: usize = 4096;
/// Shares of all demand are shares of this part of what the pool can do at least: the first workload of an idle pool
/// has all of the demand, and needs next to nothing.
const IDLE_PART: f64 = 0.05;
/// The part of a pool beyond which a workload only grows by what it needs.
const SHARE_PART: f64 = 0.5;
/// The part of all demand from which on a workload had the pool to itself.
const ALONE_PART: f64 = 0.9;
/// Demand is an average over about half a minute, so that a burst moves no workload.
const DEMAND_HALF_LIFE: Duration = Duration::from_secs(20);

/// What the planner is told of one replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct PlannedReplica {
    pub(super) id: ReplicaId,
    pub(super) place: Place,
    pub(super) capacity_mu_per_min: f64,
    /// It takes nothing new.
    pub(super) closed: bool,
    pub(super) out: bool,
}

/// What has happened in all rounds so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct SubsetTotals {
    pub rounds: u64,
    /// Rounds that changed something.
    pub changes: u64,
    pub removal: f64,
    pub addition: f64,
    pub choice: f64,
    pub spilled: u64,
    /// Requests that a stand-in might have taken, because a holder was out.
    pub stood_in: u64,
    /// Prompt tokens that were computed again because their session had moved.
    pub moved_tokens: u64,
}

#[derive(Debug)]
pub(super) struct Subsets {
    settings: SubsetSettings,
    /// This router among others, of which one plans for all.
    planner: Option<u64>,
    /// Whether this router plans.
    leads: bool,
    sizer: Sizer,
    meter: LoadMeter,
    demand: Sketch,
    assignment: Arc<Assignment>,
    /// `None` while the pool is not divided.
    lookup: Option<Lookup>,
    planned: Vec<PlannedReplica>,
    /// How many there are, those included that are expected back after a start.
    replicas: usize,
    /// Since when a replica has been out, as far as planning saw it.
    out_since: BTreeMap<Place, Moment>,
    /// Replicas that an assignment from before names, until when they are waited for.
    expected: Option<Moment>,
    orders: Orders,
    /// The replicas have changed since the last round.
    stale: bool,
    planned_at: Moment,
    balance: Balance,
    churn: Churn,
    deeds: PlanActions,
    totals: SubsetTotals,
    /// Workloads under which replicas die.
    troubles: Troubles,
    /// Where workloads went beyond their subsets last.
    steps: Steps,
}

impl Subsets {
    pub(super) fn new(settings: SubsetSettings) -> Self {
        Self {
            settings,
            planner: None,
            leads: true,
            sizer: Sizer::new(SizerSettings::default()),
            meter: LoadMeter::new(MeterSettings { half_life: DEMAND_HALF_LIFE, keys_max: 1024 }),
            demand: Sketch::new(WORKLOADS_MAX, DEMAND_HALF_LIFE),
            assignment: Arc::new(Assignment::empty()),
            lookup: None,
            planned: Vec::new(),
            replicas: 0,
            out_since: BTreeMap::new(),
            expected: None,
            orders: Orders::default(),
            stale: true,
            planned_at: Moment::ZERO,
            balance: Balance::default(),
            churn: Churn::default(),
            deeds: PlanActions::default(),
            totals: SubsetTotals::default(),
            troubles: Troubles::default(),
            steps: Steps::default(),
        }
    }

    /// Notes that the replicas have changed.
    pub(super) const fn touch(&mut self) {
        self.stale = true;
    }

    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// Tells whether a round is due: time has passed, or a replica has come or gone.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.stale || PLAN_INTERVAL <= now.since(self.planned_at)
    }

    /// Plans a round for the replicas that are there.
    pub(super) fn plan(&mut self, now: Moment, replicas: impl Iterator<Item = PlannedReplica>) {
        self.stale = false;
        self.planned_at = now;
        self.planned.clear();
        self.planned.extend(replicas);
        self.planned.sort_unstable_by_key(|it| it.place);
        let replicas = &self.planned;
        let is_there = |place: &Place| replicas.binary_search_by_key(place, |it| it.place).is_ok();
        self.orders.zones.retain(|place, _| is_there(place));
        let members = self.members(now);
        self.replicas = self.planned.len().max(members.len());
        let is_single = self.assignment.is_empty() && self.demand.len() < 2;
        let is_ruled = !self.settings.workloads.is_empty() || !self.orders.pinned.is_empty();
        if !is_ruled && (is_single || !self.settings.divides(self.replicas)) {
            self.lookup = None;
            return;
        }
        if self.assignment.is_empty() {
            self.seed_sizes(now);
        }
        if self.leads && !self.orders.frozen {
            self.plan_round(now, &members);
        }
        let roster = members.iter().filter(|it| !it.draining).map(|it| (it.place, it.capacity));
        let lookup = Lookup::new(Arc::clone(&self.assignment), roster);
        self.meter.reshape(now, &lookup);
        self.lookup = Some(lookup);
    }

    /// Lets the workload that had the pool to itself keep all of it when it is divided first; it shrinks from there.
    fn seed_sizes(&mut self, now: Moment) {
        let demand = self.demand.top(now, 0.0, 1.0);
        let total: f64 = demand.iter().map(|it| it.load).sum();
        let alone = demand.iter().find(|it| ALONE_PART * total < it.load);
        let workload = alone.and_then(|it| u32::try_from(it.key).ok());
        if let Some(workload) = workload.filter(|_| self.lookup.is_none()) {
            let replicas = u32::try_from(self.replicas).unwrap_or(u32::MAX);
            self.sizer.seed(now, workload, replicas);
        }
    }

    fn plan_round(&mut self, now: Moment, members: &[FleetMember]) {
        let rules = self.rules(now, members);
        let load = self.meter.map(now);
        let planner = Planner::new(planner_settings(self.floor()));
        let plan = planner.plan(now, &self.assignment, members, &rules, &load);
        let total = plan.churn.total.max(f64::MIN_POSITIVE);
        let is_changed = !Arc::ptr_eq(&plan.assignment, &self.assignment);
        self.totals.rounds += 1;
        self.totals.changes += u64::from(is_changed);
        self.totals.removal += plan.churn.removal / total;
        self.totals.addition += plan.churn.addition / total;
        self.totals.choice += plan.churn.choice / total;
        // One of several planners begins a history of its own, so that two never give one number to two plans.
        let other =
            self.planner.filter(|it| is_changed && !self.assignment.generation().is_by(*it));
        self.assignment = match other {
            Some(own) => Arc::new(Arc::unwrap_or_clone(plan.assignment).reborn_by(own)),
            None => plan.assignment,
        };
        self.balance = plan.balance;
        self.churn = plan.churn;
        self.deeds = plan.deeds;
    }

    /// Lists which replicas to plan for: those that are there and not out for long, and for a while after a
    /// start those that were there before.
    fn members(&mut self, now: Moment) -> Vec<FleetMember> {
        let out: Vec<Place> = self.planned.iter().filter(|it| it.out).map(|it| it.place).collect();
        self.out_since.retain(|place, _| out.contains(place));
        for place in out {
            self.out_since.entry(place).or_insert(now);
        }
        let present = self.planned.iter().filter(|it| !self.is_lost(now, it.place));
        let mut members: Vec<FleetMember> = present
            .map(|it| FleetMember {
                draining: it.closed || self.orders.drained.contains(&it.place),
                zone: self.orders.zones.get(&it.place).copied().unwrap_or(0),
                ..FleetMember::new(it.place, it.capacity_mu_per_min / 60.0)
            })
            .collect();
        if self.expected.is_some_and(|until| now < until) {
            let known = |place: &Place| self.planned.iter().any(|it| it.place == *place);
            let usual = members.first().map_or(1.0, |it| it.capacity);
            let absent = self.assignment.all_holders().into_iter().filter(|it| !known(it));
            members.extend(absent.map(|it| FleetMember::new(it, usual)));
        } else {
            self.expected = None;
        }
        members
    }

    /// Sizes the workloads that need more than the floor, and those that are configured.
    fn rules(&mut self, now: Moment, members: &[FleetMember]) -> Vec<Rule> {
        let serving: Vec<&FleetMember> = members.iter().filter(|it| !it.draining).collect();
        let replicas = u32::try_from(serving.len()).unwrap_or(u32::MAX);
        let capacity =
            serving.iter().map(|it| it.capacity).sum::<f64>() / f64::from(replicas.max(1));
        let pool = capacity * f64::from(replicas);
        let per_s = std::f64::consts::LN_2 / DEMAND_HALF_LIFE.as_secs_f64();
        let demand = self.demand.top(now, 0.0, per_s);
        let total: f64 = demand.iter().map(|it| it.load).sum();
        let mut loads: BTreeMap<u32, f64> = self.sizer.grown().map(|it| (it, 0.0)).collect();
        loads.extend(demand.iter().map(|it| (u32::try_from(it.key).unwrap_or(0), it.load)));
        let mut sizes: BTreeMap<u32, u32> = BTreeMap::new();
        for (workload, load) in loads {
            let bounds = self.bounds_of(workload);
            // What is sent again and again because replicas die under it is not demand.
            let load = if self.troubles.has(now, workload) { 0.0 } else { load };
            // Its part of the pool is what it may have while no other wants it, as far as the pool has work at all.
            let share = load / total.max(IDLE_PART * pool).max(f64::MIN_POSITIVE);
            let load = load.max(share.min(SHARE_PART) * pool * self.sizer.target());
            let size = self.sizer.size(now, workload, load, capacity, bounds);
            if bounds.floor < size {
                sizes.insert(workload, size);
            }
        }
        for it in &self.settings.workloads {
            sizes.entry(it.workload).or_insert(self.bounds_of(it.workload).floor);
        }
        for (workload, places) in &self.orders.pinned {
            sizes.insert(*workload, u32::try_from(places.len()).unwrap_or(1));
        }
        let exclusive = |workload: u32| self.own(workload).is_some_and(|it| it.exclusive);
        sizes
            .into_iter()
            .map(|(workload, size)| Rule {
                slice: Slice::of_prefix(workload),
                bounds: Bounds { floor: size, cap: size },
                whole: true,
                exclusive: exclusive(workload),
            })
            .collect()
    }

    fn own(&self, workload: u32) -> Option<&WorkloadSettings> {
        self.settings.workloads.iter().find(|it| it.workload == workload)
    }

    fn bounds_of(&self, workload: u32) -> Bounds {
        let common = Bounds { floor: self.floor(), cap: self.settings.cap };
        self.own(workload).map_or(common, |it| Bounds {
            floor: it.floor.map_or(common.floor, |it| it.max(1)),
            cap: it.cap.unwrap_or(common.cap),
        })
    }

    /// The fewest replicas a workload has in a pool like this: all of them in one that is divided only
    /// for those that are pinned or configured.
    fn floor(&self) -> u32 {
        if self.settings.divides(self.replicas) {
            self.settings.floor_in(self.replicas)
        } else {
            u32::try_from(self.replicas).unwrap_or(u32::MAX)
        }
    }

    /// Counts a request that is sent: its work, and the tokens it leaves in a cache.
    pub(super) fn on_sent(&mut self, now: Moment, key: SliceKey, work_mu: f64, tokens: u32) {
        self.demand.add(now, u64::from(key.workload()), work_mu);
        if let Some(lookup) = &self.lookup {
            self.meter.add(now, lookup, key, work_mu, f64::from(tokens));
        }
    }

    /// Counts the rounds that were planned.
    pub(super) const fn rounds_planned(&self) -> u64 {
        self.totals.rounds
    }

    fn replica_at(&self, place: Place) -> Option<&PlannedReplica> {
        let found = self.planned.binary_search_by_key(&place, |it| it.place).ok()?;
        Some(&self.planned[found])
    }

    /// Measures the memory of its tables.
    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.demand.len() * 32 + self.assignment.len() * 64 + self.assignment.holders_total() * 8
    }
}

/// What the planner aims at. The picker balances inside a subset, so a few slices for each replica
/// will do.
fn planner_settings(floor: u32) -> PlannerSettings {
    PlannerSettings {
        slices_min: 8,
        slices_max: 16,
        band: 0.1,
        churn_max: 0.05,
        cool_down: Duration::from_secs(120),
        bounds: Bounds { floor, cap: floor },
        // A workload at the floor shares its slice with others, and is in no second one.
        grain_bits: 32,
        ..PlannerSettings::default()
    }
}

#[cfg(test)]
mod tests;
