//! A request that arrives: sent at once, held in the line, or refused. Poison, placement, admission and the books
//! are asked in turn, and each is handed what those before it said. A request that waits goes the same way when
//! capacity shows, wherever is best then.

mod nowhere;

use std::sync::Arc;

use crate::domain::{Moment, Outline, RequestId, span_of_ms};
use crate::fleet::Standing;
use crate::policy::Ask;
use crate::queue::OverContract;

use super::admission::{Arrival, Fills, Parked, Reach};
use super::placement::{Candidates, Unpicked, candidate};
use super::request::Booking;
use super::{Action, Brain, RETRY_AFTER, Refusal, books};
use nowhere::REPLICA_WAIT_MAX;

/// Refuses a request that would be late. It may come back when what makes it wait now is done.
pub(super) fn too_late(first_token_ms: f64) -> Refusal {
    Refusal::DeadlineUnmeetable { retry_after: span_of_ms(first_token_ms).max(RETRY_AFTER) }
}

impl Brain {
    /// Takes in a request that has just arrived: sends it, holds it, or refuses it.
    pub(super) fn on_arrived(&mut self, now: Moment, arrival: Arrival, actions: &mut Vec<Action>) {
        let request = arrival.request;
        if let Err(refusal) = self.admit(now, arrival, actions) {
            actions.push(Action::Refuse { request, refusal });
        }
    }

    fn admit(
        &mut self,
        now: Moment,
        arrival: Arrival,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        if let Some(scope) = self.examine(now, arrival.key, arrival.fingerprint) {
            return Err(Refusal::Quarantined { scope });
        }
        let promise = self.admission.promise(&arrival.claim);
        let (key, outline) = (arrival.key, &arrival.outline);
        let ask = Ask { now, key, outline, home: None, promise };
        let mut candidates = self.placement.gather(&ask, &self.fleet, &[]);
        let admitted = self.admit_to(now, arrival, &mut candidates, actions);
        self.placement.recycle(candidates);
        admitted
    }

    fn admit_to(
        &mut self,
        now: Moment,
        arrival: Arrival,
        candidates: &mut Candidates,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let kept_at = arrival.outline.kept_at;
        let is_expected = || self.awaits_start() || self.expects_replica(now);
        if candidates.is_empty() && (kept_at.is_some() || !is_expected()) {
            return Err(self.no_replica_for(now, kept_at));
        }
        let request = arrival.request;
        let parked = self.assess(now, arrival, candidates);
        self.explain_arrival(now, request, &parked);
        let (fingerprint, mu) = (parked.fingerprint.0, parked.estimate.work.as_mu());
        let admitted = self.let_in(now, request, parked, candidates, actions);
        admitted.inspect_err(|refusal| {
            let mark = self.admission.count_refused(now, fingerprint, mu, *refusal);
            self.tell_turned_away(mark);
        })
    }

    fn let_in(
        &mut self,
        now: Moment,
        request: RequestId,
        mut parked: Parked,
        candidates: &mut Candidates,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        if parked.estimate.due.sent_by.is_some_and(|it| it < now) {
            return Err(too_late(0.0));
        }
        let waits = candidates.waits(&self.fleet);
        if let Err(over) = self.admission.reserve(now, &mut parked, waits) {
            self.explain_over(now, request, &parked, over);
            let OverContract { limit, retry_after, .. } = over;
            return Err(Refusal::OverContract { limit, retry_after });
        }
        self.pass_or_join(now, request, parked, candidates, actions)
    }

    /// Works out what a request will cost, where its cache is and by when it must go.
    fn assess(&mut self, now: Moment, arrival: Arrival, candidates: &Candidates) -> Parked {
        let placement = &self.placement;
        let home = placement.keeps_sessions().then(|| placement.home(now, arrival.key)).flatten();
        let home = home.filter(|it| candidates.ids().any(|id| id == *it));
        let keeper = arrival.outline.kept_at.and_then(|_| candidates.ids().next());
        let home = keeper.or(home);
        let replica = home.and_then(|it| self.fleet.get(it)).or_else(|| self.fleet.iter().next());
        let hardware =
            replica.map(|it| &it.hardware).or_else(|| self.admission.capacity.hardware_to_come());
        let hardware = hardware.map_or_else(Arc::default, Arc::clone);
        let is_divided = placement.is_divided(candidates);
        let placement = &mut self.placement;
        let held_at = |prompt: &Outline, at| placement.held_tokens(prompt, at);
        self.admission.assess(now, arrival, home, is_divided, &hardware, held_at)
    }

