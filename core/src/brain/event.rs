//! The messages between the brain and its driver.

use std::sync::Arc;
use std::time::Duration;

use crate::cluster::News;
use crate::cost::Hardware;
use crate::cost::learned::Learned;
use crate::domain::{
    Extent, Moment, Outline, ReplicaId, Report, RequestId, RouterId, SliceKey, Usage,
};
use crate::fleet::Probe;
use crate::queue::{Claim, Limits, Tenant};

use super::placement::Order;
use super::poison::QuarantineScope;

/// What happened.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Arrived {
        request: RequestId,
        key: SliceKey,
        /// What is known of it; what it leaves open is estimated from the extent.
        outline: Outline,
        extent: Extent,
        claim: Claim,
    },
    /// The try failed before its first byte, or in a way that another replica can make good.
    Failed {
        request: RequestId,
        failure: Failure,
    },
    /// The first token of a good answer has come; its first byte where tokens cannot be told.
    Answering {
        request: RequestId,
    },
    /// Its answer has `output_tokens` tokens by now. Sent only when [`streamed_is_due`] says so, not for
    /// every token.
    Streamed {
        request: RequestId,
        output_tokens: u32,
    },
    /// The request is over. Sent once for every request that was sent and not refused, and for one whose
    /// client left before its verdict came.
    Ended {
        request: RequestId,
        outcome: Outcome,
        /// The usage that the engine reported, as far as it did.
        usage: Usage,
    },
    Joined {
        replica: ReplicaId,
        name: String,
        weight: f64,
        /// How long work takes there.
        hardware: Arc<Hardware>,
    },
    Weighed {
        replica: ReplicaId,
        weight: f64,
    },
    /// The operator changed the hardware class of the replica.
    Classed {
        replica: ReplicaId,
        hardware: Arc<Hardware>,
    },
    /// The operator takes the replica away: nothing new goes there, what runs there finishes.
    Leaving {
        replica: ReplicaId,
    },
    /// What tenants may use from now on; tenants that are not named have no limit.
    Contracted {
        limits: Vec<(Tenant, Limits)>,
    },
    Probed {
        replica: ReplicaId,
        probe: Probe,
    },
    /// An earlier run has learned what work takes.
    Recalled {
        costs: Vec<Learned>,
    },
    /// An operator has ordered something about subsets, or an earlier run left them.
    Ordered(Order),
    /// The replica's engine reported its load.
    Reported {
        replica: ReplicaId,
        report: Report,
    },
    /// When a byte of any answer last came from the replica. Sent before the brain is woken, so that
    /// drivers need not report every byte.
    Sign {
        replica: ReplicaId,
        at: Moment,
    },
    /// No request waits for the replica now: what runs there waits for its clients to take it.
    Unawaited {
        replica: ReplicaId,
    },
    /// Another process answers there than before, and its cache is cold.
    Restarted {
        replica: ReplicaId,
    },
    /// Another router told what happened there. `is_whole`: this is all it has in flight, in place of what it told
    /// before.
    Heard {
        router: RouterId,
        news: Vec<News>,
        is_whole: bool,
    },
    /// Another router is gone: on purpose and with nothing in flight, or lost. What a lost one had in flight is
    /// counted for as long as it should take.
    Parted {
        router: RouterId,
        is_lost: bool,
    },
    /// The number of replicas follows the work: one that is asked for now is ready after `ready_in`, and is of this
    /// hardware. Nothing follows the work without a time.
    Scaling {
        ready_in: Option<Duration>,
        hardware: Arc<Hardware>,
    },
    /// Whether this router plans which replicas workloads use, for all routers.
    Elected {
        leads: bool,
    },
}

/// How a try failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// No connection.
    Unreachable,
    /// No answer in time, which the request itself may explain.
    Late,
    /// The connection broke after the request was sent, or what came was no answer. Also in the middle of
    /// an answer that another replica can go on with.
    Lost,
    /// The connection broke after the request was sent, and nothing listens there any more.
    Died,
    /// It was told to give up, because the replica hangs.
    Hung,
    /// An answer that says the replica is at fault.
    Status,
    /// An answer that says the replica is full.
    Busy,
    /// The router itself could not open a connection, as when it has no ports left; the replica is not at fault.
    Ours,
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

/// Tells whether a stream that has grown from `before` to `now` tokens is to be reported: at 8, 16 and 32
/// tokens and every 32 from there. A driver may ask at every token and reports few.
pub const fn streamed_is_due(before: u32, now: u32) -> bool {
    milestone(before) != milestone(now)
}

