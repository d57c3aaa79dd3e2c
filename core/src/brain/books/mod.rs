//! Books: every request that was sent and has not ended, with what it is charged with. An account is opened at
//! the decision, in the same step; corrected as an answer streams past or short of what was expected; closed
//! once, whatever ends the request. What is learned of lengths and of predictions is kept here too. It sees no
//! other machine: the ledgers of the replicas are handed in.

mod computed;
mod prefill_timers;
mod ttft_error;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::cost::StepWork;
use crate::domain::{
    Extent, Moment, Outline, ReplicaId, RequestId, SliceKey, Usage, float, span_ms,
};
use crate::fleet::{Drift, Fleet, Load, Replica, ms, settled_us};
use crate::policy::Candidate;
use crate::tokens::{Lengths, LengthsEntry, Lesson, Recent, TokenErrors};

pub(super) use computed::{Computed, believed};
pub use ttft_error::TtftError;

use super::event::Outcome;
use super::request::{Account, Booking, First};
use prefill_timers::PrefillTimers;

/// How many workloads' drift is kept.
const WORKLOADS_MAX: usize = 256;
/// Answers shorter than this say little about speed.
const PACED_TOKENS_MIN: u32 = 16;

/// How far predictions were off for one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadDrift {
    /// The workload half of its keys.
    pub workload: u32,
    pub drift: Drift,
}

#[derive(Debug)]
pub(super) struct Books {
    /// Boxed: a booking is large, and is moved when it is opened, closed, and when another one is closed.
    requests: IndexMap<RequestId, Box<Booking>, FxBuildHasher>,
    lengths: Lengths,
    drifts: Recent<Drift>,
    ttft_error: TtftError,
    prefill_timers: PrefillTimers,
    opened: u64,
    closed: u64,
}

impl Default for Books {
    fn default() -> Self {
        Self {
            requests: IndexMap::default(),
            lengths: Lengths::default(),
            drifts: Recent::new(WORKLOADS_MAX),
            ttft_error: TtftError::default(),
            prefill_timers: PrefillTimers::default(),
            opened: 0,
            closed: 0,
        }
    }
}

impl Books {
    /// Estimates what an outline leaves open.
    pub(super) fn complete(&self, key: SliceKey, extent: &Extent, outline: &mut Outline) {
        self.lengths.complete(key, extent, outline);
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn get(&self, request: RequestId) -> Option<&Booking> {
        self.requests.get(&request).map(|it| &**it)
    }

    pub(super) fn get_mut(&mut self, request: RequestId) -> Option<&mut Booking> {
        self.requests.get_mut(&request).map(|it| &mut **it)
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = (&RequestId, &Booking)> + Clone {
        self.requests.iter().map(|(request, booking)| (request, &**booking))
    }

    /// Lists what is in flight at a replica.
    pub(super) fn at(&self, replica: ReplicaId) -> impl Iterator<Item = RequestId> + '_ {
        let there = self.requests.iter().filter(move |it| it.1.replica == replica);
        there.map(|it| *it.0)
    }

    /// Opens the account of a request that goes to its replica, where it is charged already.
    pub(super) fn open(&mut self, request: RequestId, booking: Booking) {
        if !booking.extent.streams {
            self.prefill_timers.set(request, &booking.account);
        }
        self.requests.insert(request, Box::new(booking));
        self.opened += 1;
    }

    /// Notes an answer's first token in the books. Returns whether it was the first sign of it.
    pub(super) fn begin(&mut self, now: Moment, fleet: &mut Fleet, request: RequestId) -> bool {
        let Some(booking) = self.requests.get_mut(&request) else { return false };
        let Some(it) = fleet.get_mut(booking.replica) else { return false };
        if booking.is_answering() {
            return false;
        }
        booking.account.read(now, &mut it.ledger);
        let ((_, answering), load) = (it.ledger.counts(), it.ledger.load());
        let (kv_tokens, prefilled_us) = (load.kv_tokens, it.ledger.prefilled_us());
        booking.account.first = Some(First { at: now, answering, kv_tokens, prefilled_us });
        true
    }

    /// Takes the prompts off the line that should have been read by now, though nothing has come of their
    /// answers; says of which.
    pub(super) fn on_time(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        mut read: impl FnMut(RequestId),
    ) {
        while let Some(request) = self.prefill_timers.take(now) {
            let Some(booking) = self.requests.get_mut(&request) else { continue };
            let Some(it) = fleet.get_mut(booking.replica) else { continue };
            booking.account.read(now, &mut it.ledger);
            read(request);
        }
    }

    pub(super) fn next_wakeup(&self) -> Option<Moment> {
        self.prefill_timers.next_wakeup()
    }

    /// Corrects the books by what has come of an answer.
    pub(super) fn progress(&mut self, fleet: &mut Fleet, request: RequestId, output_tokens: u32) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let Some(it) = fleet.get_mut(booking.replica) else { return };
        let account = &mut booking.account;
        let Some(first) = account.first else { return };
        if account.streamed_tokens == 0 {
            // Only now is it sure that this is a stream, which shows its first token.
            let seen_ms = span_ms(first.at.since(account.sent_at));
            self.ttft_error.note(account.ttft_ms, seen_ms);
        }
        account.streamed_tokens = account.streamed_tokens.max(output_tokens);
        let streamed = account.streamed_tokens;
        let expected = self.lengths.expected_beyond(booking.key, &booking.extent, streamed);
        let expected = expected.or(booking.outline.output_tokens).unwrap_or(0);
        let prompt = booking.outline.prompt_tokens;
        let right = Load::quote_answer(&it.hardware.cost, prompt, streamed, expected);
        it.ledger.correct(&mut account.charge, right);
    }