    /// Sends a request at once if no other waits and there is room; else it joins the line.
    fn pass_or_join(
        &mut self,
        now: Moment,
        request: RequestId,
        parked: Parked,
        candidates: &mut Candidates,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let fills = self.admission.look(now, candidates.waits(&self.fleet));
        // A replica that takes no new sessions keeps those it has, and no other can have them. What has to be computed
        // waits for its turn where it is kept.
        let is_free = candidates.is_bound() && !parked.waits_for_keeper();
        let passes = is_free || self.admission.admits(&parked, &fills);
        let done = if passes {
            self.admission.waiting.pass(now, &parked.estimate);
            self.place(now, request, parked, candidates, &fills, actions)
        } else {
            self.join_line(now, request, parked, &fills, actions)
        };
        self.admission.recycle(fills);
        done
    }

    /// Has a request join the line. It may go to one of the replicas of `fills`, but not at once.
    fn join_line(
        &mut self,
        now: Moment,
        request: RequestId,
        parked: Parked,
        fills: &Fills,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        if self.admission.lacks_reach(&parked) {
            self.find_reach(now, parked.key);
        }
        let mut ticket = self.admission.ticket(now, request, &parked);
        if fills.is_empty() && self.awaits_start() {
            if let Some(refusal) = self.admission.unready(now, &ticket, &parked) {
                return Err(refusal);
            }
        } else if fills.is_empty() {
            ticket.expires_at = ticket.expires_at.min(now + REPLICA_WAIT_MAX);
        }
        self.explain_joining(now, &ticket, &parked, fills);
        let mut displaced = Vec::new();
        let joined = self.admission.join(now, ticket, parked, &mut displaced);
        for (request, refusal) in displaced {
            self.turn_away(now, request, refusal, actions);
        }
        joined
    }

    /// Places the waiting requests that may go now, in their order.
    pub(super) fn pump(&mut self, now: Moment, actions: &mut Vec<Action>) {
        while let Some((request, refusal)) = self.admission.expired(now) {
            let is_waited_out = matches!(refusal, Refusal::WaitedOut { .. });
            let refusal =
                if is_waited_out && self.is_down() { self.no_replica(now) } else { refusal };
            self.turn_away(now, request, refusal, actions);
        }
        while !self.admission.waiting.line().is_empty() {
            let fills = self.look(now);
            let Some((request, parked)) = self.admission.next(now, &fills) else { break };
            self.explaining.on_waited(request, |it| it.go(now));
            let work = parked.estimate.work;
            // Replicas may have died under copies of it while it waited.
            let placed = if let Some(scope) = self.examine(now, parked.key, parked.fingerprint) {
                self.admission.take_back(&parked.estimate);
                Err(Refusal::Quarantined { scope })
            } else {
                let mut candidates = self.placement.gather(&parked.ask(now), &self.fleet, &[]);
                let placed = self.place(now, request, parked, &mut candidates, &fills, actions);
                self.placement.recycle(candidates);
                placed
            };
            self.admission.recycle(fills);
            match placed {
                Ok(()) => self.admission.waiting.on_moved(now, work),
                Err(refusal) => actions.push(Action::Refuse { request, refusal }),
            }
        }
    }

