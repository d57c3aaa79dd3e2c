//! What comes of a request that was sent: it fails, begins to be answered, streams, or ends. Each is a list of what
//! the machines are told, in order.

use crate::domain::{Moment, RequestId, Usage};

use super::admission::Bill;
use super::books::{Computed, believed};
use super::event::{Action, Failure, Outcome, Refusal};
use super::health::{self, Health};
use super::poison::HeldBack;
use super::request::{Booking, Due};
use super::{Brain, RETRY_AFTER};

impl Brain {
    /// A try failed. The order is that of what each step must know: what was in flight at a death is noted while
    /// the request still is; the books are closed before it is placed again; blame comes before the next choice.
    pub(super) fn on_failed(
        &mut self,
        now: Moment,
        request: RequestId,
        failure: Failure,
        actions: &mut Vec<Action>,
    ) {
        let Some(failed) = self.books.get(request).map(|it| it.replica) else {
            // It was sent by an earlier brain, and waits for a verdict.
            let refusal = Refusal::Restarted { retry_after: RETRY_AFTER };
            return actions.push(Action::Refuse { request, refusal });
        };
        let was_lost = matches!(failure, Failure::Lost | Failure::Died | Failure::Hung);
        let is_gone = matches!(failure, Failure::Unreachable | Failure::Died);
        // 1. Poison: what was in flight there comes under suspicion.
        if was_lost {
            self.poison.on_death(now, failed);
        }
        // 2. Books: the account is closed.
        let Some(mut booking) = self.close(now, request) else { return };
        self.tell_failed(request);
        // 3. Placement: the workload may be in trouble.
        if was_lost {
            self.placement.on_lost(now, &booking, failure != Failure::Lost, &self.fleet);
        }
        // 4. Poison: the death counts.
        if is_gone {
            self.confirm_death(now, failed);
        }
        // 5. Health: the replica is blamed, asked or excused.
        self.check(now, actions, |it, fleet, found| {
            it.on_try_failed(now, fleet, &mut booking, failure, found);
        });
        // 6. The request is held back, placed again or refused.
        booking.past.tried.push(failed);
        if let Some(booking) = self.detain(now, request, *booking, actions) {
            self.place_again(now, HeldBack { request, booking, since: now }, actions);
        }
        // 7. The replica is released if it leaves and that was its last request.
        self.release_if_done(failed, actions);
    }

    pub(super) fn on_answering(
        &mut self,
        now: Moment,
        request: RequestId,
        actions: &mut Vec<Action>,
    ) {
        let is_first = self.books.begin(now, &mut self.fleet, request);
        if is_first {
            self.tell_begun(request);
        }
        let Some(booking) = self.books.get_mut(request) else { return };
        let (replica, sent_at) = (booking.replica, booking.account.sent_at);
        let suspects = health::take_outdone(&mut booking.past.suspects);
        // Its deadlines are met or missed by now, so a later try of it has none.
        booking.estimate.due = Due::default();
        booking.past.has_begun = true;
        if is_first {
            self.poison.on_answering(request);
            self.poison.on_survivor(now, replica, sent_at);
            self.placement.on_answering(booking, &self.fleet);
            self.placement.on_first_token(now, request, replica);
            let mut found = Vec::new();
            self.health.on_first_token(now, &mut self.fleet, booking, &mut found);
            let joint = self.learning.on_first_token(now, &self.fleet, request, booking);
            if let Some(joint) = joint
                && let Some(with) = self.books.get_mut(joint.with)
            {
                joint.add_to(&mut with.seen);
            }
            self.act_on(now, found, actions);
        }
        self.check(now, actions, |_, fleet, found| {
            found.extend(health::praise(now, fleet, replica));
            health::blame_suspects(now, fleet, &suspects, found);
        });
    }

