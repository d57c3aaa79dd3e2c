//! What happened to a request before it was sent anywhere: how long it waited, what for, and what was
//! predicted of it when it came, beside what was asked of it in time. Kept for requests that are marked,
//! those that were refused included; it changes nothing.

use std::time::Duration;

use crate::domain::{Moment, RequestId};
use crate::queue::{OverContract, Tenant};

use super::super::{Brain, Cause};
use super::Explaining;

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
}

impl Brain {
    /// Takes what was written down of what a request went through before it was sent or refused; asked
    /// before [`Brain::take_explanation`].
    pub fn take_waited(&mut self, request: RequestId) -> Option<Waited> {
        self.explaining.marked.get_mut(&request)?.waited.take()
    }
}
