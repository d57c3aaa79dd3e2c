//! The words between the brain and whoever drives it.

use std::time::Duration;

use crate::domain::{Extent, Outline, ReplicaId, Report, RequestId, SliceKey, Usage};
use crate::fleet::Probe;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Arrived {
        request: RequestId,
        key: SliceKey,
        /// What is known of it; what it leaves open is estimated from the extent.
        outline: Outline,
        extent: Extent,
    },
    /// The try failed before its first byte, or in a way that another replica can make good.
    Failed {
        request: RequestId,
        failure: Failure,
    },
    /// The first byte of a good answer has come.
    Answering {
        request: RequestId,
    },
    /// It is over; said once for every request that was sent and not refused.
    Ended {
        request: RequestId,
        outcome: Outcome,
        /// What the engine says it came to, as far as it says.
        usage: Usage,
    },
    Joined {
        replica: ReplicaId,
        name: String,
        weight: f64,
    },
    Weighed {
        replica: ReplicaId,
        weight: f64,
    },
    /// The operator takes the replica away: nothing new goes there, what runs there finishes.
    Leaving {
        replica: ReplicaId,
    },
    Probed {
        replica: ReplicaId,
        probe: Probe,
    },
    /// The replica's engine said how it is.
    Reported {
        replica: ReplicaId,
        report: Report,
    },
}

/// How a try failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection, a reset, or no answer in time.
    Unreachable,
    /// An answer that says the replica is at fault.
    Status,
    /// An answer that says the replica is full.
    Busy,
    /// The replica stopped in the middle of its answer, and another one can go on with it.
    Cut,
}

/// How a request ended after it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Answered whole, whatever the answer says.
    Done,
    /// The client left.
    Cancelled,
    /// The replica stopped in the middle of its answer.
    Cut,
}

/// What must be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    Send {
        request: RequestId,
        replica: ReplicaId,
    },
    Refuse {
        request: RequestId,
        refusal: Refusal,
    },
    /// A leaving replica has finished all it had.
    Release {
        replica: ReplicaId,
    },
}

/// Why a request is not sent, or not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nobody can take it now.
    NoReplica { retry_after: Duration },
    /// It was tried as often, or as widely, as it may be.
    TriesSpent,
    /// The fleet has had as many retries as it can bear.
    BudgetSpent,
}

impl Refusal {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoReplica { .. } => "no_replica",
            Self::TriesSpent => "tries_spent",
            Self::BudgetSpent => "retry_budget_spent",
        }
    }
}
