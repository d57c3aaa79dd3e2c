//! The account of one try in the books of its replica.

use std::time::Duration;

use crate::domain::{Moment, span_of_ms};
use crate::fleet::{Ledger, Load};

/// A first token is late after twice its predicted time plus this.
const LATE_AFTER: Duration = Duration::from_secs(1);

/// What one try is charged with, and what was expected of it.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::brain) struct Account {
    /// What the books hold for it now.
    pub(in crate::brain) charge: Load,
    /// What it was booked with at the decision, in all.
    pub(in crate::brain) predicted_us: u64,
    /// Prompt tokens believed to be cached.
    pub(in crate::brain) cached_tokens: u32,
    pub(in crate::brain) sent_at: Moment,
    /// Whether its replica was out, and it is to show whether that is back.
    pub(in crate::brain) is_trial: bool,
    /// The time to the first token, as predicted.
    pub(in crate::brain) ttft_ms: f64,
    /// The time between two tokens of its answer, as predicted.
    pub(in crate::brain) gap_ms: f64,
    /// How long it should take in all, as other routers were told; 0 where none were.
    pub(in crate::brain) expected_ms: u32,
    /// Whether its prompt is taken to be read, and its answer to be written.
    pub(in crate::brain) is_read: bool,
    /// Set at its first byte: from then on it cannot go elsewhere.
    pub(in crate::brain) first: Option<First>,
    /// Tokens of its answer that have come so far.
    pub(in crate::brain) streamed_tokens: u32,
}

/// How things stood at the replica when the answer began.
#[derive(Clone, Copy, Debug)]
pub(in crate::brain) struct First {
    pub(in crate::brain) at: Moment,
    pub(in crate::brain) answering: u32,
    pub(in crate::brain) kv_tokens: u64,
    pub(in crate::brain) prefilled_us: u64,
}

impl Account {
    /// Takes its prompt off the line of its replica, once.
    pub(in crate::brain) fn read(&mut self, now: Moment, ledger: &mut Ledger) {
        if !self.is_read {
            ledger.begin(now, &mut self.charge);
            self.is_read = true;
        }
    }

    /// Tells whether its answer has begun, and about when it should have.
    pub(super) fn began_in_time(&self) -> bool {
        let in_time = span_of_ms(self.ttft_ms) * 2 + LATE_AFTER;
        self.first.is_some_and(|it| it.at.since(self.sent_at) <= in_time)
    }
}
