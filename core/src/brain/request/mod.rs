//! One request that was sent and has not ended: what the machines of the brain hand each other about it.
//! Each of them owns its part (the account the books, the estimate admission, the fingerprint poison, the times seen learning), and none
//! sees another machine for it.

mod estimate;

use std::time::Duration;

use crate::cost::learned::Sighting;
use crate::domain::{Extent, Moment, Outline, ReplicaId, SliceKey, span_of_ms};
use crate::fleet::{Ledger, Load, Reason};
use crate::policy::Ask;

use super::Move;

pub(super) use estimate::{CostEstimate, Due, PromptSize, target};

/// A first token is late after twice its predicted time plus this.
const LATE_AFTER: Duration = Duration::from_secs(1);

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
    /// Whether its replica was out, and it is to show whether that is back.
    pub(super) is_trial: bool,
    /// The time to the first token, as predicted.
    pub(super) ttft_ms: f64,
    /// The time between two tokens of its answer, as predicted.
    pub(super) gap_ms: f64,
    /// How long it should take in all, as other routers were told; 0 where none were.
    pub(super) expected_ms: u32,
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

    /// Tells whether its answer has begun, and about when it should have.
    fn began_in_time(&self) -> bool {
        let in_time = span_of_ms(self.ttft_ms) * 2 + LATE_AFTER;
        self.first.is_some_and(|it| it.at.since(self.sent_at) <= in_time)
    }
}

/// A prompt of a workload, whatever session it comes in; 0 when nothing is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// Marks a request by its workload and its whole prompt; 0 when its prompt is not known.
    pub(super) fn of(key: SliceKey, outline: &Outline, extent: &Extent) -> Self {
        let last = outline.blocks.last().copied().unwrap_or(0);
        if last == 0 && extent.digest == 0 {
            return Self(0);
        }
        let parts = [
            u64::from(key.workload()),
            last,
            extent.digest,
            u64::from(extent.text_bytes),
            u64::from(extent.attachment_bytes),
        ];
        let mixed = parts.iter().fold(0x9E37_79B9_7F4A_7C15_u64, |hash, part| {
            (hash.rotate_left(23) ^ part).wrapping_mul(0xD6E8_FEB8_6659_FD93)
        });
        Self(mixed.max(1))
    }
}

/// What was seen of a request's times, kept until the engine has said what the request came to: how many tokens of its
/// prompt were cached is known only then.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct TimesSeen {
    /// How long its prompt took from when its turn came, and what was written beside it. Its own tokens are
    /// still missing.
    pub(super) first: Option<Sighting>,
    /// How things stood when its tokens were last counted, or when it was sent.
    pub(super) mark: Option<Mark>,
}

/// How things stood at a replica.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mark {
    pub(super) at: Moment,
    /// Tokens of the answer by then.
    pub(super) tokens: u32,
    /// Answers that were being written.
    pub(super) batch: f64,
    /// Tokens of their contexts.
    pub(super) context: f64,
    /// What the replica had read by then.
    pub(super) read: PromptsRead,
}

/// Prompts that a replica has read, from zero again when that is full.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PromptsRead {
    pub(super) prompts: u64,
    pub(super) tokens: u64,
    /// Pairs of attending tokens.
    pub(super) pairs: u64,
}

impl PromptsRead {
    /// Adds a prompt of which `new` tokens were computed over `cached` ones.
    pub(super) fn add(&mut self, new: u32, cached: u32) {
        let (new, cached) = (u64::from(new), u64::from(cached));
        let pairs = new.saturating_mul(cached + new / 2);
        self.prompts = self.prompts.wrapping_add(1);
        self.tokens = self.tokens.wrapping_add(new);
        self.pairs = self.pairs.wrapping_add(pairs);
    }

    /// Says what was read since it was `before`.
    pub(super) const fn since(&self, before: &Self) -> Self {
        Self {
            prompts: self.prompts.wrapping_sub(before.prompts),
            tokens: self.tokens.wrapping_sub(before.tokens),
            pairs: self.pairs.wrapping_sub(before.pairs),
        }
    }
}
