//! What do we know of each replica? Which replicas are there, what is booked there, how fast it is, whether it may
//! be sent more. It never chooses and never asks: the brain tells it what happened.

mod breaker;
mod hang;
mod ledger;
mod pace;
mod reported_load;
mod sent;
mod sequence_limit;
mod slow;
mod watch;

use std::sync::Arc;

use crate::cost::Hardware;
use crate::domain::{Moment, Place, ReplicaId};

pub use breaker::{Breaker, BreakerSettings, Probe, Reason, Standing};
pub use hang::{ExpectedSilence, HangDetector, HangVerdict, Silence, SilenceModel, SilentWork};
pub use ledger::{Drift, Elsewhere, Ledger, Load, ms, settled_us};
pub use pace::Pace;
pub use reported_load::{ReportedLoad, Strangers};
pub use sent::Sent;
pub use sequence_limit::SequenceLimit;
pub use slow::{SlowDetector, median};
pub use watch::Watch;

/// One replica, as the router sees it.
#[derive(Debug)]
pub struct Replica {
    pub id: ReplicaId,
    /// Its address.
    pub name: String,
    /// Its share of sessions.
    pub weight: f64,
    /// How long work takes there.
    pub hardware: Arc<Hardware>,
    /// It takes nothing more and goes when it is done.
    pub leaving: bool,
    pub breaker: Breaker,
    /// What this router sent there.
    pub sent: Sent,
    pub place: Place,
    /// What this router and those it hears of have booked there.
    pub ledger: Ledger,
    pub pace: Pace,
    /// What its engine says.
    pub reported: ReportedLoad,
    /// How it does its work.
    pub watch: Watch,
}

/// How long the next prompt waits at a replica for others to be read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Wait {
    /// For what this router and others have booked there. Only this may hold a request back: an engine that
    /// overstates its line would else stop its pool.
    pub booked_ms: f64,
    /// For what the engine says it has beyond that, or for its limit on how many run. It tells replicas apart.
    pub claimed_ms: f64,
}

/// A replica's state as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// `joining`, `up`, `suspect`, `out`, `trial`, or `leaving`.
    pub name: &'static str,
    pub reason: Option<Reason>,
}

impl Replica {
    pub fn new(
        id: ReplicaId,
        name: String,
        weight: f64,
        hardware: Arc<Hardware>,
        settings: BreakerSettings,
    ) -> Self {
        let place = Place::of(&name);
        let breaker = Breaker::new(settings);
        Self {
            id,
            name,
            weight: sensible(weight),
            hardware,
            leaving: false,
            breaker,
            sent: Sent::default(),
            place,
            ledger: Ledger::default(),
            pace: Pace::default(),
            reported: ReportedLoad::default(),
            watch: Watch::default(),
        }
    }

    /// Takes on another share of sessions.
    pub fn weigh(&mut self, weight: f64) {
        self.weight = sensible(weight);
    }

    pub const fn state(&self) -> State {
        let standing = self.breaker.standing();
        let name = if self.leaving { "leaving" } else { standing.as_str() };
        State { name, reason: standing.reason() }
    }

    /// Tells whether a request may be sent here now.
    pub fn admits(&self, now: Moment) -> bool {
        let has_room = self.breaker.room().is_none_or(|room| self.sent.in_flight() < room);
        !self.leaving && self.breaker.admits(now) && has_room
    }

    /// Tells whether it may be sent something when no other is there: it takes work, but too much
    /// for one that has just come back, or it is suspected, or its pause is over and it was not asked yet.
    pub fn admits_at_need(&self, now: Moment) -> bool {
        let suspect = matches!(self.breaker.standing(), Standing::Suspect { .. });
        !self.leaving && (suspect || self.breaker.admits_at_need(now))
    }

    /// Tells whether it has not shown itself yet.
    pub fn is_joining(&self) -> bool {
        !self.leaving && self.breaker.standing() == Standing::Joining
    }

    /// Tells whether its engine is at work for other routers or clients.
    pub fn has_foreign_work(&self, now: Moment) -> bool {
        let foreign = 1.0 <= self.reported.strangers() || 0 < self.ledger.elsewhere().in_flight();
        foreign && self.watch.is_working(now)
    }

    /// Books a request that is sent here.
    pub fn on_sent(&mut self, now: Moment, charge: Load) {
        self.watch.hang.on_sent(now, self.sent.in_flight());
        self.sent.on_sent();
        self.breaker.on_sent();
        self.ledger.book(now, charge);
        self.reported.on_sent(self.booked());
    }

    /// Books a request that another router sent here.
    pub fn on_sent_elsewhere(&mut self, now: Moment, charge: Load) {
        self.ledger.book_elsewhere(now, charge);
        self.reported.on_sent(self.booked());
    }

