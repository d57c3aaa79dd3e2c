//! Silence: a replica that has work and shows no sign of it. Plain figures are gathered for the hang detector of
//! each replica (`fleet/hang`), and its verdict is acted on: a suspect gets nothing new, a hung replica goes out
//! and what it had is given up, so that it can go elsewhere.
//!
//! No replica is put out for it when no other is there: a slow answer is better than none.

use std::time::Duration;

use crate::cost::StepWork;
use crate::domain::{Extent, Moment, ReplicaId, span_ms};
use crate::fleet::{
    ExpectedSilence, Fleet, HangVerdict, Reason, Replica, SilentWork, Standing, ms,
};

use super::super::request::Booking;
use super::probes::ask;
use super::{Finding, Health, change, change_for};

/// A silence shorter than this is not looked into.
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// How long an answer in one piece may be when its client sets no limit.
const WHOLE_TOKENS_MAX: u32 = 8192;
/// How many times the predicted length an answer may well have.
const LIKELY_FACTOR: u32 = 2;
/// How long other routers may keep a replica busy without this one knowing, in milliseconds.
const FOREIGN_MS: f64 = 30_000.0;

impl Health {
    /// Notes that a request's first token has come.
    pub(in crate::brain) fn on_first_token(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        booking: &mut Booking,
        found: &mut Vec<Finding>,
    ) {
        let Some(it) = fleet.get(booking.replica) else { return };
        booking.mark = Some((now, 0, it.ledger.prefilled_us()));
        self.on_sign(fleet, booking.replica, now, found);
    }

    /// Notes how far a stream has come.
    pub(in crate::brain) fn on_streamed(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        booking: &mut Booking,
        tokens: u32,
        found: &mut Vec<Finding>,
    ) {
        let Some(it) = fleet.get_mut(booking.replica) else { return };
        note_crowding(now, it);
        let prefilled_us = it.ledger.prefilled_us();
        let before = booking.mark.replace((now, tokens, prefilled_us));
        if let Some((at, tokens_before, prefilled_us_before)) = before
            && tokens_before < tokens
            && !it.watch.was_crowded(at)
        {
            let new_tokens = f64::from(tokens - tokens_before);
            let context = booking.outline.prompt_tokens.saturating_add(tokens);
            // Prompts that were read meanwhile, or wait, explain a delay; those that wait are counted
            // whole, which forgives too much rather than too little.
            let waiting_us = it.ledger.load().prefill_us;
            let read_since_us = it.ledger.prefilled_since(prefilled_us_before);
            let read_ms = ms(read_since_us) + ms(waiting_us);
            let predicted_ms = new_tokens * step_ms(it, context) + read_ms;
            it.watch.slow.on_gap(now, span_ms(now.since(at)), predicted_ms);
        }
        self.on_sign(fleet, booking.replica, now, found);
    }

    /// Notes a sign of life: a replica that was suspected for its silence is not any more.
    pub(in crate::brain) fn on_sign(
        &mut self,
        fleet: &mut Fleet,
        replica: ReplicaId,
        at: Moment,
        found: &mut Vec<Finding>,
    ) {
        let Some(it) = fleet.get_mut(replica) else { return };
        if at <= it.watch.hang.quiet_since() {
            // Known already: drivers report the time of the last byte whenever they are asked.
            return;
        }
        it.watch.hang.on_sign(at, &mut self.model);
        it.watch.mute_since = it.watch.mute_since.filter(|since| at < *since);
        if let Standing::Suspect { .. } = it.breaker.standing() {
            found.extend(change(fleet, replica, |it| it.breaker.on_sign()));
        }
    }

    /// Notes that a replica's silence is its clients' doing.
    pub(in crate::brain) fn on_unawaited(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        replica: ReplicaId,
        found: &mut Vec<Finding>,
    ) {
        if fleet.get(replica).is_some_and(|it| 0 < it.sent.in_flight()) {
            self.on_sign(fleet, replica, now, found);
        }
    }

