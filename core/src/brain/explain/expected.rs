//! What happened to a request before it was sent anywhere, and what was expected of it: how long it waited, what for,
//! and what was asked of it in time. Its wait is kept of a request that is marked or was held in the line, one that
//! was refused included; what was expected of it the books know of every request, so a driver can say later what
//! took longer than it should have. It changes nothing.

use std::time::Duration;

use crate::domain::{Moment, ReplicaId, RequestId};
use crate::queue::{OverContract, Tenant, Ticket};

use super::super::admission::{Fills, Parked};
use super::super::request::{Booking, CostEstimate};
use super::super::{Brain, Cause, Move};
use super::{Explaining, HELD_MAX, Marked};

/// What a request went through before it was sent or refused.
#[derive(Clone, Debug, PartialEq)]
pub struct Waited {
    pub class: String,
    pub tenant: Tenant,
    pub arrived_at: Moment,
    pub left_at: Moment,
    /// What it waited for when it joined the line; `None` if it did not wait.
    pub cause: Option<Cause>,
    /// How it did not fit its tenant's contract, where that refused it.
    pub over: Option<OverContract>,
    /// Model units that were to be sent before it when it came, and how long that was to take.
    pub ahead_mu: f64,
    pub wait_expected: Duration,
    /// How long its first token was expected to take once it is sent: at a replica that has nothing
    /// else to do, or, for one that came too late for every replica, where it would have come soonest.
    pub first_token_ms: f64,
    /// How long after its arrival its first token had to be there.
    pub first_token_within: Option<Duration>,
    /// How long after its arrival it had to be sent.
    pub sent_within: Option<Duration>,
}

impl Waited {
    pub fn span(&self) -> Duration {
        self.left_at.since(self.arrived_at)
    }

    /// Notes that the request may be sent. One that may be sent on arrival has not waited.
    pub(in super::super) fn go(&mut self, now: Moment) {
        self.left_at = now;
        self.cause = self.cause.filter(|_| self.arrived_at < now);
    }
}

/// What was expected of one try when it was booked.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Expected {
    /// The replica that served its session before, if that was another; it may still have its state.
    pub moved_from: Option<ReplicaId>,
    /// Why the session left that.
    pub moved: Option<Move>,
    /// The time to the first token.
    pub ttft_ms: f64,
    /// The time between two tokens of the answer.
    pub gap_ms: f64,
    pub prompt_tokens: u32,
    /// Prompt tokens believed to be cached.
    pub cached_tokens: u32,
    pub output_tokens: Option<u32>,
}

impl Expected {
    fn of(booking: &Booking) -> Self {
        let Booking { account, outline, moved_from, moved, .. } = booking;
        Self {
            moved_from: *moved_from,
            moved: *moved,
            ttft_ms: account.ttft_ms,
            gap_ms: account.gap_ms,
            prompt_tokens: outline.prompt_tokens,
            cached_tokens: account.cached_tokens,
            output_tokens: outline.output_tokens,
        }
    }
}

impl Brain {
    /// Begins to write down what a marked request goes through.
    pub(in crate::brain) fn explain_arrival(
        &mut self,
        now: Moment,
        request: RequestId,
        parked: &Parked,
    ) {
        let CostEstimate { class, tenant, first_token_ms, due, .. } = parked.estimate;
        let classes = &self.settings.line.classes;
        self.explaining.on_arrival(request, || Waited {
            class: classes.get(class).name.clone(),
            tenant,
            arrived_at: now,
            left_at: now,
            cause: None,
            over: None,
            ahead_mu: 0.0,
            wait_expected: Duration::ZERO,
            first_token_ms,
            first_token_within: due.first_token_by.map(|it| it.since(now)),
            sent_within: due.sent_by.map(|it| it.since(now)),
        });
    }

    /// Writes down why a request cannot go at once.
    pub(in crate::brain) fn explain_joining(
        &mut self,
        now: Moment,
        ticket: &Ticket,
        parked: &Parked,
        fills: &Fills,
    ) {
        if !self.explain_delay(now, ticket.request, parked) {
            return;
        }
        let open = self.placement.open(now, &self.fleet);
        let (cause, ahead, wait) = self.admission.prospect(now, ticket, fills, open);
        self.explaining.on_waited(ticket.request, |it| {
            it.cause = Some(cause);
            it.ahead_mu = ahead.as_mu();
            it.wait_expected = wait;
        });
    }

    /// Writes down by which limit of its contract a request is refused.
    pub(in crate::brain) fn explain_over(
        &mut self,
        now: Moment,
        request: RequestId,
        parked: &Parked,
        over: OverContract,
    ) {
        if self.explain_delay(now, request, parked) {
            self.explaining.on_waited(request, |it| {
                (it.cause, it.over) = (Some(Cause::Contract), Some(over));
            });
        }
    }

    /// Begins to write down what a request goes through that does not go at once: of one that is not marked too,
    /// because it will be asked why it was slow, or refused. Tells whether there is room for it.
    fn explain_delay(&mut self, now: Moment, request: RequestId, parked: &Parked) -> bool {
        if self.explaining.is_marked(request) {
            return true;
        }
        let has_room = self.explaining.mark_held(request);
        if has_room {
            self.explain_arrival(now, request, parked);
        }
        has_room
    }

    /// Takes what was written down of what a request went through before it was sent or refused; asked
    /// before [`Brain::take_explanation`].
    pub fn take_waited(&mut self, request: RequestId) -> Option<Waited> {
        self.explaining.marked.get_mut(&request)?.waited.take()
    }

    /// Says what is expected of a request that was just sent, and takes what was written down of its wait if it
    /// was held in the line without a mark. To be asked once for each verdict.
    pub fn take_expected(&mut self, request: RequestId) -> (Option<Expected>, Option<Waited>) {
        (self.books.get(request).map(Expected::of), self.explaining.take_held(request))
    }
}

impl Explaining {
    /// Begins to write down what a marked request goes through.
    pub(in super::super) fn on_arrival(
        &mut self,
        request: RequestId,
        begin: impl FnOnce() -> Waited,
    ) {
        if let Some(marked) = self.marked.get_mut(&request) {
            marked.waited = Some(begin());
        }
    }

    /// Adds to it.
    pub(in super::super) fn on_waited(
        &mut self,
        request: RequestId,
        add: impl FnOnce(&mut Waited),
    ) {
        if let Some(waited) = self.marked.get_mut(&request).and_then(|it| it.waited.as_mut()) {
            add(waited);
        }
    }

    /// Has the wait of a request written down that is not marked; says whether there is room for it.
    pub(in super::super) fn mark_held(&mut self, request: RequestId) -> bool {
        let has_room = self.marked.len() < HELD_MAX;
        if has_room {
            self.marked.insert(request, Marked { is_held: true, ..Marked::default() });
        }
        has_room
    }

    fn take_held(&mut self, request: RequestId) -> Option<Waited> {
        let is_held = self.marked.get(&request).is_some_and(|it| it.is_held);
        is_held.then(|| self.marked.swap_remove(&request)?.waited).flatten()
    }
}
