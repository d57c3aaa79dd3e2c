//! What do we know of each replica? Who is there, what was sent, whether it may be sent more. It
//! never chooses and never asks: whoever holds the fleet tells it what happened.

mod breaker;
mod tempo;
mod vigil;

use std::sync::Arc;
use std::time::Duration;

use crate::cost::Hardware;
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
    /// What work takes there.
    pub hardware: Arc<Hardware>,
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
    pub watch: Watch,
}

/// What is known of how a replica does its work.
#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    pub vigil: Vigil,
    pub tempo: Tempo,
    /// Prompts that wait to be read there or are being read, in microseconds of reading them cold.
    pub reading_us: u64,
    /// The same of all prompts whose first token has come.
    pub read_us_total: u64,
    /// When it was last asked for a token, and how long that may take; `None` once it is told.
    pub asked: Option<(Moment, Duration)>,
    pub last_asked: Moment,
    /// Whether nobody listened at its address when it was last looked at.
    pub was_refused: bool,
    /// Requests beyond our own that its engine told of, at the last report and the one before.
    foreign: [u32; 2],
    /// When its engine was last seen at work by its reports.
    works_at: Option<Moment>,
}

/// For so long a report is believed that shows an engine at work; one that never changes again is
/// frozen, and says nothing.
const WORKS_FOR: Duration = Duration::from_secs(10);

impl Watch {
    /// Notes how many requests its engine has, and how many of them are ours. Counts are taken at
    /// slightly different moments, so only what two reports agree on is somebody else's. Returns
    /// whether the engine was at work between the two.
    pub fn on_report(&mut self, report: &Report, before: Option<&Report>, own: u32) -> bool {
        let all = report.running.saturating_add(report.waiting);
        self.foreign = [all.saturating_sub(own), self.foreign[0]];
        // What waits may grow in front of a hung engine; what it holds and runs does not change.
        let works = before.is_some_and(|it| {
            let moved = (it.kv_used_share - report.kv_used_share).abs();
            it.running != report.running || f64::EPSILON < moved
        });
        if works {
            self.works_at = Some(report.taken_at);
        }
        works
    }

    /// Tells whether others than this router have given it work.
    pub fn has_foreign_work(&self, now: Moment) -> bool {
        let works = self.works_at.is_some_and(|at| now.since(at) < WORKS_FOR);
        works && self.foreign.iter().all(|it| 0 < *it)
    }
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
        let (sent_total, failed_total, in_flight) = (0, 0, 0);
        Self {
            id,
            name,
            weight,
            hardware,
            leaving: false,
            breaker,
            in_flight,
            sent_total,
            failed_total,
            place,
            report: None,
            watch: Watch::default(),
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

    pub fn on_sent(&mut self, now: Moment) {
        self.watch.vigil.on_sent(now, self.in_flight);
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

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Replica> {
        self.0.iter_mut()
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