    pub(super) fn on_streamed(
        &mut self,
        now: Moment,
        request: RequestId,
        tokens: u32,
        actions: &mut Vec<Action>,
    ) {
        let Some(booking) = self.books.get_mut(request) else { return };
        if let Some(replica) = self.fleet.get(booking.replica) {
            self.admission.on_streamed(booking, replica, tokens);
        }
        self.poison.on_survivor(now, booking.replica, booking.account.sent_at);
        let before = booking.account.streamed_tokens;
        self.books.progress(&mut self.fleet, request, tokens);
        self.tell_progress(request, before);
        let Some(booking) = self.books.get_mut(request) else { return };
        let mut found = Vec::new();
        self.learning.on_streamed(now, &self.fleet, booking, tokens);
        self.health.on_streamed(now, &mut self.fleet, booking, tokens, &mut found);
        self.act_on(now, found, actions);
    }

    pub(super) fn on_ended(
        &mut self,
        now: Moment,
        request: RequestId,
        outcome: Outcome,
        usage: Usage,
        actions: &mut Vec<Action>,
    ) {
        self.explaining.forget(request);
        if self.admission.leave(request) || self.on_left_hold(now, request) {
            return;
        }
        if outcome == Outcome::Cut
            && let Some(booking) = self.books.get(request)
        {
            self.poison.on_death(now, booking.replica);
        }
        let Some(booking) = self.close(now, request) else { return };
        let usage = believed(now, &booking, usage);
        self.settle(now, (request, &booking), usage, outcome == Outcome::Done);
        self.books.learn(now, &mut self.fleet, &booking, outcome, usage);
        self.tell_lesson(&booking, usage, outcome == Outcome::Done);
        self.health.learn(&booking, usage);
        self.learning.on_ended(now, &self.fleet, &booking, usage, outcome == Outcome::Done);
        match outcome {
            Outcome::Cut => {
                self.placement.on_lost(now, &booking, false, &self.fleet);
                self.check(now, actions, |_, fleet, found| {
                    Health::on_cut(now, fleet, booking.replica, found);
                });
                self.convict(now, booking.key, booking.fingerprint);
            }
            Outcome::Done => {
                self.acquit(now, &booking);
                if booking.began_in_time() {
                    self.placement.on_done(booking.key);
                }
                self.check(now, actions, |it, fleet, found| {
                    health::blame_suspects(now, fleet, &booking.past.suspects, found);
                    it.on_sign(fleet, booking.replica, now, found);
                });
            }
            Outcome::Cancelled if booking.account.is_trial && !booking.is_answering() => {
                self.change(booking.replica, |it| it.breaker.on_trial_abandoned(now));
            }
            Outcome::Cancelled => {}
        }
        self.release_if_done(booking.replica, actions);
    }

    /// Takes a request off the books and off all that follows what is in flight.
    fn close(&mut self, now: Moment, request: RequestId) -> Option<Box<Booking>> {
        let booking = self.books.close(now, &mut self.fleet, request)?;
        self.placement.on_ended(now, request, booking.replica);
        self.poison.on_closed(request);
        Some(booking)
    }

    /// Settles what a request came to, by what is believed of its usage and by prediction.
    fn settle(
        &mut self,
        now: Moment,
        (request, booking): (RequestId, &Booking),
        usage: Usage,
        is_whole: bool,
    ) {
        let Some(replica) = self.fleet.get(booking.replica) else {
            // It cannot leave while anything is in flight there; the books are closed all the same.
            self.tell_failed(request);
            return self.admission.on_unserved(now, booking);
        };
        let came = Computed::new(now, booking, replica, usage, is_whole);
        let priced = came.priced(&replica.hardware.cost);
        let bill = Bill {
            cost_ms: priced.cost_ms,
            tokens: came.tokens(),
            prompt_tokens: came.prompt(),
            output_tokens: usage.output,
        };
        self.admission.settle(now, booking.key, &booking.estimate, &replica.hardware, bill);
        self.learning.learn_usual(priced);
        self.tell_ended(request, booking, &bill);
    }
}
