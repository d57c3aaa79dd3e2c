//! A fleet whose size follows a rule: replicas are asked for, are ready a start-up time later, and leave when they are
//! let go and have finished. What is paid for is counted from asking to leaving: a GPU that loads weights is taken too.

use std::collections::BTreeSet;
use std::time::Duration;

use cleave_core::domain::Moment;
use cleave_core::scaling;

use crate::measure::real;
use crate::scalers::{FleetView, LoadRecord, ScaleRule};

use super::World;
use super::heap::Happening;
use super::requests::index;

const LOOK: Duration = Duration::from_secs(1);
/// How much of what was seen a look before still counts in how long requests stay.
const FADES: f64 = 0.998;

/// The fleet at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FleetPoint {
    pub at: Moment,
    /// Model units a minute that were offered.
    pub offered_mu_per_min: f64,
    pub wanted: usize,
    pub ready: usize,
    pub starting: usize,
}

/// A rule and what it has led to.
#[derive(Debug)]
pub(super) struct Elastic {
    rule: Box<dyn ScaleRule>,
    start_up: Duration,
    /// When each replica that is not ready was asked for, by its number.
    starting: BTreeSet<(Moment, u64)>,
    asked: u64,
    wanted: usize,
    paid_ns: u128,
    looked_at: Moment,
    points: Vec<FleetPoint>,
    load: LoadRecord,
}

/// What a rule has led to.
#[derive(Clone, Debug)]
pub struct Sizing {
    pub replica_hours: f64,
    /// The fleet, second by second.
    pub points: Vec<FleetPoint>,
    pub load: LoadRecord,
}

impl World {
    /// Lets a rule size the fleet from now on.
    pub fn scale_with(&mut self, rule: Box<dyn ScaleRule>, start_up: Duration) {
        self.elastic = Some(Elastic {
            rule,
            start_up,
            starting: BTreeSet::new(),
            asked: 0,
            wanted: self.replicas.len(),
            paid_ns: 0,
            looked_at: self.now,
            points: Vec::new(),
            load: LoadRecord::default(),
        });
        self.heap.push(self.now + LOOK, Happening::Look);
    }

    /// What the rule has led to, if there is one.
    pub fn sizing(&self) -> Option<Sizing> {
        let it = self.elastic.as_ref()?;
        let paid = Duration::from_nanos(u64::try_from(it.paid_ns).unwrap_or(u64::MAX));
        let replica_hours = paid.as_secs_f64() / 3_600.0;
        Some(Sizing { replica_hours, points: it.points.clone(), load: it.load.clone() })
    }

    /// Looks at the fleet and does what the rule says.
    pub(super) fn look(&mut self) {
        let Some(mut elastic) = self.elastic.take() else { return };
        let there = self.replicas.iter().filter(|it| !it.is_gone()).count();
        let paid = u128::try_from(there + elastic.starting.len()).unwrap_or(0);
        elastic.paid_ns += paid * self.now.since(elastic.looked_at).as_nanos();
        elastic.looked_at = self.now;
        let view = self.view(elastic.starting.len());
        elastic.load.mu.push(view.sample.offered_mu);
        if let Some(capacity) = view.sample.capacity_mu_per_min {
            elastic.load.capacity_mu_per_min = capacity;
        }
        if let Some(wanted) = elastic.rule.look(self.now, &view) {
            elastic.wanted = wanted;
        }
        elastic.points.push(FleetPoint {
            at: self.now,
            offered_mu_per_min: view.sample.offered_mu * 60.0,
            wanted: elastic.wanted,
            ready: view.sample.ready,
            starting: elastic.starting.len(),
        });
        let (wanted, stays) = (elastic.wanted, self.staying());
        let have = stays + elastic.starting.len();
        for _ in have..wanted {
            elastic.asked += 1;
            elastic.starting.insert((self.now, elastic.asked));
            let (asked_at, number) = (self.now, elastic.asked);
            let at = self.now + elastic.start_up;
            self.heap.push(at, Happening::Started { asked_at, number });
        }
        let mut extra = have.saturating_sub(wanted);
        // One that has not started has nothing to lose.
        while 0 < extra && elastic.starting.pop_last().is_some() {
            extra -= 1;
        }
        self.elastic = Some(elastic);
        self.let_leave(extra);
        self.heap.push(self.now + LOOK, Happening::Look);
    }

    /// A replica that was asked for is ready, unless it was let go before.
    pub(super) fn started(&mut self, asked_at: Moment, number: u64) {
        let Some(elastic) = &mut self.elastic else { return };
        if elastic.starting.remove(&(asked_at, number)) {
            elastic.rule.on_ready(self.now.since(asked_at));
            self.join();
        }
    }

    fn staying(&self) -> usize {
        self.replicas.iter().filter(|it| !it.is_gone() && it.leaving_from == 0).count()
    }

    /// Lets the replicas leave whose caches are worth least.
    fn let_leave(&mut self, count: usize) {
        if count == 0 {
            return;
        }
        let Some(router) = self.routers.first() else { return };
        let holdings = router.brain.holdings(self.now);
        for replica in scaling::victims(&holdings, count) {
            self.drain(index(replica));
        }
    }

    fn view(&mut self, starting: usize) -> FleetView {
        let mut view = FleetView::default();
        for (number, router) in self.routers.iter_mut().enumerate() {
            let sample = router.brain.take_sample(self.now);
            view.waiting += router.brain.waiting_count();
            if number == 0 {
                view.sample = sample;
            } else {
                view.sample.offered_mu += sample.offered_mu;
                view.sample.beyond_contract_mu += sample.beyond_contract_mu;
                view.sample.held_mu += sample.held_mu;
                view.sample.refused_mu += sample.refused_mu;
                view.sample.kv_tokens_needed += sample.kv_tokens_needed;
            }
        }
        view.sample.starting += starting;
        for it in self.replicas.iter().filter(|it| it.is_up()) {
            let stats = it.engine.stats();
            view.waiting += stats.waiting;
            view.at_replicas += stats.running;
        }
        let ready = real(u64::try_from(view.sample.ready.max(1)).unwrap_or(u64::MAX));
        let capacity = view.sample.capacity_mu_per_min.unwrap_or(0.0).max(1e-9) / 60.0;
        view.utilisation = view.sample.offered_mu / (ready * capacity);
        let there = real(u64::try_from(view.at_replicas).unwrap_or(u64::MAX));
        self.flow = (FADES * self.flow.0 + there, FADES * self.flow.1 + view.sample.offered_mu);
        view.knee = if 0.0 < self.flow.1 { capacity * self.flow.0 / self.flow.1 } else { 1.0 };
        view
    }
}
