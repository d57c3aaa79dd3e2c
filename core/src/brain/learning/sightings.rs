//! What an engine did in a time that was seen. A prompt's turn comes when it is sent, or when the first token
//! of the prompt before it has come, whichever is later: so a line that is priced wrongly does not matter.
//! Several first tokens that come together were read together, and are one sighting.

use std::time::Duration;

use crate::cost::StepWork;
use crate::cost::learned::{Sighting, SightingKind};
use crate::domain::{Moment, RequestId, Usage, float, span_ms};
use crate::fleet::{Fleet, Replica};

use super::super::request::{Booking, Mark, PromptsRead, TimesSeen};
use super::Learning;

/// First tokens that come closer together than this share of what the later one should take were read
/// together.
const TOGETHER_SHARE: f64 = 0.25;
const TOGETHER_MS: f64 = 1.0;
/// Tokens over which gaps are measured at least.
const TOKENS_MIN: u32 = 8;
/// Streams of one replica share their steps, so one of them at a time is enough.
const GAPS_INTERVAL: Duration = Duration::from_millis(200);
/// From this share on, an engine with a line may have it for want of memory.
const KV_FULL_SHARE: f64 = 0.9;

/// A first token that came together with that of another request, whose sighting is to take it in.
#[derive(Clone, Copy, Debug)]
pub(in crate::brain) struct Joint {
    pub(in crate::brain) with: RequestId,
    work: StepWork,
    later_ms: f64,
}

impl Joint {
    pub(in crate::brain) fn add_to(&self, seen: &mut TimesSeen) {
        if let Some(it) = &mut seen.first {
            it.reading_tokens += self.work.new_tokens;
            it.attention_pairs += self.work.attention_pairs;
            it.context_tokens += self.work.context_tokens;
            it.ms += self.later_ms;
        }
    }
}

impl Learning {
    /// Notes how things stand when a request is sent whose answer will come in one piece.
    pub(in crate::brain) fn on_sent(&self, now: Moment, fleet: &Fleet, booking: &mut Booking) {
        booking.seen = TimesSeen::default();
        let Some(replica) = fleet.get(booking.replica) else { return };
        if !booking.extent.streams && is_plain(booking) {
            booking.seen.mark = self.mark(now, replica, 0);
        }
    }

    /// Notes the first token of a stream, which is in the books already. Returns what it has in common with an
    /// earlier one.
    pub(in crate::brain) fn on_first_token(
        &mut self,
        now: Moment,
        fleet: &Fleet,
        request: RequestId,
        booking: &mut Booking,
    ) -> Option<Joint> {
        let replica = fleet.get(booking.replica)?;
        let member = self.members.get_mut(&booking.replica)?;
        if !booking.extent.streams {
            return None;
        }
        let (new, cached) = prompt_of(booking, Usage::default());
        member.read.add(new, cached);
        let (sent_at, before) = (booking.account.sent_at, member.first);
        let work = StepWork::of(new, cached);
        if let Some((at, with)) = before {
            let later_ms = span_ms(now.since(at));
            let alone_ms = replica.hardware.step.step_ms(&work);
            if sent_at < at && later_ms <= (TOGETHER_SHARE * alone_ms).max(TOGETHER_MS) {
                member.first = Some((now, with));
                return Some(Joint { with, work, later_ms });
            }
        }
        member.first = Some((now, request));
        if is_plain(booking) && !has_hidden_line(replica) {
            let turn = before.map(|it| it.0).filter(|it| sent_at < *it);
            booking.seen.first = Some(reading(now, replica, sent_at, turn));
        }
        None
    }

    /// Notes how far a stream has come.
    pub(in crate::brain) fn on_streamed(
        &mut self,
        now: Moment,
        fleet: &Fleet,
        booking: &mut Booking,
        tokens: u32,
    ) {
        if !booking.extent.streams || !is_plain(booking) {
            return;
        }
        let Some(replica) = fleet.get(booking.replica) else { return };
        let Some(mark) = self.mark(now, replica, tokens) else { return };
        let Some(before) = booking.seen.mark.replace(mark) else { return };
        let Some(member) = self.members.get_mut(&booking.replica) else { return };
        let written = tokens.saturating_sub(before.tokens);
        if written < TOKENS_MIN || now.since(member.gaps_at) < GAPS_INTERVAL {
            return;
        }
        member.gaps_at = now;
        let read = mark.read.since(&before.read);
        let sighting = writing(&before, &mark, f64::from(written), &read);
        self.see(replica, SightingKind::Gaps, sighting);
    }

