//! One request that was sent and has not ended, and its account in the books of its replica.

use std::time::Duration;

use crate::domain::{Extent, Moment, Outline, ReplicaId, SliceKey, span_of_ms};
use crate::fleet::{Ledger, Load};
use crate::policy::Ask;

use super::blame::Suspect;
use super::line::Toll;
use super::quarantine::Fingerprint;

/// A first token is late after twice the time it was predicted to take and this.
const LATE_AFTER: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Booking {
    pub(super) key: SliceKey,
    pub(super) outline: Outline,
    pub(super) extent: Extent,
    pub(super) replica: ReplicaId,
    pub(super) account: Account,
    /// Whether it went to a replica that was out, to see whether it is back.
    pub(super) trial: bool,
    /// Who served its session before, if that was somebody else.
    pub(super) moved_from: Option<ReplicaId>,
    /// Where it was before, in vain.
    pub(super) tried: Vec<ReplicaId>,
    /// Those of them that answered with an error or lost it. They are blamed only if another replica
    /// does better: a request that fails everywhere is itself to blame.
    pub(super) suspects: Vec<Suspect>,
    pub(super) fingerprint: Fingerprint,
    /// When it was last heard of: the moment, its tokens, and what the replica had read by then.
    pub(super) mark: Option<(Moment, u32, u64)>,
    /// What it was expected to cost, and what it holds of its contract.
    pub(super) toll: Toll,
}

/// What one try is charged with, and what was expected of it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Account {
    /// What the books hold for it now.
    pub(super) charge: Load,
    /// What it was booked with at the decision, in all.
    pub(super) predicted_us: u64,
    /// Prompt tokens believed to be cached.
    pub(super) cached_tokens: u32,
    pub(super) sent_at: Moment,
    /// The time to the first token, as predicted.
    pub(super) ttft_ms: f64,
    /// Whether its prompt is taken to be read, and its answer to be written.
    pub(super) is_read: bool,
    /// Set at its first byte: from then on it cannot go elsewhere.
    pub(super) first: Option<First>,
    /// Tokens of its answer that have come so far.
    pub(super) streamed_tokens: u32,
}

/// How things stood at the replica when the answer began.
#[derive(Clone, Copy, Debug)]
pub(super) struct First {
    pub(super) at: Moment,
    pub(super) answering: u32,
    pub(super) kv_tokens: u64,
    pub(super) prefilled_us: u64,
}

impl Account {
    /// Takes its prompt off the line of its replica, once.
    pub(super) fn read(&mut self, now: Moment, ledger: &mut Ledger) {
        if !self.is_read {
            ledger.begin(now, &mut self.charge);
            self.is_read = true;
        }
    }
}

impl Booking {
    pub(super) fn new(
        key: SliceKey,
        outline: Outline,
        extent: Extent,
        replica: ReplicaId,
        toll: Toll,
    ) -> Self {
        let (account, trial, moved_from) = (Account::default(), false, None);
        let (tried, suspects, mark) = (Vec::new(), Vec::new(), None);
        let fingerprint = Fingerprint::of(key, &outline, &extent);
        Self {
            key,
            outline,
            extent,
            replica,
            account,
            trial,
            moved_from,
            tried,
            suspects,
            fingerprint,
            mark,
            toll,
        }
    }

    pub(super) fn is_answering(&self) -> bool {
        self.account.first.is_some()
    }

    /// Tells whether its answer has begun, and about when it should have: one that came through a hang
    /// begins late, and does not show that it does no harm.
    pub(super) fn began_in_time(&self) -> bool {
        let Account { sent_at, ttft_ms, first, .. } = &self.account;
        let in_time = span_of_ms(*ttft_ms) * 2 + LATE_AFTER;
        first.is_some_and(|it| it.at.since(*sent_at) <= in_time)
    }

    pub(super) fn ask(&self, now: Moment) -> Ask<'_> {
        let first_token = self.toll.first_token;
        Ask { now, key: self.key, outline: &self.outline, first_token }
    }
}