const fn milestone(tokens: u32) -> u32 {
    match tokens {
        0..8 => 0,
        8..16 => 8,
        16..32 => 16,
        _ => tokens - tokens % 32,
    }
}

/// What must be done. A request that has arrived and got neither `Send` nor `Refuse` waits for one.
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
    /// Nothing more will come from there. Before its first byte the try has failed as
    /// [`Failure::Hung`]; after it the answer is cut.
    GiveUp {
        request: RequestId,
        replica: ReplicaId,
    },
    /// Ask the replica for one token and report the result, at the latest after `limit`.
    Ask {
        replica: ReplicaId,
        limit: Duration,
    },
}

impl Action {
    /// The verdict on a request, if it is one.
    pub const fn verdict(self) -> Option<(RequestId, Result<ReplicaId, Refusal>)> {
        match self {
            Self::Send { request, replica } => Some((request, Ok(replica))),
            Self::Refuse { request, refusal } => Some((request, Err(refusal))),
            Self::Release { .. } | Self::GiveUp { .. } | Self::Ask { .. } => None,
        }
    }
}

/// Why a request is not sent, or not sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No replica can take it now.
    NoReplica { retry_after: Duration },
    /// No replica that may take it takes the router's key, and nothing else is wrong.
    Unauthorized,
    /// It was tried as often, or as widely, as it may be.
    TriesSpent,
    /// The retry budget is spent.
    BudgetSpent,
    /// Replicas went down while it, or a request in the same scope, was served there.
    Quarantined { scope: QuarantineScope },
    /// A replica went down while it was served there, and it has waited as long as it may for the result of
    /// another copy of it, or of a probe of that replica.
    Suspected { retry_after: Duration },
    /// The line is full, and this request or its tenant has the least claim to a place in it.
    LineFull { retry_after: Duration },
    /// By prediction it cannot be served in the time it was given.
    DeadlineUnmeetable { retry_after: Duration },
    /// Its time passed while it waited.
    DeadlinePassed { retry_after: Duration },
    /// It waited as long as its class may.
    WaitedOut { retry_after: Duration },
    /// It would begin a session, and the fleet's KV was full for as long as it may wait.
    SessionsFull { retry_after: Duration },
    /// The pool's brain was lost, or it panicked lately and rests: what it knew of the request is gone.
    Restarted { retry_after: Duration },
    /// It names by an id what a replica kept that is gone.
    NotKept,
    /// It is beyond its tenant's contract, and there is no idle capacity.
    OverContract { limit: &'static str, retry_after: Duration },
}

impl Refusal {
    /// Says when to come back, where coming back may help.
    pub const fn retry_after(self) -> Option<Duration> {
        match self {
            Self::NoReplica { retry_after }
            | Self::Suspected { retry_after }
            | Self::LineFull { retry_after }
            | Self::WaitedOut { retry_after }
            | Self::SessionsFull { retry_after }
            | Self::Restarted { retry_after }
            | Self::DeadlineUnmeetable { retry_after }
            | Self::DeadlinePassed { retry_after }
            | Self::OverContract { retry_after, .. } => Some(retry_after),
            Self::Unauthorized
            | Self::TriesSpent
            | Self::BudgetSpent
            | Self::Quarantined { .. }
            | Self::NotKept => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoReplica { .. } => "no_replica",
            Self::Unauthorized => "replica_unauthorized",
            Self::TriesSpent => "tries_spent",
            Self::BudgetSpent => "retry_budget_spent",
            Self::Quarantined { .. } => "quarantined",
            Self::Suspected { .. } => "suspected",
            Self::LineFull { .. } => "line_full",
            Self::DeadlineUnmeetable { .. } => "deadline_unmeetable",
            Self::DeadlinePassed { .. } => "deadline_passed",
            Self::WaitedOut { .. } => "waited_out",
            Self::SessionsFull { .. } => "sessions_full",
            Self::Restarted { .. } => "pool_restarted",
            Self::NotKept => "id_not_found",
            Self::OverContract { .. } => "over_contract",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_spoken_of_at_doublings_and_then_at_even_steps() {
        let told: Vec<u32> = (1..=130).filter(|it| streamed_is_due(it - 1, *it)).collect();
        assert_eq!(told, [8, 16, 32, 64, 96, 128]);
        assert!(streamed_is_due(9, 300) && !streamed_is_due(129, 130));
    }
}
