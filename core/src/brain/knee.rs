//! Is a replica past its knee? There it gets no more done for more requests, they only wait longer.
//! Three things bring it there: so many answers at once that the next one slows all others as much as it
//! gets done, prompts that wait for others to be read, and KV memory that is used up. The first is
//! predicted from step times for the mix of requests that is really seen, and corrected by what the
//! engine says; nobody sets a number of requests.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::cost::{Hardware, StepTimes, StepWork};
use crate::domain::{Moment, ReplicaId, Report};

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
/// Predictions below this say little: a step takes some time whatever is in it.
const TELLING_US: u64 = 50_000;
const SLOWNESS_SHARE: f64 = 0.05;
/// What an engine said longer ago than this says nothing of now.
const REPORT_AGE_MAX: Duration = Duration::from_secs(5);

/// What one request adds to a replica while it is there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Burden {
    /// Reading its prompt, in microseconds; until its first token.
    prefill_us: u64,
    /// When it was sent, and what had to be read before its first token, itself included.
    sent: Option<(Moment, u64)>,
    /// What it holds in KV memory at its end.
    pub(super) kv_tokens: u64,
    /// Whether its prompt alone takes longer than others should wait.
    pub(super) is_long: bool,
}

impl Burden {
    pub(super) const fn new(prefill_us: u64, kv_tokens: u64, is_long: bool) -> Self {
        Self { prefill_us, sent: None, kv_tokens, is_long }
    }
}

/// What all replicas have, and where their knees are.
#[derive(Debug)]
pub(super) struct Knees {
    /// Whether anybody is held for them at all.
    holds: bool,
    loads: FxHashMap<ReplicaId, Load>,
    mix: Mix,
    /// How long prompts may wait for others before the replica counts as full.
    backlog_us_max: f64,
}

#[derive(Debug)]
struct Load {
    times: StepTimes,
    sequences: u32,
    sequences_max: f64,
    /// What the engine has shown it can run, where that is less.
    seen_max: f64,
    prefill_us: u64,
    long_prefills: u32,
    kv_tokens: u64,
    report: Option<Report>,
    /// How much longer prompts wait than was predicted; below 1 where the replica is faster.
    slowness: f64,
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
        let backlog_us_max = backlog_max.as_secs_f64() * 1e6;
        Self { holds, loads: FxHashMap::default(), mix, backlog_us_max }
    }

    pub(super) fn on_joined(&mut self, replica: ReplicaId, hardware: &Hardware) {
        let times = hardware.step;
        let load = Load {
            times,
            sequences: 0,
            sequences_max: self.mix.knee(&times),
            seen_max: f64::INFINITY,
            prefill_us: 0,
            long_prefills: 0,
            kv_tokens: 0,
            report: None,
            slowness: 1.0,
        };
        self.loads.insert(replica, load);
    }

    pub(super) fn on_left(&mut self, replica: ReplicaId) {
        self.loads.remove(&replica);
    }

    pub(super) fn on_sent(&mut self, now: Moment, replica: ReplicaId, burden: &mut Burden) {
        let Some(load) = self.loads.get_mut(&replica) else { return };
        load.sequences += 1;
        load.prefill_us += burden.prefill_us;
        burden.sent = Some((now, load.prefill_us));
        load.kv_tokens += burden.kv_tokens;
        load.long_prefills += u32::from(burden.is_long);
    }

    /// Notes a first token: the prompt is read. What it took corrects what is predicted next.
    pub(super) fn on_read(&mut self, now: Moment, replica: ReplicaId, burden: &mut Burden) {
        let Some(load) = self.loads.get_mut(&replica) else { return };
        if let Some((at, before_us)) = burden.sent.take().filter(|it| TELLING_US < it.1) {
            let taken = now.since(at).as_secs_f64() * 1e6 / micros(before_us);
            load.slowness += SLOWNESS_SHARE * (taken.clamp(0.02, 4.0) - load.slowness);
        }
        load.unread(burden);
    }
    pub(super) fn on_ended(&mut self, replica: ReplicaId, mut burden: Burden) {
        let Some(load) = self.loads.get_mut(&replica) else { return };
        load.unread(&mut burden);
        load.sequences -= 1;
        load.kv_tokens -= burden.kv_tokens;
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
            self.loads.values_mut().for_each(|it| it.sequences_max = mix.knee(&it.times));
        }
    }

    pub(super) fn on_report(&mut self, replica: ReplicaId, report: Report) {
        let Some(load) = self.loads.get_mut(&replica) else { return };
        load.report = Some(report);
        if (report.running / QUEUE_PART).max(1) < report.waiting {
            load.seen_max = f64::from(report.running.max(1));
        } else if report.waiting == 0 && load.seen_max <= f64::from(load.sequences) + 1.0 {
            // It runs all we sent and nobody waits: it may well run more.
            load.seen_max = load.seen_max * 1.25 + 1.0;
        }
    }

    /// Says how full a replica is; from 1 on it is past its knee.
    pub(super) fn fill(&self, now: Moment, replica: ReplicaId) -> f64 {
        let Some(load) = self.loads.get(&replica).filter(|_| self.holds) else { return 0.0 };
        let sequences = f64::from(load.sequences) / load.sequences_max.min(load.seen_max);
        let backlog = load.slowness * micros(load.prefill_us) / self.backlog_us_max;
        sequences.max(backlog).max(load.kv_fill(now))
    }

    /// Counts the replicas that are reading a prompt so long that nobody should wait for it.
    pub(super) fn with_long_prefills(&self) -> usize {
        self.loads.values().filter(|it| 0 < it.long_prefills).count()
    }

    pub(super) fn is_long(&self, prefill_us: u64) -> bool {
        self.backlog_us_max < micros(prefill_us)
    }
}

