//! Which replicas may a workload use? The slow loop of the brain: every few seconds it measures what
//! workloads ask for, gives each as many replicas as it needs, and plans which ones. The picker
//! then chooses among them. What a workload breaks it breaks there, and its caches are few.
//!
//! A pool with no more replicas than the floor is not divided at all, nor is one that has only seen
//! one workload: there is no other to protect from it. A dead replica is replaced at
//! once by the next in rendezvous order, which is the same in every router; the plan follows later.

mod demand;
mod orders;
mod planned;
mod reach;
mod rounds;
mod settings;
mod steps;
mod trouble;
mod view;

use std::sync::Arc;
use std::time::Duration;

use crate::domain::{Moment, SliceKey};
use crate::sharding::{
    Assignment, Bounds, FleetMember, Lookup, Planner, PlannerSettings, Rule, Slice,
};

pub use orders::Order;
pub(in crate::brain) use orders::Orders;
pub use reach::Beyond;
pub use settings::{SubsetSettings, WorkloadSettings};
pub use view::{AssignmentView, SliceView, WorkloadView};

use demand::SubsetDemand;
use planned::Planned;
pub(super) use planned::PlannedReplica;
pub(super) use reach::{Selection, Sight};
use rounds::Rounds;
use steps::Steps;
use trouble::Troubles;

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
    demand: SubsetDemand,
    assignment: Arc<Assignment>,
    /// `None` while the pool is not divided.
    lookup: Option<Lookup>,
    planned: Planned,
    orders: Orders,
    rounds: Rounds,
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
            demand: SubsetDemand::default(),
            assignment: Arc::new(Assignment::empty()),
            lookup: None,
            planned: Planned::default(),
            orders: Orders::default(),
            rounds: Rounds::default(),
            totals: SubsetTotals::default(),
            troubles: Troubles::default(),
            steps: Steps::default(),
        }
    }

    /// Notes that the replicas have changed.
    pub(super) const fn touch(&mut self) {
        self.rounds.touch();
    }

    pub(super) const fn is_stale(&self) -> bool {
        self.rounds.is_stale()
    }

    /// Tells whether a round is due.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.rounds.is_due(now)
    }

    /// Plans a round for the replicas that are there.
    pub(super) fn plan(&mut self, now: Moment, replicas: impl Iterator<Item = PlannedReplica>) {
        self.rounds.begin(now);
        self.planned.renew(replicas);
        let planned = &self.planned;
        self.orders.zones.retain(|place, _| planned.at(*place).is_some());
        let members = self.planned.members(now, &self.orders, &self.assignment);
        let is_single = self.assignment.is_empty() && self.demand.len() < 2;
        let is_ruled = !self.settings.workloads.is_empty() || !self.orders.pinned.is_empty();
        if !is_ruled && (is_single || !self.settings.divides(self.planned.count())) {
            self.lookup = None;
            return;
        }
        if self.assignment.is_empty() && self.lookup.is_none() {
            self.demand.seed_alone(now, self.planned.count());
        }
        if self.leads && !self.orders.frozen {
            self.plan_round(now, &members);
        }
        let roster = members.iter().filter(|it| !it.draining).map(|it| (it.place, it.capacity));
        let lookup = Lookup::new(Arc::clone(&self.assignment), roster);
        self.demand.reshape(now, &lookup);
        self.lookup = Some(lookup);
    }

    fn plan_round(&mut self, now: Moment, members: &[FleetMember]) {
        let rules = self.rules(now, members);
        let load = self.demand.map(now);
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
        (self.rounds.balance, self.rounds.churn) = (plan.balance, plan.churn);
        self.rounds.deeds = plan.deeds;
    }

    /// Sizes the workloads that need more than the floor, and those that are configured.
    fn rules(&mut self, now: Moment, members: &[FleetMember]) -> Vec<Rule> {
        let serving: Vec<&FleetMember> = members.iter().filter(|it| !it.draining).collect();
        let replicas = u32::try_from(serving.len()).unwrap_or(u32::MAX);
        let capacity =
            serving.iter().map(|it| it.capacity).sum::<f64>() / f64::from(replicas.max(1));
        let (settings, troubles, floor) = (&self.settings, &self.troubles, self.floor());
        let bounds_of = |workload| settings.bounds_of(workload, floor);
        let in_trouble = |workload| troubles.has(now, workload);
        let mut sizes = self.demand.sizes(now, (replicas, capacity), bounds_of, in_trouble);
        for it in &self.settings.workloads {
            sizes.entry(it.workload).or_insert(bounds_of(it.workload).floor);
        }
        for (workload, places) in &self.orders.pinned {
            sizes.insert(*workload, u32::try_from(places.len()).unwrap_or(1));
        }
        let exclusive = |workload: u32| self.settings.own(workload).is_some_and(|it| it.exclusive);
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

    /// The fewest replicas a workload has in a pool like this: all of them in one that is divided only
    /// for those that are pinned or configured.
    fn floor(&self) -> u32 {
        let count = self.planned.count();
        if self.settings.divides(count) {
            self.settings.floor_in(count)
        } else {
            u32::try_from(count).unwrap_or(u32::MAX)
        }
    }

    /// Counts a request that is sent: its work, and the tokens it leaves in a cache.
    pub(super) fn on_sent(&mut self, now: Moment, key: SliceKey, work_mu: f64, tokens: u32) {
        self.demand.add(now, self.lookup.as_ref(), key, work_mu, tokens);
    }

    /// Counts the rounds that were planned.
    pub(super) const fn rounds_planned(&self) -> u64 {
        self.totals.rounds
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
