//! Whom to choose: who may take a request at all, inside its subset as far as that will do, who of these
//! has room and would be in time, and, last, what the policy says.

use crate::domain::{Moment, ReplicaId};
use crate::fleet::Replica;
use crate::policy::{Ask, Candidate};

use super::accounts::candidate;
use super::health::anybody_is_up;
use super::request::Booking;
use super::request::Due;
use super::{Brain, Refusal};

/// Why nobody is chosen for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Unpicked {
    Nobody,
    /// Somebody could take it, but nobody in time; the soonest first token would take so long.
    TooLate {
        first_token_ms: f64,
    },
}

impl Brain {
    /// Tells whether anybody may be chosen for a request. Those who may are the candidates then.
    pub(super) fn could_pick(&mut self, ask: &Ask<'_>) -> bool {
        self.gather_closed_home(ask, &[]) || self.gather_any(ask, &[])
    }

    /// Gathers those who may be chosen, inside the subset as far as that will do; tells whether there
    /// is any.
    pub(super) fn gather_any(&mut self, ask: &Ask<'_>, tried: &[ReplicaId]) -> bool {
        let now = ask.now;
        let divided = self.select_subset(ask, tried);
        self.gather(now, tried, divided, |it| it.admits(now));
        if divided && self.should_spill(ask) && self.subsets.spill(now, ask.key) {
            self.gather(now, tried, divided, |it| it.admits(now));
        }
        if self.candidates.is_empty() {
            // A request that lost a replica has few tries: it waits for a token rather than be a trial.
            let is_retry = !tried.is_empty();
            let admits =
                |it: &Replica| it.admits_at_need(now) && !(is_retry && it.breaker.may_come_back());
            self.gather(now, tried, divided, admits);
        }
        if self.candidates.is_empty() {
            // Better a replica that has not shown itself yet than none.
            self.gather(now, tried, divided, Replica::is_joining);
        }
        !self.candidates.is_empty()
    }

    /// Chooses among those with room in the eyes of `has_room`, or among all where none has any, and of
    /// these among those who would be in time. The only place where policies are asked.
    pub(super) fn pick_among(
        &mut self,
        ask: &Ask<'_>,
        tried: &[ReplicaId],
        due: Due,
        has_room: impl Fn(&Candidate) -> bool,
    ) -> Result<ReplicaId, Unpicked> {
        let closed = self.gather_closed_home(ask, tried);
        if !closed && !self.gather_any(ask, tried) {
            return Err(Unpicked::Nobody);
        }
        if self.candidates.iter().any(&has_room) {
            self.candidates.retain(has_room);
        }
        let first_token_ms = self.retain_timely(ask, due);
        let Some(first) = self.candidates.first() else {
            return Err(Unpicked::TooLate { first_token_ms });
        };
        if closed {
            let home = first.id;
            // It was not chosen among others.
            self.candidates.clear();
            return Ok(home);
        }
        let ask = Ask { home: self.sessions.home(ask.now, ask.key), ..*ask };
        let chosen = self.policy.pick(&ask, &self.candidates, &mut self.chance);
        self.subsets.on_picked(self.candidates[chosen].place);
        Ok(self.candidates[chosen].id)
    }

    /// Leaves those out who would be too late by prediction; says how long the soonest would take.
    fn retain_timely(&mut self, ask: &Ask<'_>, due: Due) -> f64 {
        if due == Due::default() {
            return 0.0;
        }
        let mut terms = std::mem::take(&mut self.terms);
        terms.clear();
        self.policy.terms(ask, &self.candidates, &mut terms);
        let (mut position, mut soonest_ms) = (0, f64::INFINITY);
        self.candidates.retain(|it| {
            let weighed = terms.get(position).map(|it| it.ttft_ms);
            position += 1;
            soonest_ms = soonest_ms.min(weighed.unwrap_or(it.books.wait_ms));
            due.can_be_met(ask.now, it.books.wait_ms, weighed)
        });
        self.terms = terms;
        soonest_ms
    }

    /// Makes the session's replica the one candidate, if that takes no new sessions but may keep this
    /// one; says whether it is so.
    fn gather_closed_home(&mut self, ask: &Ask<'_>, tried: &[ReplicaId]) -> bool {
        if !self.policy.keeps_sessions() {
            return false;
        }
        let home = self.closed_home(ask, tried).and_then(|it| self.fleet.get(it));
        let Some(home) = home else { return false };
        let home = candidate(home, ask.now, self.fleet.strangers_usual());
        self.candidates.clear();
        self.candidates.push(home);
        true
    }

    /// Finds the session's replica if that takes no new sessions but may keep this one.
    pub(super) fn closed_home(&self, ask: &Ask<'_>, tried: &[ReplicaId]) -> Option<ReplicaId> {
        if self.fleet.iter().all(|it| 0.0 < it.weight) {
            return None;
        }
        let home = self.sessions.home(ask.now, ask.key)?;
        let replica = self.fleet.get(home)?;
        (replica.weight <= 0.0 && replica.admits(ask.now) && !tried.contains(&home)).then_some(home)
    }

    fn gather(
        &mut self,
        now: Moment,
        tried: &[ReplicaId],
        divided: bool,
        admits: impl Fn(&Replica) -> bool,
    ) {
        let usual = self.fleet.strangers_usual();
        self.candidates.clear();
        self.candidates.extend(
            self.fleet
                .iter()
                .filter(|it| 0.0 < it.weight && admits(it) && !tried.contains(&it.id))
                .filter(|it| self.subsets.admits(divided, it))
                .map(|it| candidate(it, now, usual)),
        );
    }

    pub(super) fn pick_again(
        &mut self,
        now: Moment,
        booking: &Booking,
    ) -> Result<ReplicaId, Refusal> {
        if self.settings.retries.tries_max <= booking.tries() {
            return Err(Refusal::TriesSpent);
        }
        // What lost a replica, perhaps by its own doing, is no trial for one that is out.
        if booking.past.was_lost && !anybody_is_up(&self.fleet) && self.somebody_may_come(booking) {
            return Err(Refusal::TriesSpent);
        }
        let (ask, avoid) =
            (booking.ask(now), self.poison.places_to_avoid(now, booking, &self.fleet));
        let due = booking.estimate.due;
        let picked = self.pick_among(&ask, &avoid, due, |_| true);
        let picked = picked.or_else(|_| self.pick_among(&ask, &booking.tried, due, |_| true));
        let replica = picked.map_err(|it| match it {
            Unpicked::Nobody => Refusal::TriesSpent,
            Unpicked::TooLate { .. } => Refusal::DeadlineUnmeetable,
        })?;
        // A first attempt is not a retry, so it is free.
        let is_free = booking.tried.is_empty();
        if is_free || self.budget.pay(booking.key.workload()) {
            Ok(replica)
        } else {
            Err(Refusal::BudgetSpent)
        }
    }
}
