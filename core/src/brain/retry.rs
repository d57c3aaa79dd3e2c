//! A request that is tried again: what poison says of it, where it may wait, and where it may go. The values
//! of the machines meet here; each of them only answers for itself.

use crate::domain::{Moment, ReplicaId, RequestId, SliceKey};
use crate::fleet::Replica;

use super::arrival::too_late;
use super::event::{Action, Refusal};
use super::health::any_is_up;
use super::placement::{Candidates, Unpicked};
use super::poison::{Clearance, HeldBack, Poison, QuarantineScope};
use super::request::{Booking, Fingerprint, Past};
use super::{Brain, Notice};

impl Brain {
    /// Judges whether a request is under quarantine, and how far that reaches. One whose guilt has shown since
    /// it was last seen is put there.
    pub(super) fn examine(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
    ) -> Option<QuarantineScope> {
        if self.poison.is_clear() {
            return None;
        }
        let is_known = self.placement.home(now, key).is_some();
        let held = self.poison.scope_of(now, key, fingerprint, is_known);
        held.or_else(|| self.convict(now, key, fingerprint))
    }

    /// Has a request judged by the deaths it was at; if it is held from now on, the replicas it brought down
    /// are excused and operators are told.
    pub(super) fn convict(
        &mut self,
        now: Moment,
        key: SliceKey,
        fingerprint: Fingerprint,
    ) -> Option<QuarantineScope> {
        let conviction = self.poison.judge(now, key, fingerprint)?;
        for replica in &conviction.places {
            self.change(*replica, |it| it.breaker.excuse(now));
        }
        let scope = conviction.scope;
        self.tell_conviction(key, fingerprint);
        if let Some(replica) = conviction.places.last().copied() {
            self.notices.push(Notice::Quarantined { replica, key, fingerprint, scope });
        }
        Some(scope)
    }

    /// Says whether a request that has waited since `since` may be sent.
    fn clear(&mut self, now: Moment, since: Moment, booking: &Booking) -> Clearance {
        if let Some(scope) = self.examine(now, booking.key, booking.fingerprint) {
            return Clearance::Refuse(Refusal::Quarantined { scope });
        }
        let pauses = self.placement.pauses(now, booking.key);
        self.poison.clearance(now, since, booking, pauses)
    }

    /// Holds back a request that may not be sent now; returns it if it may.
    pub(super) fn detain(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: Booking,
        actions: &mut Vec<Action>,
    ) -> Option<Booking> {
        match self.clear(now, now, &booking) {
            Clearance::Free => return Some(booking),
            Clearance::Wait if self.poison.hold.has_room(now, now) => {
                self.poison.hold.take_in(HeldBack { request, booking, since: now });
            }
            Clearance::Wait => self.dismiss(now, request, &booking, Poison::refusal(), actions),
            Clearance::Refuse(refusal) => self.dismiss(now, request, &booking, refusal, actions),
        }
        None
    }

    /// Sends those of the requests held back that may go, and refuses those that may not or have waited for
    /// too long.
    pub(super) fn discharge(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.poison.hold.is_empty() {
            return;
        }
        // A request that is sent counts as in flight for the requests behind it.
        let mut waiting = self.poison.hold.take(now);
        for _ in 0..waiting.len() {
            let Some(it) = waiting.pop_front() else { break };
            match self.clear(now, it.since, &it.booking) {
                Clearance::Wait => waiting.push_back(it),
                Clearance::Free => self.place_again(now, it, actions),
                Clearance::Refuse(refusal) => {
                    self.dismiss(now, it.request, &it.booking, refusal, actions);
                }
            }
        }
        self.poison.hold.put_back(waiting);
    }

    /// Sends a request that was tried elsewhere, or was held back at the last moment.
    pub(super) fn place_again(&mut self, now: Moment, it: HeldBack, actions: &mut Vec<Action>) {
        let HeldBack { request, mut booking, since } = it;
        match self.pick_again(now, &booking) {
            Ok((replica, candidates)) => {
                booking.replica = replica;
                self.send(now, request, booking, &candidates, actions);
                self.placement.recycle(candidates);
            }
            Err(Refusal::TriesSpent) if self.may_await(now, since, &booking) => {
                self.poison.hold.take_in(HeldBack { request, booking, since });
            }
            Err(refusal) => self.dismiss(now, request, &booking, refusal, actions),
        }
    }

