//! Poison: requests that bring replicas down. This machine knows what is in flight, which deaths it was at and
//! what was served whole, and says of each request whether it may go, must wait or is refused. It sees no other
//! machine; the brain tells it what happened.

mod company;
mod completions;
mod death;
mod flights;
mod quarantine;
mod retry_hold;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::{Moment, ReplicaId, RequestId, SliceKey};
use crate::fleet::{Fleet, Replica};

use super::event::Refusal;
use super::request::{Booking, Fingerprint};

pub use quarantine::QuarantineSettings;

pub(super) use death::Witness;
use flights::{Flight, Flights};
use quarantine::{Judgement, Quarantine};
pub(super) use retry_hold::{HeldBack, RetryHold};

#[derive(Debug)]
pub(super) struct Poison {
    quarantine: Quarantine,
    flights: Flights,
    /// The requests that may not be tried again yet.
    pub(super) hold: RetryHold,
}

/// How far a quarantine reaches: a prompt, and what is around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuarantineScope {
    Request,
    Session,
    /// Sessions of the workload that were not there before.
    NewSessions,
    Workload,
}

impl QuarantineScope {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Session => "session",
            Self::NewSessions => "new_sessions",
            Self::Workload => "workload",
        }
    }
}

/// Whether a request may be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clearance {
    Free,
    /// It waits until more is known of it, or of its copies.
    Wait,
    /// It has waited for long enough.
    Refuse(Refusal),
}

/// A request that is held from now on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conviction {
    pub(super) scope: QuarantineScope,
    /// The replicas that went down with it, the last one last.
    pub(super) places: Vec<ReplicaId>,
}

impl Poison {
    pub(super) fn new(settings: QuarantineSettings) -> Self {
        let (flights, hold) = (Flights::default(), RetryHold::default());
        Self { quarantine: Quarantine::new(settings), flights, hold }
    }

    /// Takes over what an earlier brain knew of requests that bring replicas down.
    pub(super) fn inherit(&mut self, old: &mut Self, settings: QuarantineSettings) {
        self.quarantine = std::mem::replace(&mut old.quarantine, Quarantine::new(settings));
    }

    /// Counts the requests held now, and all that were ever held.
    pub(super) fn held(&self) -> (usize, u64) {
        (self.quarantine.held(), self.quarantine.held_total())
    }

    /// Tells whether nothing is held and nothing suspected, which is the usual case.
    pub(super) fn is_clear(&self) -> bool {
        self.quarantine.is_empty()
    }

    pub(super) fn on_sent(&mut self, request: RequestId, booking: &Booking) {
        self.flights.on_sent(request, booking);
    }

    /// Notes the first sign of an answer.
    pub(super) fn on_answering(&mut self, request: RequestId) {
        self.flights.on_answering(request);
    }

    pub(super) fn on_closed(&mut self, request: RequestId) {
        self.flights.on_closed(request);
    }

    /// Notes that a replica died, or hangs, with what is in flight there.
    pub(super) fn on_death(&mut self, now: Moment, replica: ReplicaId) {
        let there = self.flights.iter().filter(|it| it.replica == replica);
        let witnesses = there.map(|it| (it.key, it.fingerprint, it.is_new));
        self.quarantine.on_death(now, replica, witnesses);
    }

    /// Notes that a replica is truly gone. Returns the requests that were there, if that was not known before.
    pub(super) fn on_confirmed(&mut self, now: Moment, replica: ReplicaId) -> Option<&[Witness]> {
        self.quarantine.on_confirmed(now, replica)
    }

    /// Notes a death that another router confirmed.
    pub(super) fn on_death_elsewhere(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        witnesses: &[Witness],
    ) {
        self.quarantine.on_death_elsewhere(now, replica, witnesses);
    }

    /// Holds what another router holds.
    pub(super) fn hold_elsewhere(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
        left: Duration,
    ) {
        self.quarantine.hold_elsewhere(now, key, fingerprint, left);
    }

    /// Frees what another router has seen served whole.
    pub(super) fn clear_elsewhere(&mut self, now: Moment, key: SliceKey, fingerprint: Fingerprint) {
        self.quarantine.clear_elsewhere(now, key, fingerprint);
    }