    /// Learns from a request that is over, by what its engine said of it.
    pub(in crate::brain) fn on_ended(
        &mut self,
        now: Moment,
        fleet: &Fleet,
        booking: &Booking,
        usage: Usage,
        is_whole: bool,
    ) {
        let Some(replica) = fleet.get(booking.replica) else { return };
        let (new, cached) = prompt_of(booking, usage);
        let work = StepWork::of(new, cached);
        if let Some(mut it) = booking.seen.first {
            // A stream that asked for one token shows none beside its first.
            it.reading_tokens += work.new_tokens;
            it.attention_pairs += work.attention_pairs;
            it.context_tokens += work.context_tokens;
            return self.see(replica, SightingKind::FirstToken, it);
        }
        if booking.extent.streams || !is_whole {
            return;
        }
        let Some(member) = self.members.get_mut(&booking.replica) else { return };
        member.read.add(new, cached);
        let (Some(output), Some(before)) = (usage.output, booking.seen.mark) else { return };
        let Some(mark) = self.mark(now, replica, output) else { return };
        if 0 < output && !has_hidden_line(replica) {
            let read = mark.read.since(&before.read);
            let sighting = writing(&before, &mark, f64::from(output), &read);
            let context_tokens = sighting.context_tokens + work.context_tokens;
            self.see(
                replica,
                SightingKind::Whole,
                Sighting { answers: 1.0, context_tokens, ..sighting },
            );
        }
    }

    fn mark(&self, at: Moment, replica: &Replica, tokens: u32) -> Option<Mark> {
        let read = self.members.get(&replica.id)?.read;
        let (batch, context) = written_beside(replica);
        Some(Mark { at, tokens, batch: batch.max(1.0), context, read })
    }
}

/// Tells whether a request is text and one answer, so that its tokens are all there is to it.
const fn is_plain(booking: &Booking) -> bool {
    booking.extent.attachments == 0 && booking.extent.media == 0 && booking.extent.answers <= 1
}

/// Tells whether prompts may be ahead that this router does not see come out.
fn has_hidden_line(replica: &Replica) -> bool {
    let others = replica.ledger.elsewhere().load();
    let is_full = |it: &crate::domain::Report| 0 < it.waiting && KV_FULL_SHARE <= it.kv_used_share;
    0 < others.prefill_us || replica.reported.report().as_ref().is_some_and(is_full)
}

/// The prompt's new and cached tokens, by what its engine says and else as they were believed.
fn prompt_of(booking: &Booking, usage: Usage) -> (u32, u32) {
    let input = usage.input.unwrap_or(booking.outline.prompt_tokens);
    let cached = usage.cached.unwrap_or(booking.account.cached_tokens).min(input);
    (input - cached, cached)
}

/// Counts the answers that are being written at a replica, and the tokens of their contexts.
fn written_beside(replica: &Replica) -> (f64, f64) {
    let (waiting, answering) = replica.ledger.counts();
    let (written, all) =
        (f64::from(answering), f64::from(waiting.saturating_add(answering).max(1)));
    // What waits is not in the batch yet; its share of the tokens is not known by itself.
    (written, float(replica.ledger.load().kv_tokens) * written / all)
}

/// The step that ended with a first token, without that prompt's own tokens. `turn` is when the prompt before
/// it was read; without one it found the replica free to read.
fn reading(now: Moment, replica: &Replica, sent_at: Moment, turn: Option<Moment>) -> Sighting {
    let (all, context) = written_beside(replica);
    let beside = (all - 1.0).max(0.0);
    let context = context * beside / all.max(1.0);
    let is_free = turn.is_none();
    Sighting {
        // The step that it found under way, by half.
        steps: if is_free && 1.0 <= beside { 0.5 } else { 0.0 },
        batch: beside,
        reading_steps: 1.0,
        reading_tokens: beside,
        attention_pairs: context,
        context_tokens: context,
        answers: if is_free { 1.0 } else { 0.0 },
        ms: span_ms(now.since(turn.unwrap_or(sent_at))),
    }
}

/// The steps in which `written` tokens of an answer were written, and `read` was read beside them.
fn writing(before: &Mark, now: &Mark, written: f64, read: &PromptsRead) -> Sighting {
    let reading_steps = float(read.prompts).min(written);
    let batch = f64::midpoint(before.batch, now.batch);
    let context = written * f64::midpoint(before.context, now.context);
    Sighting {
        steps: written - reading_steps,
        batch,
        reading_steps,
        reading_tokens: batch + float(read.tokens) / reading_steps.max(1.0),
        attention_pairs: context + float(read.pairs),
        context_tokens: context,
        answers: 0.0,
        ms: span_ms(now.at.since(before.at)),
    }
}
