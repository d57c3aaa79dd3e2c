//! One request that was sent and has not ended: what the machines of the brain hand each other about it.
//! Each of them owns its part (`account` the books, `estimate` admission, `fingerprint` poison), and none
//! sees another machine for it.

mod account;
mod estimate;
mod fingerprint;
mod seen;

use crate::domain::{Extent, Moment, Outline, ReplicaId, SliceKey};
use crate::fleet::Reason;
use crate::policy::Ask;

use super::Move;

pub(super) use account::{Account, First};
pub(super) use estimate::{CostEstimate, Due, PromptSize, target};
pub use fingerprint::Fingerprint;
pub(super) use seen::{Mark, PromptsRead, TimesSeen};

#[derive(Debug)]
pub(super) struct Booking {
    pub(super) key: SliceKey,
    pub(super) outline: Outline,
    pub(super) extent: Extent,
    pub(super) replica: ReplicaId,
    pub(super) account: Account,
    pub(super) past: Past,
    /// The replica that served its session before, if that was another.
    pub(super) moved_from: Option<ReplicaId>,
    /// Why its session left its replica, if it did.
    pub(super) moved: Option<Move>,
    pub(super) fingerprint: Fingerprint,
    /// Its last report of progress: the moment, its tokens, and what the replica had read by then.
    pub(super) mark: Option<(Moment, u32, u64)>,
    /// What costs are learned from.
    pub(super) seen: TimesSeen,
    /// What it was expected to cost, and what it holds of its contract.
    pub(super) estimate: CostEstimate,
}

/// What came of a request before this try, and what is known of one that may have brought a replica down.
#[derive(Debug, Default)]
pub(super) struct Past {
    /// The replicas where it failed before.
    pub(super) tried: Vec<ReplicaId>,
    /// Replicas among `tried` that answered with an error or lost it. They are blamed only if another replica
    /// does better: a request that fails everywhere is itself to blame.
    pub(super) suspects: Vec<Suspect>,
    /// Nothing of its session was sent before it.
    pub(super) is_first: bool,
    /// Its answer has begun, here or where it was before.
    pub(super) has_begun: bool,
    /// It had reached a replica that then lost it.
    pub(super) was_lost: bool,
}

/// A replica where a try failed, perhaps by its own fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) replica: ReplicaId,
    pub(super) reason: Reason,
    /// Whether the answer had begun there. Then only a whole answer elsewhere is a better one.
    pub(super) had_begun: bool,
}

impl Booking {
    pub(super) fn new(
        key: SliceKey,
        outline: Outline,
        extent: Extent,
        fingerprint: Fingerprint,
        replica: ReplicaId,
        estimate: CostEstimate,
    ) -> Self {
        Self {
            key,
            outline,
            extent,
            replica,
            account: Account::default(),
            past: Past::default(),
            moved_from: None,
            moved: None,
            fingerprint,
            mark: None,
            seen: TimesSeen::default(),
            estimate,
        }
    }

    /// Tells whether it asks about what a replica keeps, and has no prompt.
    pub(super) const fn is_question(&self) -> bool {
        self.outline.kept_at.is_some() && self.extent.prompt_bytes() == 0
    }

    /// Counts the replicas where it was, in vain.
    pub(super) fn tries(&self) -> u32 {
        u32::try_from(self.past.tried.len()).unwrap_or(u32::MAX)
    }

    pub(super) fn is_answering(&self) -> bool {
        self.account.first.is_some()
    }

    /// Tells whether its answer has begun, and about when it should have: one that came through a hang
    /// begins late, and does not show that it does no harm.
    pub(super) fn began_in_time(&self) -> bool {
        self.account.began_in_time()
    }

    pub(super) fn ask(&self, now: Moment) -> Ask<'_> {
        let promise = self.estimate.promise;
        Ask { now, key: self.key, outline: &self.outline, home: None, promise }
    }
}
