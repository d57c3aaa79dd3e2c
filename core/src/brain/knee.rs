//! Is a replica past its knee? There it gets no more done for more requests, they only wait longer.
//! Three things bring it there: so many answers at once that the next one slows all others as much as it
//! gets done, prompts that wait for others to be read, and KV memory that is used up. The first is
//! predicted from step times for the mix of requests that is really seen, and corrected by what the
//! engine says; nobody sets a number of requests.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::cost::{Hardware, StepTimes, StepWork};
use crate::domain::{Moment, ReplicaId, Report};
use crate::fleet::{Replica, ms};

/// The knee is where this share of the highest throughput is reached.
const SHARE_OF_BEST: f64 = 0.95;
const SEQUENCES_MAX: u32 = 512;
/// How much one request counts against all before it in the mix.
const NEW_SHARE: f64 = 0.01;
/// Requests after which the knees are looked up anew.
const MIX_STEP: u32 = 64;
/// An engine whose own queue is longer than this part of its batch is past its knee, whatever was
/// predicted.
const QUEUE_PART: u32 = 8;
/// Below this share in use, KV memory holds nobody up.
const KV_TIGHT_SHARE: f64 = 0.8;
/// What an engine said longer ago than this says nothing of now.
const REPORT_AGE_MAX: Duration = Duration::from_secs(5);

/// Where the knees of all replicas are.
#[derive(Debug)]
pub(super) struct Knees {
    /// Whether anybody is held for them at all.
    holds: bool,
    knees: FxHashMap<ReplicaId, Knee>,
    mix: Mix,
    /// How long prompts may wait for others before the replica counts as full.
    backlog_ms_max: f64,
}

#[derive(Debug)]
struct Knee {
    times: StepTimes,
    sequences_max: f64,
    /// What the engine has shown it can run, where that is less.
    seen_max: f64,
}

/// The requests that are seen, on average.
#[derive(Clone, Copy, Debug)]
struct Mix {
    new_tokens: f64,
    context_tokens: f64,
    output_tokens: f64,
    seen: u32,
}

impl Knees {
    pub(super) fn new(holds: bool, backlog_max: Duration) -> Self {
        let usual = crate::cost::Mix::USUAL;
        let mix = Mix {
            new_tokens: usual.prompt_tokens.into(),
            context_tokens: usual.context_tokens().into(),
            output_tokens: usual.output_tokens.into(),
            seen: 0,
        };
        let backlog_ms_max = backlog_max.as_secs_f64() * 1e3;
        Self { holds, knees: FxHashMap::default(), mix, backlog_ms_max }
    }

    pub(super) fn on_joined(&mut self, replica: ReplicaId, hardware: &Hardware) {
        let times = hardware.step;
        let sequences_max = self.mix.knee(&times);
        self.knees.insert(replica, Knee { times, sequences_max, seen_max: f64::INFINITY });
    }

    pub(super) fn on_left(&mut self, replica: ReplicaId) {
        self.knees.remove(&replica);
    }

    /// Learns what a finished request was like: prompt tokens that were not cached, all of them, and
    /// the answer's.
    pub(super) fn learn(&mut self, new_tokens: u32, prompt_tokens: u32, output_tokens: u32) {
        let context = f64::from(prompt_tokens) + f64::from(output_tokens) / 2.0;
        let Mix { new_tokens: new, context_tokens, output_tokens: output, seen } = &mut self.mix;
        *new += NEW_SHARE * (f64::from(new_tokens) - *new);
        *context_tokens += NEW_SHARE * (context - *context_tokens);
        *output += NEW_SHARE * (f64::from(output_tokens) - *output);
        *seen += 1;
        if *seen == MIX_STEP {
            *seen = 0;
            let mix = self.mix;
            self.knees.values_mut().for_each(|it| it.sequences_max = mix.knee(&it.times));
        }
    }

    /// Corrects what was predicted by what the engine says, with so many of ours there.
    pub(super) fn on_report(&mut self, replica: ReplicaId, report: Report, in_flight: u32) {
        let Some(knee) = self.knees.get_mut(&replica) else { return };
        if (report.running / QUEUE_PART).max(1) < report.waiting {
            knee.seen_max = f64::from(report.running.max(1));
        } else if report.waiting == 0 && knee.seen_max <= f64::from(in_flight) + 1.0 {
            // It runs all we sent and nobody waits: it may well run more.
            knee.seen_max = knee.seen_max * 1.25 + 1.0;
        }
    }

    /// Says how full a replica is; from 1 on it is past its knee.
    pub(super) fn fill(&self, now: Moment, replica: &Replica) -> f64 {
        let Some(knee) = self.knees.get(&replica.id).filter(|_| self.holds) else { return 0.0 };
        let others = replica.hearsay.booked_elsewhere(now);
        let in_flight = f64::from(replica.in_flight + others.in_flight);
        let sequences = in_flight / knee.sequences_max.min(knee.seen_max);
        sequences.max(self.backlog(now, replica)).max(kv_fill(now, replica))
    }

    /// Says how long prompts wait at a replica; from 1 on longer than they should.
    pub(super) fn backlog(&self, now: Moment, replica: &Replica) -> f64 {
        let others = replica.hearsay.booked_elsewhere(now);
        let prefill_us = replica.ledger.load().prefill_us + others.load.prefill_us;
        replica.pace.factor() * ms(prefill_us) / self.backlog_ms_max
    }