    pub(super) fn look_for_silence<'a>(
        &self,
        now: Moment,
        fleet: &mut Fleet,
        replica: ReplicaId,
        there: impl Iterator<Item = &'a Booking>,
        found: &mut Vec<Finding>,
    ) {
        let Some(it) = fleet.get_mut(replica) else { return };
        let watched = matches!(
            it.breaker.standing(),
            Standing::Up | Standing::Suspect { .. } | Standing::Trial { .. }
        );
        let silence = now.since(it.watch.hang.quiet_since());
        if !watched || it.sent.in_flight() == 0 || silence < SILENCE_MIN {
            return;
        }
        let expected = self.expected_silence(now, it, there);
        let mute = it.watch.mute_since.is_some();
        let verdict = it.watch.hang.judge(now, expected, mute, &self.model);
        match verdict {
            HangVerdict::Well => {}
            HangVerdict::Hung(silence) if has_another(now, fleet, replica) => {
                found.extend(change_for(fleet, replica, Some(silence), |it| {
                    it.breaker.condemn(now, Reason::Hung);
                    (it.watch.asked, it.watch.mute_since) = (None, None);
                }));
                found.push(Finding::Hung { replica });
            }
            HangVerdict::Suspect(silence) | HangVerdict::Hung(silence) => {
                let suspect = |it: &mut Replica| it.breaker.suspect(Reason::Hung);
                found.extend(change_for(fleet, replica, Some(silence), suspect));
                ask(now, fleet, replica, self.model.question_limit(expected), found);
            }
        }
    }

    /// Predicts how long a replica may be silent given the work it has.
    fn expected_silence<'a>(
        &self,
        now: Moment,
        it: &Replica,
        there: impl Iterator<Item = &'a Booking>,
    ) -> ExpectedSilence {
        let step = step_ms(it, 0);
        let work = there.map(|booking| silent_work(booking, it, step));
        let expected = self.model.expect(work, step);
        if !it.has_foreign_work(now) {
            return expected;
        }
        let ExpectedSilence { token_ms, likely_ms, longest_ms } = expected;
        ExpectedSilence {
            token_ms: token_ms.max(FOREIGN_MS),
            likely_ms: likely_ms.max(FOREIGN_MS),
            longest_ms: longest_ms.max(FOREIGN_MS),
        }
    }
}

fn has_another(now: Moment, fleet: &Fleet, than: ReplicaId) -> bool {
    let usable = |it: &Replica| it.id != than && 0.0 < it.weight && it.admits_at_need(now);
    fleet.iter().any(usable)
}

/// What one request does that can keep its replica silent, assuming that none of its prompt is cached.
fn silent_work(booking: &Booking, it: &Replica, step_ms: f64) -> SilentWork {
    let prompt_tokens = booking.outline.prompt_tokens;
    let prefill_ms = it.hardware.cost.prefill_ms(prompt_tokens, 0);
    let Extent { streams, output_tokens_max, .. } = booking.extent;
    let most = output_tokens_max.unwrap_or(WHOLE_TOKENS_MAX).min(WHOLE_TOKENS_MAX);
    let predicted = booking.outline.output_tokens.filter(|it| 0 < *it);
    let likely = predicted.map_or(most, |it| it.saturating_mul(LIKELY_FACTOR).min(most));
    let (likely_ms, longest_ms) = (f64::from(likely) * step_ms, f64::from(most) * step_ms);
    match (streams, booking.is_answering()) {
        (true, true) => SilentWork::Writing,
        (true, false) => SilentWork::Reading { prompt_tokens, prefill_ms },
        (false, _) => SilentWork::Whole { prompt_tokens, prefill_ms, likely_ms, longest_ms },
    }
}

/// Notes whether what is booked at a replica, or what its engine says, is more than fits its memory: streams that stand
/// still for want of it do not make a replica slow.
pub(super) fn note_crowding(now: Moment, it: &mut Replica) {
    let booked = it.ledger.load();
    let kv_tokens = booked.kv_tokens + booked.growth_tokens;
    let report = it.reported.report();
    it.watch.on_booked(now, kv_tokens, report.as_ref());
}

/// Predicts a step of a replica with the requests in flight there, each with `context_tokens`.
fn step_ms(it: &Replica, context_tokens: u32) -> f64 {
    let batch = f64::from(it.booked().max(1));
    it.hardware.step.step_ms(&StepWork::answers(batch, batch * f64::from(context_tokens)))
}
