//! One fact that a router tells the others of one pool. Each fact has one writer: the router that sent a request tells
//! of it, under its own number.

use std::sync::Arc;
use std::time::Duration;

use crate::cost::learned::Learned;
use crate::domain::{Place, PromptTail, RequestId, RouterId, SliceKey};
use crate::fleet::{Load, State};
use crate::kept::KeptRow;
use crate::scaling::Reason as ScaleReason;
use crate::sharding::{Assignment, Generation};
use crate::tokens::{LengthsEntry, Lesson};

/// How long what another router needs for its next decision may wait.
pub(super) const URGENT: Duration = Duration::from_millis(2);
#[derive(Clone, Debug, PartialEq)]
pub enum News {
    /// A request was sent.
    Opened(Box<Opened>),
    /// Its prompt is read, and its answer is being written.
    Begun { request: RequestId },
    /// What is left of its answer, told coarsely.
    Progressed { request: RequestId, left: Load },
    /// It is over, at that replica.
    Ended { request: RequestId, came: Option<Came> },
    /// A session is at another replica than rendezvous hashing gives it.
    Home { key: SliceKey, replica: Place },
    /// The state of a replica changed, as this router sees it.
    Stood { replica: Place, state: State },
    /// An operator ordered something.
    Ordered { order: SharedOrder, stamp: Stamp },
    /// These blocks lie in a replica's cache.
    Cached { replica: Place, block_tokens: u32, chain: PromptTail },
    /// How many blocks are believed to lie in a replica's cache, and a sample of them, for comparison.
    Sampled { replica: Place, held: u64, sample: Vec<u64> },
    /// Asks for the beginning of a chain that is not known here.
    AskedChain { replica: Place, parent: u64, depth: u32 },
    /// Asks for all that is believed to lie in a replica's cache.
    AskedReplica { replica: Place },
    /// The router lost what it knew, also of its own requests, and asks for everything.
    Forgot,
    /// Which replicas each workload may use, as a leader planned it; the highest generation holds.
    Assigned(Arc<Assignment>),
    /// The generation that the router goes by, for comparison.
    Planned { generation: Generation },
    /// Asks for the assignment that the router goes by.
    AskedPlan,
    /// What waits in the router's line, by class.
    Waiting { classes: Vec<WaitingClass> },
    /// The router found something out that concerns all.
    Found(FoundOut),
}

/// What one router finds out and all should know.
#[derive(Clone, Debug, PartialEq)]
pub enum FoundOut {
    /// A request is held because replicas went down under it, for this long.
    Quarantined { key: SliceKey, fingerprint: u64, left_ms: u32 },
    /// A request that was held was served whole after all.
    Acquitted { key: SliceKey, fingerprint: u64 },
    /// A replica went down, with these requests of this router in flight there.
    Died { replica: Place, witnesses: Vec<DeathWitness> },
    /// Another process answers at the address of a replica, and its cache is cold.
    Restarted { replica: Place },
    /// What an answer teaches of lengths.
    Taught(Box<Lesson>),
    /// What was learned of the lengths of a model or a workload.
    Lengths(Box<LengthsEntry>),
    /// What was learned of the costs of a class of replicas.
    Learned(Box<Learned>),
    /// How much is missing of what a tenant may use: work, tokens, requests.
    Spent { tenant: u64, missing: [u64; 3] },
    /// Ids of what engines keep, and where. It concerns no pool.
    Kept { rows: Vec<KeptRow> },
    /// What was asked of the router since it told this last, in millionths of a model unit: work that counts for the size
    /// of the pool, work beyond contracts, and what of it was refused for lack of room.
    Demand { offered: u64, beyond: u64, refused: u64 },
    /// A request was refused for lack of room: wherever it comes again, it is the same work.
    TurnedAway { mark: u64 },
    /// How many replicas the router that leads wants, and why.
    Sized { replicas: u32, reason: ScaleReason },
}

/// What waits of one class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingClass {
    /// In millionths of a model unit.
    pub work: u64,
    /// How long from now one of them can still be in time.
    pub in_time_ms: u32,
}

/// A request that was in flight at a replica that went down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeathWitness {
    pub fingerprint: u64,
    pub workload: u32,
    /// Whether nothing of its session was ever answered.
    pub is_new: bool,
}

impl News {
    /// How long may wait what another router need not hear of before its next decision.
    pub const PATIENT: Duration = Duration::from_millis(20);

    /// How long it may wait for others to go with it. Most of what happens is the progress and the end of streams and
    /// what they teach; whether another router hears of that now or some ms later, it decides the same.
    pub const fn patience(&self) -> Duration {
        match self {
            Self::Begun { .. }
            | Self::Progressed { .. }
            | Self::Ended { .. }
            | Self::Sampled { .. }
            | Self::Planned { .. }
            | Self::Found(
                FoundOut::Taught(_)
                | FoundOut::Lengths(_)
                | FoundOut::Learned(_)
                | FoundOut::Spent { .. }
                | FoundOut::Demand { .. }
                | FoundOut::TurnedAway { .. }
                | FoundOut::Sized { .. },
            ) => Self::PATIENT,
            Self::Opened(_)
            | Self::Home { .. }
            | Self::Stood { .. }
            | Self::Ordered { .. }
            | Self::Cached { .. }
            | Self::AskedChain { .. }
            | Self::AskedReplica { .. }
            | Self::Forgot
            | Self::Assigned(_)
            | Self::AskedPlan
            | Self::Waiting { .. }
            | Self::Found(
                FoundOut::Quarantined { .. }
                | FoundOut::Acquitted { .. }
                | FoundOut::Died { .. }
                | FoundOut::Restarted { .. }
                | FoundOut::Kept { .. },
            ) => URGENT,
        }
    }

    /// The version of the protocol from which on a router can read it.
    pub(super) const fn version(&self) -> u32 {
        match self {
            Self::Opened(_)
            | Self::Begun { .. }
            | Self::Progressed { .. }
            | Self::Ended { .. }
            | Self::Home { .. }
            | Self::Stood { .. }
            | Self::Ordered { .. }
            | Self::Cached { .. }
            | Self::Sampled { .. }
            | Self::AskedChain { .. }
            | Self::AskedReplica { .. }
            | Self::Forgot => 1,
            Self::Found(
                FoundOut::Demand { .. } | FoundOut::TurnedAway { .. } | FoundOut::Sized { .. },
            ) => 5,
            Self::Assigned(_)
            | Self::Planned { .. }
            | Self::AskedPlan
            | Self::Waiting { .. }
            | Self::Found(_) => 2,
        }
    }
}

/// One request that was sent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    pub request: RequestId,
    pub replica: Place,
    pub key: SliceKey,
    /// What its router charges it with.
    pub charge: Load,
    /// How long it should take, to the end of its answer.
    pub expected_ms: u32,
    /// What it takes of its tenant's contract: work in parts of a model unit, and tokens.
    pub tenant: u64,
    pub work: u64,
    pub tokens: u64,
    /// Whether it was not sent anywhere before.
    pub is_first_try: bool,
    pub adapter: u64,
    pub block_tokens: u32,
    /// What it adds to the cache there.
    pub chain: PromptTail,
}

/// What a request came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Came {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Its work in parts of a model unit, and its tokens, for its tenant's contract.
    pub work: u64,
    pub tokens: u64,
}

/// An order that holds at every router.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SharedOrder {
    Freeze { is_on: bool },
    Pin { workload: u32, replicas: Vec<Place> },
    Drain { replica: Place, is_on: bool },
}

/// When an order was given, without a clock: the higher one holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    pub number: u64,
    pub router: RouterId,
}