    /// Takes a request off the books. `None` when it is not on them: it ends once, whatever comes.
    pub(super) fn close(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        request: RequestId,
    ) -> Option<Box<Booking>> {
        let booking = self.requests.swap_remove(&request)?;
        if let Some(it) = fleet.get_mut(booking.replica) {
            it.on_ended(now, booking.account.charge, booking.account.is_read);
        }
        self.prefill_timers.clear(request, &booking.account);
        self.closed += 1;
        Some(booking)
    }

    /// Learns from a request that is over: how long prompts and answers are, how far the prediction
    /// was off, how fast the replica is.
    pub(super) fn learn(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        booking: &Booking,
        outcome: Outcome,
        mut usage: Usage,
    ) {
        let Booking { key, extent, outline, account, .. } = booking;
        self.lengths.on_ended(*key, extent, outline, usage, outcome == Outcome::Done);
        let Some(it) = fleet.get_mut(booking.replica) else { return };
        if outcome == Outcome::Done && usage.output.is_some() {
            let settled = settled_us(&it.hardware.cost, outline, account.cached_tokens, usage);
            it.ledger.drift.note(account.predicted_us, settled);
            let workload = self.drifts.get_or_insert(key.workload().into());
            workload.note(account.predicted_us, settled);
        }
        usage.output = usage.output.or(Some(account.streamed_tokens));
        note_pace(it, now, account, usage);
    }

    /// Learns from an answer that another router relayed.
    pub(super) fn hear(&mut self, lesson: &Lesson) {
        self.lengths.learn(lesson);
    }

    /// Takes on what another router learned of lengths that are not known here.
    pub(super) fn take_on(&mut self, entry: &LengthsEntry) {
        self.lengths.take_on(entry);
    }

    /// Lists what was learned of lengths.
    pub(super) fn lengths(&self) -> impl Iterator<Item = LengthsEntry> + '_ {
        self.lengths.entries()
    }

    pub(super) fn misses(&self) -> TokenErrors {
        self.lengths.misses()
    }

    pub(super) const fn ttft_error(&self) -> &TtftError {
        &self.ttft_error
    }

    /// How far predictions were off, for each workload that was there lately.
    pub(super) fn drifts(&self) -> impl Iterator<Item = WorkloadDrift> + '_ {
        self.drifts.iter().map(|(key, drift)| WorkloadDrift {
            workload: u32::try_from(key).unwrap_or(u32::MAX),
            drift: *drift,
        })
    }

    /// Counts the accounts that were opened, and those that were closed.
    pub(super) const fn changes(&self) -> u64 {
        self.opened + self.closed
    }

    /// Tells whether every account that was opened is open, or was closed once.
    pub(super) fn is_sound(&self) -> bool {
        let open = u64::try_from(self.requests.len()).unwrap_or(u64::MAX);
        self.opened == self.closed + open
    }
}

/// Quotes a try on the replica that `candidate` shows, where the first `held_blocks` blocks of the prompt are
/// believed to be cached.
pub(super) fn quote(
    now: Moment,
    booking: &Booking,
    candidate: &Candidate,
    held_blocks: usize,
) -> Account {
    let outline = &booking.outline;
    let (cached, new) = (outline.tokens_in(held_blocks), outline.tokens_beyond(held_blocks));
    let output = outline.output_tokens.unwrap_or(0);
    let charge = Load::quote(&candidate.load.cost, outline, cached, output, &booking.extent);
    Account {
        charge,
        predicted_us: charge.prefill_us + charge.decode_us,
        cached_tokens: cached,
        sent_at: now,
        is_trial: false,
        ttft_ms: candidate.load.ttft_ms(new, cached),
        gap_ms: candidate.load.gap_ms(),
        expected_ms: 0,
        is_read: false,
        first: None,
        streamed_tokens: 0,
    }
}

/// Compares how long an answer took with how long it should have, beside all that went on there.
fn note_pace(replica: &mut Replica, now: Moment, account: &Account, usage: Usage) {
    let Some(first) = account.first.filter(|_| PACED_TOKENS_MIN <= account.streamed_tokens) else {
        return;
    };
    let tokens = f64::from(usage.output.unwrap_or(0).max(1));
    let ((_, answering), load) = (replica.ledger.counts(), replica.ledger.load());
    let batch = f64::midpoint(f64::from(first.answering), f64::from(answering + 1));
    let own_tokens = load.kv_tokens + account.charge.kv_tokens;
    let context = f64::midpoint(float(first.kv_tokens), float(own_tokens));
    let step = StepWork::answers(batch, context);
    let held_up_ms = ms(replica.ledger.prefilled_since(first.prefilled_us));
    let predicted_ms = tokens * replica.hardware.step.step_ms(&step) + held_up_ms;
    replica.pace.note(now, now.since(first.at), predicted_ms);
}
