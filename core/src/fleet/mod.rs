//! What do we know of each replica? Who is there, what was sent, whether it may be sent more. It
//! never chooses and never asks: whoever holds the fleet tells it what happened.

mod breaker;
mod tempo;
mod vigil;

use crate::domain::{Moment, Place, ReplicaId, Report};

pub use breaker::{Breaker, BreakerSettings, Probe, Reason, Standing};
pub use tempo::{Tempo, median};
pub use vigil::{Pace, Silence, Verdict, Vigil, Work, hung_after};

/// One replica, as the router sees it.
#[derive(Debug)]
pub struct Replica {
    pub id: ReplicaId,
    /// Its address.
    pub name: String,
    /// Its share of sessions.
    pub weight: f64,
    /// It takes nothing more and goes when it is done.
    pub leaving: bool,
    pub breaker: Breaker,
    /// Requests sent and not yet ended.
    pub in_flight: u32,
    pub sent_total: u64,
    pub failed_total: u64,
    pub place: Place,
    /// What its engine said last.
    pub report: Option<Report>,
}

/// A replica's state as operators see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct State {
    /// `joining`, `up`, `suspect`, `out`, `trial`, or `leaving`.
    pub name: &'static str,
    pub reason: Option<Reason>,
}

impl Replica {
    pub fn new(id: ReplicaId, name: String, weight: f64, settings: BreakerSettings) -> Self {
        let place = Place::of(&name);
        let breaker = Breaker::new(settings);
        let (sent_total, failed_total, in_flight) = (0, 0, 0);
        Self {
            id,
            name,
            weight,
            leaving: false,
            breaker,
            in_flight,
            sent_total,
            failed_total,
            place,
            report: None,
        }
    }

    pub const fn state(&self) -> State {
        let standing = self.breaker.standing();
        let name = if self.leaving { "leaving" } else { standing.as_str() };
        State { name, reason: standing.reason() }
    }

    /// Tells whether a request may be sent here now.
    pub fn admits(&self, now: Moment) -> bool {
        !self.leaving && self.breaker.admits(now) && self.has_room()
    }

    /// Tells whether it may be sent something when nobody else is there: it takes work, but too much
    /// for one that has just come back, or it is suspected.
    pub fn admits_at_need(&self, now: Moment) -> bool {
        let suspect = matches!(self.breaker.standing(), Standing::Suspect { .. });
        !self.leaving && (suspect || self.breaker.admits(now))
    }

    fn has_room(&self) -> bool {
        self.breaker.room().is_none_or(|room| self.in_flight < room)
    }

    pub fn on_sent(&mut self) {
        self.in_flight += 1;
        self.sent_total += 1;
        self.breaker.on_sent();
    }

    pub fn on_ended(&mut self) {
        assert!(0 < self.in_flight, "{} ended more requests than were sent to it", self.id);
        self.in_flight -= 1;
    }

    pub fn on_failure(&mut self, now: Moment, reason: Reason) {
        self.failed_total += 1;
        self.breaker.on_failure(now, reason);
    }
}

/// The replicas of one pool, in order of id.
#[derive(Debug, Default)]
pub struct Fleet(Vec<Replica>);

impl Fleet {
    pub fn iter(&self) -> impl Iterator<Item = &Replica> {
        self.0.iter()
    }

    pub fn get(&self, id: ReplicaId) -> Option<&Replica> {
        self.position(id).map(|at| &self.0[at])
    }

    pub fn get_mut(&mut self, id: ReplicaId) -> Option<&mut Replica> {
        self.position(id).map(|at| &mut self.0[at])
    }

    /// Adds a replica. Ids only grow, which keeps the list in order.
    pub fn join(&mut self, replica: Replica) {
        assert!(self.0.last().is_none_or(|last| last.id < replica.id), "replica ids only grow");
        self.0.push(replica);
    }

    pub fn leave(&mut self, id: ReplicaId) {
        self.0.retain(|it| it.id != id);
    }

    fn position(&self, id: ReplicaId) -> Option<usize> {
        self.0.binary_search_by_key(&id, |it| it.id).ok()
    }
}
