//! The watch over replicas that have work: who is silent for too long, who lags behind the others, who
//! has shown nothing lately and should be asked for a token. It gathers plain figures for the judges
//! in `fleet` (`vigil`, `tempo`) and acts on their verdicts: a suspect gets nothing new, a hung replica
//! goes out and what it had is given up, so that it can go elsewhere.
//!
//! Nobody is put out when nobody else is there: a slow answer is better than none.

use std::time::Duration;

use crate::cost::StepWork;
use crate::domain::{Extent, Moment, ReplicaId, RequestId, Usage, span_ms};
use crate::fleet::{
    Expected, Reason, Replica, Silence, Standing, Tempo, Verdict, Work, median, ms,
};

use super::Brain;
use super::booking::Booking;
use super::event::Action;

/// Time between two looks at the fleet while it has work.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// After so long without a look the router itself was asleep, and silences say nothing.
const ASLEEP: Duration = Duration::from_secs(2);
/// A silence shorter than this is not looked into.
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// How long an answer in one piece may be when its client sets no limit.
const WHOLE_TOKENS_MAX: u32 = 8192;
/// How many times the predicted length an answer may well have.
const LIKELY_FACTOR: u32 = 2;
/// What a replica may be busy with for others, without our knowing, in milliseconds.
const FOREIGN_MS: f64 = 30_000.0;

impl Brain {
    /// Says when to look at the fleet next.
    pub(super) fn next_look(&self) -> Option<Moment> {
        (!self.requests.is_empty()).then(|| self.looked_at + LOOK_INTERVAL)
    }

    /// Notes that a request's first token has come.
    pub(super) fn watch_first_token(&mut self, now: Moment, request: RequestId) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let (replica, sent_at) = (booking.replica, booking.account.sent_at);
        let Some(it) = self.fleet.get(replica) else { return };
        booking.mark = Some((now, 0, it.ledger.prefilled_us()));
        self.quarantine.on_survivor(now, replica, sent_at);
        self.on_sign(replica, now);
    }

    /// Notes how far a stream has come.
    pub(super) fn watch_streamed(&mut self, now: Moment, request: RequestId, tokens: u32) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let (replica, sent_at) = (booking.replica, booking.account.sent_at);
        let Some(it) = self.fleet.get_mut(replica) else { return };
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
            it.watch.tempo.on_gap(now, span_ms(now.since(at)), predicted_ms);
        }
        self.quarantine.on_survivor(now, replica, sent_at);
        self.on_sign(replica, now);
    }

    /// Learns how fast prompts are read, where the engine tells how much of one was cached.
    pub(super) fn learn_patience(&mut self, booking: &Booking, usage: Usage) {
        if let (Some(first), Some(input), Some(cached)) =
            (booking.account.first, usage.input, usage.cached)
        {
            let took = first.at.since(booking.account.sent_at);
            self.patience.on_first_token(input.saturating_sub(cached), took);
        }
    }

    /// Notes a sign of life: whoever was suspected for its silence is not any more.
    pub(super) fn on_sign(&mut self, replica: ReplicaId, at: Moment) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        if at <= it.watch.vigil.quiet_since() {
            // Old news: drivers tell when they last heard something, whenever they are asked.
            return;
        }
        it.watch.vigil.on_sign(at, &mut self.patience);
        it.watch.mute_since = it.watch.mute_since.filter(|since| at < *since);
        if let Standing::Suspect { .. } = it.breaker.standing() {
            self.change(replica, |it| it.breaker.on_sign());
        }
    }

    /// Notes that a replica's silence is its clients' doing.
    pub(super) fn on_unawaited(&mut self, now: Moment, replica: ReplicaId) {
        if self.fleet.get(replica).is_some_and(|it| 0 < it.in_flight) {
            self.on_sign(replica, now);
        }
    }

    /// Looks at the fleet, if it is time.
    pub(super) fn look(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if now.since(self.looked_at) < LOOK_INTERVAL {
            return;
        }
        let slept = ASLEEP < now.since(self.looked_at);
        self.looked_at = now;
        let ids: Vec<ReplicaId> = self.fleet.iter().map(|it| it.id).collect();
        if slept {
            for replica in &ids {
                self.on_sign(*replica, now);
            }
        }
        for replica in &ids {
            if let Some(it) = self.fleet.get_mut(*replica) {
                note_crowding(now, it);
            }
            self.look_for_silence(now, *replica, actions);
            self.ask_if_due(now, *replica, actions);
        }
        self.look_for_slowness(now, &ids);
    }

    fn look_for_silence(&mut self, now: Moment, replica: ReplicaId, actions: &mut Vec<Action>) {
        let Some(it) = self.fleet.get(replica) else { return };
        let watched = matches!(
            it.breaker.standing(),
            Standing::Up | Standing::Suspect { .. } | Standing::Trial { .. }
        );
        let silence = now.since(it.watch.vigil.quiet_since());
        if !watched || it.in_flight == 0 || silence < SILENCE_MIN {
            return;
        }
        let expected = self.expected_silence(now, it);
        let patience = self.patience;
        let Some(it) = self.fleet.get_mut(replica) else { return };
        let mute = it.watch.mute_since.is_some();
        match it.watch.vigil.judge(now, expected, mute, &patience) {
            Verdict::Well => {}
            Verdict::Hung(silence) if self.somebody_else(now, replica) => {
                self.silence = Some(silence);
                self.change(replica, |it| {
                    it.breaker.condemn(now, Reason::Hung);
                    (it.watch.asked, it.watch.mute_since) = (None, None);
                });
                self.silence = None;
                self.give_up(now, replica, actions);
            }
            Verdict::Suspect(silence) | Verdict::Hung(silence) => {
                self.suspect(replica, silence);
                self.ask(now, replica, patience.question_limit(expected), actions);
            }
        }
    }

    /// Predicts how long a replica with what it has may be silent.
    fn expected_silence(&self, now: Moment, it: &Replica) -> Expected {
        let there = self.requests.values().filter(|booking| booking.replica == it.id);
        let step = step_ms(it, 0);
        let work = there.map(|booking| work(booking, it, step));
        let expected = self.patience.expect(work, step);
        if !it.has_foreign_work(now) {
            return expected;
        }
        let Expected { token_ms, likely_ms, longest_ms } = expected;
        Expected {
            token_ms: token_ms.max(FOREIGN_MS),
            likely_ms: likely_ms.max(FOREIGN_MS),
            longest_ms: longest_ms.max(FOREIGN_MS),
        }
    }

    fn suspect(&mut self, replica: ReplicaId, silence: Silence) {
        self.silence = Some(silence);
        self.change(replica, |it| it.breaker.suspect(Reason::Hung));
        self.silence = None;
    }

    fn somebody_else(&self, now: Moment, than: ReplicaId) -> bool {
        let usable = |it: &Replica| it.id != than && 0.0 < it.weight && it.admits_at_need(now);
        self.fleet.iter().any(usable)
    }

    /// Tells everybody who waits for a hung replica to give it up, and remembers who was there.
    fn give_up(&mut self, now: Moment, replica: ReplicaId, actions: &mut Vec<Action>) {
        self.note_death(now, replica);
        self.quarantine.on_confirmed(now, replica);
        self.subsets.on_gone(replica);
        let there = self.requests.iter().filter(|(_, booking)| booking.replica == replica);
        actions.extend(there.map(|(request, _)| Action::GiveUp { request: *request, replica }));
    }

    fn look_for_slowness(&mut self, now: Moment, ids: &[ReplicaId]) {
        let up = |it: &&Replica| it.breaker.standing() == Standing::Up;
        let mut ratios: Vec<f64> =
            self.fleet.iter().filter(up).filter_map(|it| it.watch.tempo.ratio()).collect();
        let Some(median) = median(&mut ratios) else { return };
        for replica in ids {
            let Some(it) = self.fleet.get_mut(*replica).filter(|it| up(&&**it)) else { continue };
            if !it.watch.tempo.is_slow(now, median) {
                continue;
            }
            // It begins anew when it comes back.
            it.watch.tempo = Tempo::default();
            // Most of the pool stays, whatever the figures say.
            let out = self.fleet.iter().filter(|it| !it.admits_at_need(now)).count();
            if 4 * (out + 1) <= ids.len() {
                self.change(*replica, |it| it.breaker.condemn(now, Reason::Slow));
            }
        }
    }
}