    pub(super) fn is_long(&self, prefill_ms: f64) -> bool {
        self.backlog_ms_max < prefill_ms
    }
}

fn kv_fill(now: Moment, replica: &Replica) -> f64 {
    let report = replica.hearsay.report();
    let fresh = report.filter(|it| now.since(it.taken_at) <= REPORT_AGE_MAX);
    match fresh {
        // What requests share is counted once by the engine and often by us: it decides whether
        // memory is tight, and we by how much, because we know of what was sent since.
        Some(Report { kv_used_share, kv_tokens_max: Some(max), .. })
            if 0 < max && KV_TIGHT_SHARE <= kv_used_share =>
        {
            let load = replica.ledger.load();
            // Both in the same unit, whatever its name.
            ms(load.kv_tokens + load.growth_tokens) / ms(max)
        }
        Some(_) | None => 0.0,
    }
}

impl Mix {
    /// Finds the least number of answers at once that reaches most of what can be reached.
    fn knee(&self, times: &StepTimes) -> f64 {
        let wanted = SHARE_OF_BEST * self.rate(times, SEQUENCES_MAX);
        let (mut below, mut at) = (0, SEQUENCES_MAX);
        while below + 1 < at {
            let middle = u32::midpoint(below, at);
            *(if self.rate(times, middle) < wanted { &mut below } else { &mut at }) = middle;
        }
        f64::from(at)
    }

    /// Predicts requests per millisecond with so many at once.
    fn rate(&self, times: &StepTimes, sequences: u32) -> f64 {
        let sequences = f64::from(sequences);
        let steps = self.output_tokens.max(1.0);
        let read = sequences * self.new_tokens / steps;
        let step = StepWork {
            new_tokens: sequences + read,
            attention_pairs: (sequences + read) * self.context_tokens,
            context_tokens: sequences * self.context_tokens,
        };
        sequences / (steps * times.step_ms(&step))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fleet::{BreakerSettings, Load};

    use super::*;

    const ID: ReplicaId = ReplicaId(0);

    fn bench() -> (Knees, Replica) {
        let mut knees = Knees::new(true, Duration::from_millis(250));
        knees.on_joined(ID, &Hardware::default());
        let (name, settings) = ("http://gpu-0:8000".to_owned(), BreakerSettings::default());
        (knees, Replica::new(ID, name, 1.0, Arc::default(), settings))
    }

    fn load(prefill_ms: u64) -> Load {
        Load { prefill_us: prefill_ms * 1_000, kv_tokens: 1_000, ..Load::default() }
    }

    fn report(waiting: u32, running: u32, kv_used_share: f64) -> Report {
        let (taken_at, kv_tokens_max) = (Moment::ZERO, Some(10_000));
        Report { taken_at, waiting, running, waiting_tokens: None, kv_used_share, kv_tokens_max }
    }

    #[test]
    fn many_answers_at_once_fill_a_replica_and_their_end_empties_it() {
        let (knees, mut replica) = bench();
        let mut sent = 0;
        while knees.fill(Moment::ZERO, &replica) < 1.0 {
            replica.on_sent(Moment::ZERO, load(0));
            sent += 1;
        }
        assert!((40..200).contains(&sent), "{sent}");
        (0..sent).for_each(|_| replica.on_ended(Moment::ZERO, load(0), false));
        assert!(knees.fill(Moment::ZERO, &replica) < 1e-9);
    }

    #[test]
    fn prompts_that_wait_fill_it_until_they_are_read() {
        let (knees, mut replica) = bench();
        let mut long = load(600);
        replica.on_sent(Moment::ZERO, long);
        assert!(1.0 <= knees.fill(Moment::ZERO, &replica));
        replica.ledger.begin(Moment::ZERO, &mut long);
        assert!(knees.fill(Moment::ZERO, &replica) < 0.1);
    }

    #[test]
    fn an_engine_with_a_queue_corrects_the_prediction_and_one_without_takes_it_back() {
        let (mut knees, mut replica) = bench();
        (0..8).for_each(|_| replica.on_sent(Moment::ZERO, load(0)));
        assert!(knees.fill(Moment::ZERO, &replica) < 0.5);
        knees.on_report(ID, report(4, 4, 0.1), 8);
        assert!(1.0 < knees.fill(Moment::ZERO, &replica));
        (0..10).for_each(|_| knees.on_report(ID, report(0, 8, 0.1), 8));
        assert!(knees.fill(Moment::ZERO, &replica) < 1.0);
    }

    #[test]
    fn memory_counts_when_it_is_tight() {
        let (knees, mut replica) = bench();
        (0..11).for_each(|_| replica.on_sent(Moment::ZERO, load(0)));
        replica.hearsay.on_report(report(0, 11, 0.5));
        assert!(knees.fill(Moment::ZERO, &replica) < 0.5, "most of it is shared");
        replica.hearsay.on_report(report(0, 11, 0.9));
        assert!(1.0 < knees.fill(Moment::ZERO, &replica));
        let later = Moment::ZERO + Duration::from_secs(60);
        assert!(knees.fill(later, &replica) < 0.5, "that was long ago");
    }

    #[test]
    fn long_prompts_and_short_answers_move_the_knee() {
        let (mut knees, _) = bench();
        let before = knees.knees[&ID].sequences_max;
        (0..640).for_each(|_| knees.learn(8_000, 8_000, 16));
        let after = knees.knees[&ID].sequences_max;
        assert!(4.0 * after < before, "{before} {after}");
    }
}