    /// Chooses where a request is tried again: apart from other suspects if that can be.
    fn pick_again(
        &mut self,
        now: Moment,
        booking: &Booking,
    ) -> Result<(ReplicaId, Candidates), Refusal> {
        let kept_at = booking.outline.kept_at;
        let is_over = kept_at.is_some() && !booking.past.tried.is_empty();
        if is_over || self.settings.retries.tries_max <= booking.tries() {
            return Err(Refusal::TriesSpent);
        }
        // A request that lost a replica may have caused that, so it is no trial for one that is out.
        if booking.past.was_lost && !any_is_up(&self.fleet) && self.one_may_come_back(booking) {
            return Err(Refusal::TriesSpent);
        }
        let (ask, due) = (booking.ask(now), booking.estimate.due);
        let avoid = self.poison.places_to_avoid(now, booking, &self.fleet);
        let mut candidates = self.placement.gather(&ask, &self.fleet, &avoid);
        let mut chosen = self.placement.choose(&ask, &mut candidates, due, |_| true, |_| true);
        if chosen.is_err() {
            self.placement.recycle(candidates);
            candidates = self.placement.gather(&ask, &self.fleet, &booking.past.tried);
            chosen = self.placement.choose(&ask, &mut candidates, due, |_| true, |_| true);
        }
        let replica = chosen.map_err(|it| match it {
            Unpicked::None if kept_at.is_some() => self.no_replica_for(now, kept_at),
            Unpicked::None => Refusal::TriesSpent,
            Unpicked::TooLate { first_token_ms } => too_late(first_token_ms),
        })?;
        // A first attempt is not a retry, so it is free.
        let is_free = booking.past.tried.is_empty();
        if is_free || self.admission.retries.pay(booking.key.workload()) {
            Ok((replica, candidates))
        } else {
            Err(Refusal::BudgetSpent)
        }
    }

    /// Tells whether a request for which no replica is left may wait for one that is out to come back. The
    /// first request of a session may not if it was lost before its answer began: it may be what brought its
    /// replica down.
    fn may_await(&self, now: Moment, since: Moment, booking: &Booking) -> bool {
        let Past { is_first, has_begun, was_lost, .. } = booking.past;
        let is_risky = is_first && was_lost && !has_begun;
        let may_try = !is_risky
            && booking.outline.kept_at.is_none()
            && booking.tries() < self.settings.retries.tries_max;
        may_try && self.poison.hold.has_room(now, since) && self.one_may_come_back(booking)
    }

    /// Tells whether a replica may come back at which the request was not tried.
    fn one_may_come_back(&self, booking: &Booking) -> bool {
        let may_come = |it: &Replica| {
            let is_untried = !it.leaving && 0.0 < it.weight && !booking.past.tried.contains(&it.id);
            is_untried && it.breaker.may_come_back()
        };
        self.fleet.iter().any(may_come)
    }

    /// Takes out a request that was held back and whose client left; tells whether it was there.
    pub(super) fn on_left_hold(&mut self, now: Moment, request: RequestId) -> bool {
        let left = self.poison.hold.remove(request);
        if let Some(booking) = &left {
            self.admission.on_unserved(now, booking);
        }
        left.is_some()
    }

    /// Refuses a request that was to be sent, and gives back what it held.
    pub(super) fn dismiss(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: &Booking,
        refusal: Refusal,
        actions: &mut Vec<Action>,
    ) {
        self.admission.on_unserved(now, booking);
        actions.push(Action::Refuse { request, refusal });
    }

    /// Notes that a request was served whole, and tells operators if it was held by mistake.
    pub(super) fn acquit(&mut self, now: Moment, booking: &Booking) {
        let Booking { key, fingerprint, replica, .. } = *booking;
        if self.poison.on_served(now, booking) {
            self.tell_acquittal(key, fingerprint);
            self.notices.push(Notice::Acquitted { replica, key, fingerprint });
        }
    }
}
