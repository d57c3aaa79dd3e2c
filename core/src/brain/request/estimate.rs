//! What a request is expected to cost, and by when it must be done.

use std::time::Duration;

use crate::cost::Hardware;
use crate::domain::{Moment, Promise, span_ms, span_of_ms};
use crate::queue::{Claim, ClassId, Reservation, Tenant, Weight, Work};

/// A request aims at its class's first-token target less this part of it: what it finds at a replica, and
/// what joins it there, takes longer than its own prompt.
const MARGIN: f64 = 0.25;

/// What a request is expected to cost, and what it holds until it is known.
#[derive(Clone, Copy, Debug)]
pub(in crate::brain) struct CostEstimate {
    pub(in crate::brain) class: ClassId,
    /// What its class promises.
    pub(in crate::brain) promise: Promise,
    pub(in crate::brain) tenant: Tenant,
    pub(in crate::brain) weight: Weight,
    pub(in crate::brain) work: Work,
    /// Tokens of prompt and answer.
    pub(in crate::brain) tokens: u64,
    pub(in crate::brain) prompt: PromptSize,
    /// Its deadlines.
    pub(in crate::brain) due: Due,
    /// When it should be sent to meet its class's target.
    pub(in crate::brain) target: Option<Moment>,
    /// How long its first token takes on a replica that has nothing else to do.
    pub(in crate::brain) first_token_ms: f64,
    pub(in crate::brain) bytes: usize,
    pub(in crate::brain) held: Option<Reservation>,
}

impl CostEstimate {
    /// Tells whether it holds something of a contract.
    pub(in crate::brain) const fn is_held(&self) -> bool {
        self.held.is_some()
    }
}

/// How much a prompt holds up others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::brain) enum PromptSize {
    /// It is read in less time than is promised between two tokens.
    Short,
    /// The same where its session's cache is, and nowhere else.
    ShortAtHome,
    #[default]
    Usual,
    /// Its prefill must leave other replicas free, as `headroom` defines.
    Long,
}

/// Works out when a request should be sent to meet its class's target.
pub(in crate::brain) fn target(now: Moment, first_token: Duration, first_token_ms: f64) -> Moment {
    before(now + span_of_ms(span_ms(first_token) * (1.0 - MARGIN)), first_token_ms)
}

/// The deadlines of a request; `None` where none was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::brain) struct Due {
    /// When it must be sent to be in time at a replica that has nothing else to do.
    pub(in crate::brain) sent_by: Option<Moment>,
    /// When its first token must be there.
    pub(in crate::brain) first_token_by: Option<Moment>,
}

impl Due {
    /// Works out the latest times that a claim allows. `first_token_ms` is the TTFT of the request on an idle
    /// replica.
    pub(in crate::brain) fn new(
        claim: &Claim,
        first_token_ms: f64,
        hardware: &Hardware,
        output_tokens: u32,
    ) -> Self {
        // Decoding is fastest on a replica with no other request.
        let answer_ms = hardware.step.floor_ms * f64::from(output_tokens);
        let done = claim.done_by.map(|it| before(it, answer_ms));
        let first_token_by = [claim.first_token_by, done].into_iter().flatten().min();
        let sent = first_token_by.map(|it| before(it, first_token_ms));
        let sent_by = [claim.sent_by, sent].into_iter().flatten().min();
        Self { sent_by, first_token_by }
    }

    /// Tells whether the request can be in time at a replica where the next request waits `wait_ms`.
    /// `first_token_ms` is its own TTFT there, where it is known.
    pub(in crate::brain) fn can_be_met(
        self,
        now: Moment,
        wait_ms: f64,
        first_token_ms: Option<f64>,
    ) -> bool {
        let is_met = |by: Option<Moment>, ms: f64| by.is_none_or(|it| now <= before(it, ms));
        match first_token_ms {
            Some(ms) => is_met(self.first_token_by, ms),
            None => is_met(self.sent_by.filter(|_| self.first_token_by.is_some()), wait_ms),
        }
    }
}

fn before(at: Moment, ms: f64) -> Moment {
    Moment::ZERO + at.since(Moment::ZERO).saturating_sub(span_of_ms(ms))
}
