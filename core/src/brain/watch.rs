//! The watch over replicas that have work: who is silent for too long, who lags behind the others, who
//! has shown nothing lately and should be asked for a token. It gathers plain figures for the judges
//! in `fleet` (`vigil`, `tempo`) and acts on their verdicts: a suspect gets nothing new, a hung replica
//! goes out and what it had is given up, so that it can go elsewhere.
//!
//! Nobody is put out when nobody else is there: a slow answer is better than none.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cost::StepWork;
use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, Usage};
use crate::fleet::{Reason, Replica, Silence, Standing, Verdict, Work, hung_after, median};

use super::event::Action;
use super::{Booking, Brain};

/// Time between two looks at the fleet while it has work.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// After so long without a look the router itself was asleep, and silences say nothing.
const ASLEEP: Duration = Duration::from_secs(2);
/// A silence shorter than this is not looked into.
const SILENCE_MIN: Duration = Duration::from_secs(1);
/// How long an answer in one piece may be when its client sets no limit.
const WHOLE_TOKENS_MAX: u32 = 8192;
/// What a replica may be busy with for others, without our knowing, in milliseconds.
const FOREIGN_MS: f64 = 30_000.0;
/// Time between two questions to one replica.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long an idle replica may take for one token.
const IDLE_LIMIT: Duration = Duration::from_secs(5);

/// What the watch notes of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Watched {
    pub(super) sent_at: Moment,
    /// What reading its prompt takes there if nothing of it is cached.
    prefill_us: u64,
    /// How long its first token took.
    first_token: Option<Duration>,
    /// When it was last heard of: the moment, its tokens, and what the replica had read by then.
    mark: Option<(Moment, u32, u64)>,
}

impl Brain {
    /// Says when to look at the fleet next.
    pub(super) fn next_look(&self) -> Option<Moment> {
        (!self.requests.is_empty()).then(|| self.looked_at + LOOK_INTERVAL)
    }

    /// Begins to watch a request that goes to a replica.
    pub(super) fn watch_sent(&mut self, now: Moment, booking: &mut Booking) {
        let Some(it) = self.fleet.get_mut(booking.replica) else { return };
        let prefill_ms = it.hardware.cost.prefill_ms(booking.outline.prompt_tokens, 0);
        let prefill_us = Duration::from_secs_f64(prefill_ms / 1e3).as_micros();
        let prefill_us = u64::try_from(prefill_us).unwrap_or(u64::MAX);
        booking.watched = Watched { sent_at: now, prefill_us, ..Watched::default() };
        it.watch.reading_us += prefill_us;
    }