    /// Counts the requests that routers have here.
    pub const fn booked(&self) -> u32 {
        let (waiting, answering) = self.ledger.counts();
        waiting + answering
    }

    /// Closes the books on a request.
    pub fn on_ended(&mut self, now: Moment, charge: Load, answering: bool) {
        let is_known = 0 < self.sent.in_flight();
        assert!(is_known, "{} ended more requests than were sent to it", self.id);
        self.sent.on_ended();
        self.ledger.close(now, charge, answering);
        self.watch.sequence_limit.on_ended(now);
    }

    /// Predicts how long the next prompt waits here for others to be read, or to end where the engine runs no more at once:
    /// the one definition of that wait.
    pub fn wait(&self, now: Moment, strangers: &Strangers) -> Wait {
        let pace = self.pace.factor();
        let booked_ms = pace * ms(self.ledger.line_us(now, pace));
        let there = f64::from(self.booked()) + strangers.running + strangers.waiting;
        let beyond_ms = self.watch.sequence_limit.wait_ms(now, there) - booked_ms;
        let claimed_ms = pace * strangers.waiting * self.ledger.prefill_ms_mean();
        Wait { booked_ms, claimed_ms: claimed_ms.max(beyond_ms) }
    }

    /// The part of that wait that routers have booked.
    pub fn booked_wait_ms(&self, now: Moment) -> f64 {
        self.wait(now, &Strangers::default()).booked_ms
    }

    /// What this router has booked here in model units: work, in minutes of this class at its knee.
    pub fn in_flight_mu(&self) -> f64 {
        self.hardware.mu(self.ledger.own_load().work_ms())
    }

    /// How much work it does in a minute at the pace it has shown.
    pub fn capacity_mu_per_min(&self) -> f64 {
        self.hardware.capacity_mu_per_min / self.pace.factor()
    }

    /// The same as its pool may count on it: nothing of one that never came up.
    pub fn counted_mu_per_min(&self) -> f64 {
        let never_up = self.breaker.standing() == Standing::Joining;
        if never_up { 0.0 } else { self.capacity_mu_per_min() }
    }

    /// Prices its work anew; by that, work takes `stretch` times as long as was thought.
    pub fn reprice(&mut self, hardware: Arc<Hardware>, stretch: f64) {
        self.hardware = hardware;
        self.pace.rebase(stretch);
        self.watch.slow.rebase(stretch);
    }

    /// Notes that a connection broke under a request, which may be the request's own doing.
    pub fn on_loss(&mut self, now: Moment) {
        self.sent.on_failed();
        self.breaker.on_loss(now);
    }

    pub fn on_failure(&mut self, now: Moment, reason: Reason) {
        self.sent.on_failed();
        self.breaker.on_failure(now, reason);
    }
}

/// Treats an invalid weight as zero: such a replica takes no new sessions.
fn sensible(weight: f64) -> f64 {
    if weight.is_finite() { weight.max(0.0) } else { 0.0 }
}

/// The replicas of one pool, in order of id.
#[derive(Debug, Default)]
pub struct Fleet {
    replicas: Vec<Replica>,
    /// Requests that engines usually have beside those that routers know of.
    strangers_usual: f64,
}

impl Fleet {
    pub fn iter(&self) -> impl Iterator<Item = &Replica> + Clone {
        self.replicas.iter()
    }

    pub fn get(&self, id: ReplicaId) -> Option<&Replica> {
        self.position(id).map(|at| &self.replicas[at])
    }

    pub fn get_mut(&mut self, id: ReplicaId) -> Option<&mut Replica> {
        self.position(id).map(|at| &mut self.replicas[at])
    }

    pub const fn strangers_usual(&self) -> f64 {
        self.strangers_usual
    }

    /// Adds a replica. Ids only grow, which keeps the list in order.
    pub fn join(&mut self, replica: Replica) {
        let last = self.replicas.last();
        assert!(last.is_none_or(|last| last.id < replica.id), "replica ids only grow");
        self.replicas.push(replica);
    }

    pub fn leave(&mut self, id: ReplicaId) {
        self.replicas.retain(|it| it.id != id);
    }

    /// Compares the replicas with each other: which is slow, and what engines say beyond our books.
    pub fn on_time(&mut self, now: Moment) {
        for it in &mut self.replicas {
            it.reported.on_time(now, it.booked());
        }
        pace::compare(now, self.replicas.iter_mut().map(|it| &mut it.pace));
        let speaking = self.replicas.iter().filter(|it| it.reported.report().is_some());
        self.strangers_usual =
            reported_load::median(speaking.map(|it| it.reported.strangers()).collect());
    }

    fn position(&self, id: ReplicaId) -> Option<usize> {
        self.replicas.binary_search_by_key(&id, |it| it.id).ok()
    }
}
