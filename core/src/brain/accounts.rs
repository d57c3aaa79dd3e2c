//! The brain's books: opened at the decision, in the same step; corrected as an answer streams past or
//! short of what was expected; closed once, whatever ends the request. Here the figures of a replica
//! are put together for policies, too: what we booked, what other routers booked, what the engine
//! says beyond that, at the pace the replica has shown.

use crate::cost::StepWork;
use crate::domain::{Moment, RequestId, Usage, float, span_ms, whole};
use crate::fleet::Load;
use crate::fleet::{Drift, Replica, ms, settled_us};
use crate::policy::{Books, Candidate};

use super::request::{Account, Booking, First};
use super::{Brain, Outcome};

/// How many workloads' drift is kept.
pub(super) const WORKLOADS_MAX: usize = 256;
/// Answers shorter than this say little about speed.
const PACED_TOKENS_MIN: u32 = 16;

/// How far predictions were off for one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkloadDrift {
    /// The workload half of its keys.
    pub workload: u32,
    pub drift: Drift,
}

impl Brain {
    /// Opens the account of a try, on the replica that `candidate` shows, where so many leading blocks
    /// of the prompt are believed to be cached.
    pub(super) fn open_account(
        &mut self,
        now: Moment,
        booking: &mut Booking,
        candidate: &Candidate,
        held_blocks: usize,
    ) {
        let outline = &booking.outline;
        let (cached, new) = (outline.tokens_in(held_blocks), outline.tokens_beyond(held_blocks));
        let output = outline.output_tokens.unwrap_or(0);
        let cost = &candidate.books.cost;
        let charge = Load::quote(cost, outline, cached, output, &booking.extent);
        booking.account = Account {
            charge,
            predicted_us: charge.prefill_us + charge.decode_us,
            cached_tokens: cached,
            sent_at: now,
            ttft_ms: candidate.books.ttft_ms(new, cached),
            is_read: false,
            first: None,
            streamed_tokens: 0,
        };
        if let Some(it) = self.fleet.get_mut(booking.replica) {
            it.on_sent(now, charge);
        }
        self.accounts_opened += 1;
    }

    /// Notes an answer's first token in the books. Returns whether it was the first sign of it.
    pub(super) fn begin_account(&mut self, now: Moment, request: RequestId) -> bool {
        let Some(booking) = self.requests.get_mut(&request) else { return false };
        let Some(it) = self.fleet.get_mut(booking.replica) else { return false };
        if booking.is_answering() {
            return false;
        }
        booking.account.read(now, &mut it.ledger);
        let ((_, answering), load) = (it.ledger.counts(), it.ledger.load());
        let (kv_tokens, prefilled_us) = (load.kv_tokens, it.ledger.prefilled_us());
        booking.account.first = Some(First { at: now, answering, kv_tokens, prefilled_us });
        true
    }

    /// Takes a prompt off the line though nothing has come of its answer.
    pub(super) fn read_account(&mut self, now: Moment, request: RequestId) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let Some(it) = self.fleet.get_mut(booking.replica) else { return };
        booking.account.read(now, &mut it.ledger);
    }

    /// Corrects the books by what has come of an answer.
    pub(super) fn on_streamed(&mut self, request: RequestId, output_tokens: u32) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let Some(it) = self.fleet.get_mut(booking.replica) else { return };
        let account = &mut booking.account;
        let Some(first) = account.first else { return };
        if account.streamed_tokens == 0 {
            // Only now is it sure that this is a stream, whose first byte is its first token.
            let seen_ms = span_ms(first.at.since(account.sent_at));
            self.foresight.note(account.ttft_ms, seen_ms);
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
    pub(super) fn close_account(&mut self, now: Moment, request: RequestId) -> Option<Booking> {
        let booking = self.requests.swap_remove(&request)?;
        self.policy.on_ended(now, request, booking.replica);
        if let Some(it) = self.fleet.get_mut(booking.replica) {
            it.on_ended(now, booking.account.charge, booking.account.is_read);
        }
        self.readings.on_ended(request, &booking);
        self.poison.on_closed(request);
        self.accounts_closed += 1;
        Some(booking)
    }

    /// Learns from a request that is over: how long prompts and answers are, how far the prediction
    /// was off, how fast the replica is.
    pub(super) fn learn(
        &mut self,
        now: Moment,
        booking: &Booking,
        outcome: Outcome,
        mut usage: Usage,
    ) {
        let Booking { key, extent, outline, account, .. } = booking;
        self.lengths.on_ended(*key, extent, outline, usage, outcome == Outcome::Done);
        let Some(it) = self.fleet.get_mut(booking.replica) else { return };
        if outcome == Outcome::Done && usage.output.is_some() {
            let settled = settled_us(&it.hardware.cost, outline, account.cached_tokens, usage);
            it.ledger.drift.note(account.predicted_us, settled);
            let workload = self.workloads.get_or_insert(key.0 >> 32);
            workload.note(account.predicted_us, settled);
        }
        usage.output = usage.output.or(Some(account.streamed_tokens));
        note_pace(it, now, account, usage);
    }

    /// How far predictions were off, for each workload that was there lately.
    pub fn workload_drifts(&self) -> Vec<WorkloadDrift> {
        let drift = |(key, drift): (u64, &Drift)| WorkloadDrift {
            workload: u32::try_from(key).unwrap_or(u32::MAX),
            drift: *drift,
        };
        self.workloads.iter().map(drift).collect()
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
    let step = StepWork { new_tokens: batch, attention_pairs: context, context_tokens: context };
    let held_up_ms = ms(replica.ledger.prefilled_since(first.prefilled_us));
    let predicted_ms = tokens * replica.hardware.step.step_ms(&step) + held_up_ms;
    replica.pace.note(now, now.since(first.at), predicted_ms);
}

/// Shows a policy what it may know of a replica, where engines usually have so many requests beside
/// those that routers know of.
pub(super) fn candidate(replica: &Replica, now: Moment, strangers_usual: f64) -> Candidate {
    Candidate {
        id: replica.id,
        place: replica.place,
        weight: replica.weight,
        in_flight: replica.in_flight,
        report: replica.reported.report(),
        books: books(replica, now, strangers_usual),
    }
}

fn books(replica: &Replica, now: Moment, strangers_usual: f64) -> Books {
    let (pace, own) = (replica.pace.factor(), replica.ledger.load());
    let others = replica.reported.booked_elsewhere(now);
    let strangers = replica.reported.reckon(now, replica.in_flight, strangers_usual);
    let (_, answering) = replica.ledger.counts();
    let line_ms = ms(replica.ledger.line_us(now, pace) + others.load.prefill_us)
        + strangers.waiting * replica.prefill_ms_mean;
    Books {
        wait_ms: pace * line_ms,
        running: f64::from(answering + others.in_flight) + strangers.running,
        reading_share: replica.ledger.reading_share(now, pace),
        kv_tokens: own.kv_tokens + others.load.kv_tokens + whole(strangers.kv_tokens.floor()),
        pace,
        step: replica.hardware.step,
        cost: replica.hardware.cost,
        overhead_ms: replica.hardware.overhead_ms,
    }
}
