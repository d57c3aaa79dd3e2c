//! The brain's side of subsets: it gathers candidates inside them, has rounds planned when they are
//! due, and passes orders on.

use crate::domain::{Moment, ReplicaId, RequestId, SliceKey, span_ms, span_of_ms};
use crate::fleet::{Fleet, Replica, Standing};

use super::super::request::Booking;
use super::super::{Ask, Brain};
use super::{AssignmentView, Order, Peer, Sight, Subsets};

const MINUTE_MS: f64 = 60_000.0;

impl Brain {
    /// Plans who may use whom, if it is time for that.
    pub(in crate::brain) fn plan_if_due(&mut self, now: Moment) {
        if self.subsets.is_due(now) {
            self.subsets.plan(now, self.fleet.iter().map(peer));
        }
    }

    /// Finds who may take a request; says whether that is less than everybody.
    pub(in crate::brain) fn select_subset(&mut self, ask: &Ask<'_>, tried: &[ReplicaId]) -> bool {
        if self.subsets.is_stale() {
            self.plan_if_due(ask.now);
        }
        let (fleet, now) = (&self.fleet, ask.now);
        let home = self.sessions.home(now, ask.key);
        self.subsets.select(now, ask.key, home, |it| sight(fleet, now, it, tried))
    }

    /// Does the same for whoever of a workload comes next, wherever its cache is.
    pub(in crate::brain) fn select_subset_of(&mut self, now: Moment, key: SliceKey) -> bool {
        let fleet = &self.fleet;
        self.subsets.select(now, key, None, |it| sight(fleet, now, it, &[]))
    }

    /// Tells whether a subset cannot do: nobody in it takes anything, everybody has a long line, or, where
    /// the policy predicts it, nobody would begin to answer soon.
    pub(in crate::brain) fn should_spill(&mut self, ask: &Ask<'_>) -> bool {
        let patience_ms = span_ms(self.subsets.patience(ask.first_token));
        if self.candidates.iter().all(|it| patience_ms < it.books.wait_ms) {
            return true;
        }
        let Some(promise) = ask.first_token else { return false };
        let longest_ms = span_ms(Subsets::first_token_max(promise));
        self.terms.clear();
        self.policy.terms(ask, &self.candidates, &mut self.terms);
        !self.terms.is_empty() && self.terms.iter().all(|it| longest_ms < it.ttft_ms)
    }

    pub(in crate::brain) fn obey(&mut self, now: Moment, order: Order) {
        let fleet = &self.fleet;
        self.subsets.obey(now, order, |it| fleet.get(it).map(|it| it.place));
    }

    /// Notes a request that is sent, for the sizes of subsets; once, however often it is tried.
    pub(in crate::brain) fn note_demand(&mut self, now: Moment, booking: &Booking) {
        let Some(it) = self.fleet.get(booking.replica) else { return };
        let expected = span_of_ms(booking.account.ttft_ms);
        let fleet = &self.fleet;
        let look = |it| sight(fleet, now, it, &[]);
        self.subsets.on_placed(now, booking.key, it.place, expected, look);
        if !booking.tried.is_empty() {
            return;
        }
        let work_ms = booking.account.charge.work_ms();
        let demand_mu = work_ms / MINUTE_MS * it.hardware.capacity_mu_per_min;
        let output = booking.outline.output_tokens.unwrap_or(0);
        let tokens = booking.outline.prompt_tokens.saturating_add(output);
        self.subsets.on_sent(now, booking.key, demand_mu, tokens);
    }

    /// Notes the first token of an answer, for what it says of its workload.
    pub(in crate::brain) fn note_answer(&mut self, request: RequestId) {
        let Some(booking) = self.requests.get(&request).filter(|it| it.began_in_time()) else {
            return;
        };
        if let Some(it) = self.fleet.get(booking.replica) {
            self.subsets.on_answering(booking.key, it.place);
        }
    }

    /// Counts a session that changed its replica, and what is computed again for that.
    pub(in crate::brain) fn note_move(&mut self, booking: &Booking) {
        if booking.moved_from.is_some() {
            self.sessions_moved_total += 1;
            let cached = booking.account.cached_tokens;
            self.subsets.on_moved(booking.outline.prompt_tokens.saturating_sub(cached));
        }
    }

    /// Names who served the session of a request before it moved to where it is now, and so may
    /// still have its state.
    pub fn moved_from(&self, request: RequestId) -> Option<ReplicaId> {
        self.requests.get(&request)?.moved_from
    }

    /// Counts the rounds that were planned.
    pub const fn rounds_planned(&self) -> u64 {
        self.subsets.totals.rounds
    }

    /// Shows which replicas hold which keys.
    pub fn assignment(&self, now: Moment) -> AssignmentView {
        self.subsets.view(now)
    }
}

impl Subsets {
    /// Tells whether a replica may take the request at hand; `divided` is what selecting said.
    pub(in crate::brain) fn admits(&self, divided: bool, replica: &Replica) -> bool {
        (!divided || self.allows(replica.place)) && !self.is_drained(replica.place)
    }
}

/// Looks at a replica for a request that was tried elsewhere already.
fn sight(fleet: &Fleet, now: Moment, replica: ReplicaId, tried: &[ReplicaId]) -> Option<Sight> {
    let it = fleet.get(replica)?;
    let takes = !tried.contains(&replica) && it.admits(now);
    Some(Sight { takes, out: is_out(it), heard_at: it.watch.hang.quiet_since() })
}

fn peer(replica: &Replica) -> Peer {
    Peer {
        id: replica.id,
        place: replica.place,
        capacity_mu_per_min: replica.weight * replica.capacity_mu_per_min(),
        closed: replica.leaving || replica.weight <= 0.0,
        out: is_out(replica),
    }
}

const fn is_out(replica: &Replica) -> bool {
    matches!(replica.breaker.standing(), Standing::Out { .. })
}