/// What one request does that can keep its replica silent; nothing of its prompt need be cached.
fn work(booking: &Booking, it: &Replica, step_ms: f64) -> Work {
    let prompt_tokens = booking.outline.prompt_tokens;
    let prefill_ms = it.hardware.cost.prefill_ms(prompt_tokens, 0);
    let Extent { streams, output_tokens_max, .. } = booking.extent;
    let most = output_tokens_max.unwrap_or(WHOLE_TOKENS_MAX).min(WHOLE_TOKENS_MAX);
    let predicted = booking.outline.output_tokens.filter(|it| 0 < *it);
    let likely = predicted.map_or(most, |it| it.saturating_mul(LIKELY_FACTOR).min(most));
    let (likely_ms, longest_ms) = (f64::from(likely) * step_ms, f64::from(most) * step_ms);
    match (streams, booking.is_answering()) {
        (true, true) => Work::Writing,
        (true, false) => Work::Reading { prompt_tokens, prefill_ms },
        (false, _) => Work::Whole { prompt_tokens, prefill_ms, likely_ms, longest_ms },
    }
}

/// Notes whether what is booked at a replica, or what its engine says, is more than fits its memory.
fn note_crowding(now: Moment, it: &mut Replica) {
    let (own, others) = (it.ledger.load(), it.hearsay.booked_elsewhere(now).load);
    let kv_tokens = own.kv_tokens + own.growth_tokens + others.kv_tokens + others.growth_tokens;
    let report = it.hearsay.report();
    it.watch.on_booked(now, kv_tokens, report.as_ref());
}

/// Predicts a step of a replica with what is in flight there, each over so much context.
fn step_ms(it: &Replica, context_tokens: u32) -> f64 {
    let batch = f64::from(it.in_flight.max(1));
    let context_tokens = batch * f64::from(context_tokens);
    let work = StepWork { new_tokens: batch, attention_pairs: context_tokens, context_tokens };
    it.hardware.step.step_ms(&work)
}