    /// Lists the requests that are held, and for how long.
    pub(super) fn list_held(
        &self,
        now: Moment,
    ) -> impl Iterator<Item = (SliceKey, Fingerprint, Duration)> + '_ {
        self.quarantine.list_held(now)
    }

    /// Notes that a request sent before a replica's supposed death goes on there.
    pub(super) fn on_survivor(&mut self, now: Moment, replica: ReplicaId, sent_at: Moment) {
        self.quarantine.on_survivor(now, replica, sent_at);
    }

    /// Notes that a request was served whole; tells whether it was held, by mistake then.
    pub(super) fn on_served(&mut self, now: Moment, booking: &Booking) -> bool {
        self.quarantine.clear(now, booking.key, booking.fingerprint)
    }

    /// Tells whether a request is held. `is_known` says that its session was served before.
    pub(super) fn scope_of(
        &self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
        is_known: bool,
    ) -> Option<QuarantineScope> {
        self.quarantine.check(now, key, fingerprint, is_known)
    }

    /// Judges a request by the deaths it was at, and holds it from now on if it is to blame.
    pub(super) fn judge(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
    ) -> Option<Conviction> {
        let Judgement::Guilty(scope) = self.quarantine.judge(now, key, fingerprint) else {
            return None;
        };
        Some(Conviction { scope, places: self.quarantine.places(fingerprint) })
    }

    /// Says whether a request that is not held may be sent; it has waited since `since`. `pauses` says that its
    /// workload is to send nothing now.
    pub(super) fn clearance(
        &self,
        now: Moment,
        since: Moment,
        booking: &Booking,
        pauses: bool,
    ) -> Clearance {
        let Booking { key, fingerprint, .. } = *booking;
        let must_wait = pauses
            || self.quarantine.is_open(now, key, fingerprint)
            || 0 < self.suspicion(now, fingerprint) && 0 < self.flights.copies(fingerprint);
        match must_wait {
            false => Clearance::Free,
            true if retry_hold::WAIT_MAX <= now.since(since) => Clearance::Refuse(Self::refusal()),
            true => Clearance::Wait,
        }
    }

    /// The refusal of a request that has waited as long as it may.
    pub(super) const fn refusal() -> Refusal {
        Refusal::Suspected { retry_after: retry_hold::WAIT_MAX }
    }

    fn suspicion(&self, now: Moment, fingerprint: Fingerprint) -> usize {
        self.quarantine.suspicion(now, fingerprint)
    }

    /// Lists where a request should not be tried again: where it was, and replicas that have more requests as
    /// suspect as this one than others do. Once suspects are apart, the next death shows which one it was.
    pub(super) fn places_to_avoid(
        &self,
        now: Moment,
        booking: &Booking,
        fleet: &Fleet,
    ) -> Vec<ReplicaId> {
        let mut avoid = booking.past.tried.clone();
        let own = self.suspicion(now, booking.fingerprint);
        if own == 0 {
            return avoid;
        }
        let mut suspects: BTreeMap<ReplicaId, usize> = BTreeMap::new();
        for it in self.flights.iter() {
            if own <= self.suspicion(now, it.fingerprint) {
                *suspects.entry(it.replica).or_default() += 1;
            }
        }
        let count = |it: &Replica| suspects.get(&it.id).copied().unwrap_or(0);
        let is_usable = |it: &&Replica| {
            0.0 < it.weight && it.admits(now) && !booking.past.tried.contains(&it.id)
        };
        let least = fleet.iter().filter(is_usable).map(count).min().unwrap_or(0);
        avoid.extend(fleet.iter().filter(|it| least < count(it)).map(|it| it.id));
        avoid
    }

    /// Tells whether a request is suspect and a second copy of it is in flight.
    pub(super) fn has_company(&self, now: Moment, fingerprint: Fingerprint) -> bool {
        0 < self.suspicion(now, fingerprint) && 1 < self.flights.copies(fingerprint)
    }

    /// Tells whether its index is what the books say is in flight.
    pub(super) fn matches<'a>(
        &self,
        books: impl ExactSizeIterator<Item = (&'a RequestId, &'a Booking)>,
    ) -> bool {
        let mut books = books;
        self.flights.len() == books.len()
            && books.all(|(request, it)| self.flights.get(*request) == Some(&Flight::of(it)))
    }
}