impl Load {
    fn unread(&mut self, burden: &mut Burden) {
        self.prefill_us -= std::mem::take(&mut burden.prefill_us);
        self.long_prefills -= u32::from(std::mem::take(&mut burden.is_long));
    }

    fn kv_fill(&self, now: Moment) -> f64 {
        let fresh = self.report.filter(|it| now.since(it.taken_at) <= REPORT_AGE_MAX);
        let Some(report) = fresh else { return 0.0 };
        match report.kv_tokens_max {
            // What requests share is counted once by the engine and often by us: it decides whether
            // memory is tight, and we by how much, because we know of what was sent since.
            Some(max) if 0 < max && KV_TIGHT_SHARE <= report.kv_used_share => {
                micros(self.kv_tokens) / micros(max)
            }
            Some(_) | None => 0.0,
        }
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

/// Exact up to what anybody books.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "below 2^53 in practice")]
fn micros(value: u64) -> f64 {
    value as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const R: ReplicaId = ReplicaId(0);

    fn knees() -> Knees {
        let mut knees = Knees::new(true, Duration::from_millis(250));
        knees.on_joined(R, &Hardware::default());
        knees
    }

    fn burden(prefill_ms: u64) -> Burden {
        Burden::new(prefill_ms * 1_000, 1_000, 250 < prefill_ms)
    }

    fn report(waiting: u32, running: u32, kv_used_share: f64) -> Report {
        let (taken_at, kv_tokens_max) = (Moment::ZERO, Some(10_000));
        Report { taken_at, waiting, running, waiting_tokens: None, kv_used_share, kv_tokens_max }
    }

    #[test]
    fn many_answers_at_once_fill_a_replica_and_their_end_empties_it() {
        let mut knees = knees();
        let mut sent = 0;
        while knees.fill(Moment::ZERO, R) < 1.0 {
            knees.on_sent(Moment::ZERO, R, &mut burden(0));
            sent += 1;
        }
        assert!((40..200).contains(&sent), "{sent}");
        (0..sent).for_each(|_| knees.on_ended(R, burden(0)));
        assert!(knees.fill(Moment::ZERO, R) < 1e-9);
    }

    #[test]
    fn prompts_that_wait_fill_it_until_they_are_read() {
        let mut knees = knees();
        let mut long = burden(600);
        knees.on_sent(Moment::ZERO, R, &mut long);
        assert!(1.0 <= knees.fill(Moment::ZERO, R));
        assert_eq!(knees.with_long_prefills(), 1);
        knees.on_read(Moment::ZERO, R, &mut long);
        assert!(knees.fill(Moment::ZERO, R) < 0.1);
        assert_eq!(knees.with_long_prefills(), 0);
        knees.on_ended(R, long);
    }

    #[test]
    fn an_engine_with_a_queue_corrects_the_prediction_and_one_without_takes_it_back() {
        let mut knees = knees();
        (0..8).for_each(|_| knees.on_sent(Moment::ZERO, R, &mut burden(0)));
        assert!(knees.fill(Moment::ZERO, R) < 0.5);
        knees.on_report(R, report(4, 4, 0.1));
        assert!(1.0 < knees.fill(Moment::ZERO, R));
        (0..10).for_each(|_| knees.on_report(R, report(0, 8, 0.1)));
        assert!(knees.fill(Moment::ZERO, R) < 1.0);
    }

    #[test]
    fn a_replica_that_reads_faster_than_predicted_may_have_more_waiting() {
        let mut knees = knees();
        for second in 0..100 {
            let at = Moment::ZERO + Duration::from_secs(second);
            let mut quick = burden(500);
            knees.on_sent(at, R, &mut quick);
            knees.on_read(at + Duration::from_millis(50), R, &mut quick);
            knees.on_ended(R, quick);
        }
        let now = Moment::ZERO + Duration::from_secs(100);
        knees.on_sent(now, R, &mut burden(500));
        assert!(knees.fill(now, R) < 0.3);
    }

    #[test]
    fn memory_counts_when_it_is_tight() {
        let mut knees = knees();
        (0..11).for_each(|_| knees.on_sent(Moment::ZERO, R, &mut burden(0)));
        knees.on_report(R, report(0, 11, 0.5));
        assert!(knees.fill(Moment::ZERO, R) < 0.5, "most of it is shared");
        knees.on_report(R, report(0, 11, 0.9));
        assert!(1.0 < knees.fill(Moment::ZERO, R));
        let later = Moment::ZERO + Duration::from_secs(60);
        assert!(knees.fill(later, R) < 0.5, "that was long ago");
    }

    #[test]
    fn long_prompts_and_short_answers_move_the_knee() {
        let mut knees = knees();
        let before = knees.loads[&R].sequences_max;
        (0..640).for_each(|_| knees.learn(8_000, 8_000, 16));
        let after = knees.loads[&R].sequences_max;
        assert!(4.0 * after < before, "{before} {after}");
    }
}