    /// Notes that a request's first token has come.
    pub(super) fn watch_first_token(&mut self, now: Moment, request: RequestId) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let Some(it) = self.fleet.get_mut(booking.replica) else { return };
        let Watched { sent_at, prefill_us, .. } = booking.watched;
        it.watch.reading_us -= prefill_us;
        it.watch.read_us_total += prefill_us;
        booking.watched.mark = Some((now, 0, it.watch.read_us_total));
        booking.watched.first_token = Some(now.since(sent_at));
        let replica = booking.replica;
        self.quarantine.on_survivor(replica, sent_at);
        self.on_sign(replica, now);
    }

    /// Notes how far a stream has come.
    pub(super) fn watch_streamed(&mut self, now: Moment, request: RequestId, tokens: u32) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let Some(it) = self.fleet.get_mut(booking.replica) else { return };
        let read_us_total = it.watch.read_us_total;
        let before = booking.watched.mark.replace((now, tokens, read_us_total));
        if let Some((at, tokens_before, read_us_before)) = before
            && tokens_before < tokens
        {
            let new_tokens = f64::from(tokens - tokens_before);
            let context = booking.outline.prompt_tokens.saturating_add(tokens);
            // Prompts that were read meanwhile, or wait, explain a delay; they are counted whole,
            // which forgives too much rather than too little.
            let read_us = read_us_total - read_us_before + it.watch.reading_us;
            let predicted_ms = new_tokens * step_ms(it, context) + us_to_ms(read_us);
            let took_ms = now.since(at).as_secs_f64() * 1e3;
            it.watch.tempo.on_gap(took_ms, predicted_ms);
        }
        let (replica, sent_at) = (booking.replica, booking.watched.sent_at);
        self.quarantine.on_survivor(replica, sent_at);
        self.on_sign(replica, now);
    }

    /// Learns how fast prompts are read, where the engine tells how much of one was cached.
    pub(super) fn learn_pace(&mut self, booking: &Booking, usage: Usage) {
        if let (Some(took), Some(input), Some(cached)) =
            (booking.watched.first_token, usage.input, usage.cached)
        {
            self.pace.on_first_token(input.saturating_sub(cached), took);
        }
    }

    /// Ends the watch over a request that leaves its replica.
    pub(super) fn watch_ended(&mut self, booking: &Booking) {
        if let Some(it) = self.fleet.get_mut(booking.replica)
            && !booking.answering
        {
            it.watch.reading_us -= booking.watched.prefill_us;
        }
    }

    /// Notes a sign of life: whoever was suspected for its silence is not any more.
    pub(super) fn on_sign(&mut self, replica: ReplicaId, at: Moment) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        it.watch.vigil.on_sign(at, &mut self.pace);
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
            ids.iter().for_each(|it| self.on_sign(*it, now));
        }
        for replica in &ids {
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
        let expected_ms = self.expected_silence_ms(now, it);
        let pace = self.pace;
        let Some(it) = self.fleet.get_mut(replica) else { return };
        match it.watch.vigil.judge(now, expected_ms, &pace) {
            Verdict::Well => {}
            Verdict::Suspect(silence) => self.suspect(now, replica, silence, actions),
            Verdict::Hung(silence) if self.somebody_else(now, replica) => {
                self.silence = Some(silence);
                self.change(replica, |it| {
                    it.breaker.condemn(now, Reason::Hung);
                    it.watch.asked = None;
                });
                self.silence = None;
                self.give_up(now, replica, actions);
            }
            Verdict::Hung(silence) => self.suspect(now, replica, silence, actions),
        }
    }

    /// Predicts how long a replica with what it has may be silent.
    fn expected_silence_ms(&self, now: Moment, it: &Replica) -> f64 {
        let there = self.requests.values().filter(|booking| booking.replica == it.id);
        let step = step_ms(it, 0);
        let work = there.map(|booking| work(booking, step));
        let expected_ms = self.pace.expected_ms(work, step);
        if it.watch.has_foreign_work(now) { expected_ms.max(FOREIGN_MS) } else { expected_ms }
    }

    fn suspect(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        silence: Silence,
        actions: &mut Vec<Action>,
    ) {
        self.silence = Some(silence);
        self.change(replica, |it| it.breaker.suspect(Reason::Hung));
        self.silence = None;
        self.ask(now, replica, hung_after(silence.expected), actions);
    }

    fn somebody_else(&self, now: Moment, than: ReplicaId) -> bool {
        let usable = |it: &Replica| it.id != than && 0.0 < it.weight && it.admits_at_need(now);
        self.fleet.iter().any(usable)
    }

    /// Tells everybody who waits for a hung replica to give it up, and remembers who was there.
    fn give_up(&mut self, now: Moment, replica: ReplicaId, actions: &mut Vec<Action>) {
        self.note_death(now, replica);
        self.quarantine.on_confirmed(now, replica);
        let there = self.requests.iter().filter(|(_, booking)| booking.replica == replica);
        actions.extend(there.map(|(request, _)| Action::GiveUp { request: *request, replica }));
    }

    /// Remembers who was in flight where a replica was lost.
    pub(super) fn note_death(&mut self, now: Moment, replica: ReplicaId) {
        let there = self.requests.values().filter(|it| it.replica == replica);
        let members = there.map(|it| (it.key, it.fingerprint));
        self.quarantine.on_death(now, replica, members);
    }

    /// Lists where a request should not be tried again: where it was, and where more of those are in
    /// flight that are as suspect as it is than need be. Kept apart, the next death tells who it was.
    pub(super) fn places_to_avoid(&self, now: Moment, booking: &Booking) -> Vec<ReplicaId> {
        let mut avoid = booking.tried.clone();
        let own = self.quarantine.suspicion(booking.fingerprint);
        if own == 0 {
            return avoid;
        }
        let mut suspects: BTreeMap<ReplicaId, usize> = BTreeMap::new();
        for it in self.requests.values() {
            if own <= self.quarantine.suspicion(it.fingerprint) {
                *suspects.entry(it.replica).or_default() += 1;
            }
        }
        let count = |it: &Replica| suspects.get(&it.id).copied().unwrap_or(0);
        let usable =
            |it: &&Replica| 0.0 < it.weight && it.admits(now) && !booking.tried.contains(&it.id);
        let least = self.fleet.iter().filter(usable).map(count).min().unwrap_or(0);
        avoid.extend(self.fleet.iter().filter(|it| least < count(it)).map(|it| it.id));
        avoid
    }

    /// Asks a replica for a token that hung and has waited for its pause, or that has been idle and
    /// given no sign for long.
    fn ask_if_due(&mut self, now: Moment, replica: ReplicaId, actions: &mut Vec<Action>) {
        let Some(it) = self.fleet.get(replica) else { return };
        let idle = self.settings.watch.idle;
        let quiet = now.since(it.watch.vigil.quiet_since().max(it.watch.last_asked));
        let is_up = it.breaker.standing() == Standing::Up && !it.leaving;
        let stale = is_up && it.in_flight == 0 && idle <= quiet;
        if it.breaker.wants_proof(now) || stale {
            self.ask(now, replica, IDLE_LIMIT, actions);
        }
    }

    /// Asks a replica that lost a request whether it is gone, or only hung up on somebody.
    pub(super) fn ask_after_loss(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        actions: &mut Vec<Action>,
    ) {
        let standing = self.fleet.get(replica).map(|it| it.breaker.standing());
        if let Some(Standing::Up | Standing::Suspect { .. }) = standing {
            self.ask(now, replica, IDLE_LIMIT, actions);
        }
    }

    /// Asks a replica for a token, unless it is being asked already.
    fn ask(&mut self, now: Moment, replica: ReplicaId, limit: Duration, actions: &mut Vec<Action>) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        // A driver that never tells would leave it unasked for ever.
        let asking = it.watch.asked.is_some_and(|(at, limit)| now.since(at) < 2 * limit);
        let just_asked = now.since(it.watch.last_asked) < ASK_PAUSE;
        if !asking && !just_asked {
            it.watch.asked = Some((now, limit));
            it.watch.last_asked = now;
            actions.push(Action::Ask { replica, limit });
        }
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
            it.watch.tempo = crate::fleet::Tempo::default();
            // Most of the pool stays, whatever the figures say.
            let out = self.fleet.iter().filter(|it| !it.admits_at_need(now)).count();
            if 4 * (out + 1) <= ids.len() {
                self.change(*replica, |it| it.breaker.condemn(now, Reason::Slow));
            }
        }
    }
}