    /// Has the policy choose among the candidates with room that would be in time, and books it; takes back what
    /// was charged and reserved where none can take it.
    fn place(
        &mut self,
        now: Moment,
        request: RequestId,
        parked: Parked,
        candidates: &mut Candidates,
        fills: &Fills,
        actions: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let has_room = fills.rooms(self.admission.limits(&parked));
        let is_near = fills.rooms(self.admission.limits_if_cheaper(&parked));
        let (ask, due) = (parked.ask(now), parked.estimate.due);
        match self.placement.choose(&ask, candidates, due, has_room, is_near) {
            Ok(replica) => {
                self.send(now, request, parked.booking(replica), candidates, actions);
                Ok(())
            }
            Err(unpicked) => {
                self.admission.take_back(&parked.estimate);
                Err(match unpicked {
                    Unpicked::None => self.no_replica_for(now, ask.outline.kept_at),
                    Unpicked::TooLate { first_token_ms } => {
                        self.explaining.on_waited(request, |it| it.first_token_ms = first_token_ms);
                        too_late(first_token_ms)
                    }
                })
            }
        }
    }

    /// Books a request at the replica that was chosen among `candidates`, and sends it.
    pub(super) fn send(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: Booking,
        candidates: &Candidates,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut booking) = self.detain(now, request, booking, actions) else { return };
        let moved = self.placement.move_of(now, &booking, candidates, &self.fleet);
        self.explain_choice(now, request, &booking, candidates, moved);
        let (key, replica) = (booking.key, booking.replica);
        let Some(it) = self.fleet.get(replica) else { return };
        let candidate = candidate(it, now, self.fleet.strangers_usual());
        let chain = self.chain_of(&booking.outline);
        let held = self.placement.on_sent(request, &booking.ask(now), &candidate);
        booking.account = books::quote(now, &booking, &candidate, held);
        self.tell_opened(request, &mut booking, &candidate, chain);
        booking.mark = None;
        self.explain_booking(request, booking.account.ttft_ms);
        let charge = booking.account.charge;
        self.change(replica, |it| it.on_sent(now, charge));
        let standing = self.fleet.get(replica).map(|it| it.breaker.standing());
        booking.account.is_trial = matches!(standing, Some(Standing::Trial { .. }));
        self.admission.on_sent(now, &booking);
        self.placement.on_placed(now, &booking, &self.fleet);
        // A question about what is kept is no turn of a session.
        let is_turn = !booking.is_question();
        let before = is_turn.then(|| self.placement.remember(now, key, replica)).flatten();
        booking.moved_from = before.filter(|it| *it != replica);
        booking.past.is_first |= before.is_none();
        booking.moved = moved;
        if let Some(moved) = moved {
            let cached = booking.account.cached_tokens;
            self.placement.on_moved(moved, booking.outline.prompt_tokens.saturating_sub(cached));
        }
        self.poison.on_sent(request, &booking);
        self.learning.on_sent(now, &self.fleet, &mut booking);
        self.books.open(request, booking);
        actions.push(Action::Send { request, replica });
    }

    /// Has admission look at all replicas that may take something.
    fn look(&mut self, now: Moment) -> Fills {
        self.admission.look(now, self.placement.open(now, &self.fleet))
    }

    /// Looks up where requests of a workload may go, for those that wait.
    fn find_reach(&mut self, now: Moment, key: crate::domain::SliceKey) {
        let reach = self.placement.reach(now, key, &self.fleet);
        let reach = reach.map(|(inside, beyond)| Reach { key, inside, beyond });
        let placement = &self.placement;
        self.admission.set_reach(key.workload(), reach, |it| placement.spill_wait(it));
    }

    /// Looks up again where the waiting requests may go.
    pub(super) fn refresh_reaches(&mut self, now: Moment) {
        for key in self.admission.reached() {
            self.find_reach(now, key);
        }
    }

    /// Tells whether some request waits although it could go.
    pub(super) fn holds_in_vain(&self, now: Moment) -> bool {
        self.admission.holds_in_vain(now, self.placement.open(now, &self.fleet))
    }

    /// Refuses a request that has been taken out of the line.
    fn turn_away(
        &mut self,
        now: Moment,
        request: RequestId,
        refusal: Refusal,
        actions: &mut Vec<Action>,
    ) {
        self.explaining.on_waited(request, |it| it.left_at = now);
        let mark = self.admission.offered.on_turned_away(now, request);
        self.tell_turned_away(mark);
        actions.push(Action::Refuse { request, refusal });
    }
}

#[cfg(test)]
mod tests;