/// What one request does that can keep its replica silent.
fn work(booking: &Booking, step_ms: f64) -> Work {
    let Booking { outline: Outline { prompt_tokens, .. }, extent, .. } = booking;
    let Extent { streams, output_tokens_max, .. } = *extent;
    let (prompt_tokens, prefill_ms) = (*prompt_tokens, us_to_ms(booking.watched.prefill_us));
    let tokens = output_tokens_max.unwrap_or(WHOLE_TOKENS_MAX).min(WHOLE_TOKENS_MAX);
    let decode_ms = f64::from(tokens) * step_ms;
    match (streams, booking.answering) {
        (true, true) => Work::Writing,
        (true, false) => Work::Reading { prompt_tokens, prefill_ms },
        (false, _) => Work::Whole { prompt_tokens, prefill_ms, decode_ms },
    }
}

/// Predicts a step of a replica with what is in flight there, each over so much context.
fn step_ms(it: &Replica, context_tokens: u32) -> f64 {
    let batch = f64::from(it.in_flight.max(1));
    let context_tokens = batch * f64::from(context_tokens);
    let work = StepWork { new_tokens: batch, attention_pairs: context_tokens, context_tokens };
    it.hardware.step.step_ms(&work)
}

fn us_to_ms(us: u64) -> f64 {
    Duration::from_micros(us).as_secs_f64() * 1e3
}
