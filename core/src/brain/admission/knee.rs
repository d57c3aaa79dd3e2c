//! Is a replica past its knee? Beyond the knee more requests bring no more throughput; they only wait
//! longer. Two things bring a replica there: a batch in which one more answer slows all others by as much
//! as it gets done itself, and KV memory that is used up. (How long a prompt may wait for other prefills
//! depends on its class: that is `headroom`.) The first is predicted from step times for the contexts that
//! are really seen, and corrected live as congestion control does: first tokens that come far later than
//! predicted say that the engine has a line of its own. No number of requests is configured.

use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::cost::{Hardware, Mix, StepTimes, StepWork};
use crate::domain::{Moment, ReplicaId, Report, span_ms, span_of_ms};
use crate::fleet::{Replica, ms};

/// The knee is where this share of the highest throughput is reached.
const SHARE_OF_BEST: f64 = 0.98;
const SEQUENCES_MAX: u32 = 512;
/// The weight of one request's context in the average. Small, so that one very long request in a
/// thousand does not dominate.
const NEW_SHARE: f64 = 0.002;
/// Requests after which the knees are computed again.
const LOOK_STEP: u32 = 64;
/// A first token is late if it takes this many times as long as predicted, and the margin on top.
const LATE_FACTOR: f64 = 2.0;
/// A single late first token was behind a long prompt. This many in a row are behind a line in the engine.
const LATE_IN_A_ROW: u32 = 16;
/// The factor by which a replica's room shrinks when its first tokens are late.
const LATE_CUT: f64 = 0.9;
/// Below this share in use, KV memory holds no request up.
const KV_TIGHT_SHARE: f64 = 0.8;
/// A report older than this is not used.
const REPORT_AGE_MAX: Duration = Duration::from_secs(5);

/// Where the knees of all replicas are.
#[derive(Debug)]
pub(super) struct Knees {
    replicas: FxHashMap<ReplicaId, Knee>,
    /// The average context of the requests that were seen.
    context_tokens: f64,
    seen: u32,
    /// How long a first token may take beyond [`LATE_FACTOR`] times its prediction before it is late.
    late_margin_ms: f64,
}

#[derive(Debug)]
struct Knee {
    times: StepTimes,
    sequences_max: f64,
    /// How many requests the replica has shown it can run without a line of its own, where that is less.
    seen_max: f64,
    /// How many first tokens in a row were late.
    late: u32,
    /// When `seen_max` was last cut; requests sent before that are not counted again.
    cut_at: Moment,
}

impl Knees {
    pub(super) fn new(late_margin: Duration) -> Self {
        let context_tokens = Mix::USUAL.context_tokens().into();
        let late_margin_ms = span_ms(late_margin);
        Self { replicas: FxHashMap::default(), context_tokens, seen: 0, late_margin_ms }
    }

    pub(super) fn on_joined(&mut self, replica: ReplicaId, hardware: &Hardware) {
        let times = hardware.step;
        let sequences_max = knee(&times, self.context_tokens);
        let (seen_max, late, cut_at) = (f64::INFINITY, 0, Moment::ZERO);
        self.replicas.insert(replica, Knee { times, sequences_max, seen_max, late, cut_at });
    }

    /// Predicts a knee anew. What a replica has shown beside predictions that were far off says nothing.
    pub(super) fn on_repriced(&mut self, replica: ReplicaId, hardware: &Hardware, stretch: f64) {
        let Some(it) = self.replicas.get_mut(&replica) else { return };
        if !(1.0 / LATE_FACTOR.sqrt()..LATE_FACTOR.sqrt()).contains(&stretch) {
            return self.on_joined(replica, hardware);
        }
        it.times = hardware.step;
        it.sequences_max = knee(&it.times, self.context_tokens);
    }

    pub(super) fn on_left(&mut self, replica: ReplicaId) {
        self.replicas.remove(&replica);
    }

    /// Learns how long the context of a finished request was while it was answered.
    pub(super) fn learn(&mut self, prompt_tokens: u32, output_tokens: u32) {
        let context = f64::from(prompt_tokens) + f64::from(output_tokens) / 2.0;
        self.context_tokens += NEW_SHARE * (context - self.context_tokens);
        self.seen += 1;
        if self.seen == LOOK_STEP {
            self.seen = 0;
            let context = self.context_tokens;
            self.replicas.values_mut().for_each(|it| it.sequences_max = knee(&it.times, context));
        }
    }

    /// Corrects the knee by a first token that took `taken_ms` instead of `predicted_ms`, of a request that
    /// was sent at `sent_at`.
    pub(super) fn on_first_token(
        &mut self,
        replica: &Replica,
        sent_at: Moment,
        taken_ms: f64,
        predicted_ms: f64,
    ) {
        let Some(knee) = self.replicas.get_mut(&replica.id) else { return };
        let in_flight = f64::from(replica.booked());
        if LATE_FACTOR * predicted_ms + self.late_margin_ms < taken_ms {
            knee.late += u32::from(knee.cut_at <= sent_at);
            if LATE_IN_A_ROW <= knee.late {
                knee.seen_max = (LATE_CUT * in_flight.min(knee.sequences_max)).max(1.0);
                knee.cut_at = sent_at + span_of_ms(taken_ms);
                knee.late = 0;
            }
            return;
        }
        knee.late = 0;
        if knee.seen_max <= in_flight + 1.0 {
            // At its limit and still in time: the replica can probably run more.
            knee.seen_max += 1.0;
        }
    }

    /// Says how full a replica is; from 1 on it is past its knee.
    pub(super) fn fill(&self, now: Moment, replica: &Replica) -> f64 {
        self.fill_up_to(now, replica, |it| it.sequences_max.min(it.seen_max))
    }

    /// The same by what the replica has shown, whatever was predicted of it.
    pub(super) fn fill_shown(&self, now: Moment, replica: &Replica) -> f64 {
        self.fill_up_to(now, replica, |it| it.seen_max)
    }

    fn fill_up_to(&self, now: Moment, replica: &Replica, most: impl Fn(&Knee) -> f64) -> f64 {
        let Some(knee) = self.replicas.get(&replica.id) else { return 0.0 };
        (f64::from(replica.booked()) / most(knee)).max(kv_fill(now, replica))
    }
}

fn kv_fill(now: Moment, replica: &Replica) -> f64 {
    let report = replica.reported.report();
    let fresh = report.filter(|it| now.since(it.taken_at) <= REPORT_AGE_MAX);
    match fresh {
        // The engine counts a shared prefix once, the ledger once per request. So the engine decides
        // whether memory is tight. The ledger decides by how much: it knows what was sent since.
        Some(Report { kv_used_share, kv_tokens_max: Some(max), .. })
            if 0 < max && KV_TIGHT_SHARE <= kv_used_share =>
        {
            let load = replica.ledger.load();
            // Both in the same unit, whatever its name.
            ms(load.kv_tokens.saturating_add(load.growth_tokens)) / ms(max)
        }
        Some(_) | None => 0.0,
    }
}

/// Finds the smallest batch with [`SHARE_OF_BEST`] of the highest decoding throughput. Prefills are left
/// out: they run one after the other and have a limit of their own.
fn knee(times: &StepTimes, context: f64) -> f64 {
    let rate = |sequences: u32| {
        let count = f64::from(sequences);
        count / times.step_ms(&StepWork::answers(count, count * context))
    };
    let wanted = SHARE_OF_BEST * rate(SEQUENCES_MAX);
    let (mut below, mut at) = (0, SEQUENCES_MAX);
    while below + 1 < at {
        let middle = u32::midpoint(below, at);
        *(if rate(middle) < wanted { &mut below } else { &mut at }) = middle;
    }
    f64::from(at)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use crate::fleet::{BreakerSettings, Load};

    use super::*;

    const ID: ReplicaId = ReplicaId(0);

    fn bench() -> (Knees, Replica) {
        let mut knees = Knees::new(Duration::from_millis(250));
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
        assert!((40..=512).contains(&sent), "{sent}");
        assert!(knees.fill_shown(Moment::ZERO, &replica) < 1e-9, "nothing was late");
        (0..sent).for_each(|_| replica.on_ended(Moment::ZERO, load(0), false));
        assert!(knees.fill(Moment::ZERO, &replica) < 1e-9);
    }

    #[test]
    fn prompts_make_the_next_one_wait_until_they_are_read() {
        let (_, mut replica) = bench();
        let mut long = load(600);
        replica.on_sent(Moment::ZERO, long);
        let after = |ms: u64| Moment::ZERO + Duration::from_millis(ms);
        assert!((replica.booked_wait_ms(Moment::ZERO) - 600.0).abs() < 1e-9);
        assert!((replica.booked_wait_ms(after(400)) - 200.0).abs() < 1e-9, "most of it is read");
        replica.ledger.begin(after(500), &mut long);
        assert!(replica.booked_wait_ms(after(500)) < 1e-9);
    }

    #[test]
    fn first_tokens_that_are_late_correct_the_prediction_and_timely_ones_take_it_back() {
        let (mut knees, mut replica) = bench();
        (0..8).for_each(|_| replica.on_sent(Moment::ZERO, load(0)));
        assert!(knees.fill(Moment::ZERO, &replica) < 0.5);
        let late = |knees: &mut Knees, times: u32| {
            (0..times).for_each(|_| knees.on_first_token(&replica, Moment::ZERO, 1_000.0, 100.0));
        };
        late(&mut knees, LATE_IN_A_ROW - 1);
        assert!(knees.fill(Moment::ZERO, &replica) < 0.5, "they may be behind a long prompt");
        late(&mut knees, 1);
        let fill = knees.fill(Moment::ZERO, &replica);
        assert!((1.0..1.2).contains(&fill), "{fill}");
        let shown = knees.fill_shown(Moment::ZERO, &replica);
        assert!((shown - fill).abs() < 1e-9, "{shown}");
        late(&mut knees, 100);
        assert!(knees.fill(Moment::ZERO, &replica) <= fill, "all were sent before it was known");
        (0..10).for_each(|_| knees.on_first_token(&replica, Moment::ZERO, 110.0, 100.0));
        assert!(knees.fill(Moment::ZERO, &replica) < 1.0);
    }

    #[test]
    fn memory_counts_when_it_is_tight() {
        let (knees, mut replica) = bench();
        (0..11).for_each(|_| replica.on_sent(Moment::ZERO, load(0)));
        replica.reported.on_report(report(0, 11, 0.5));
        assert!(knees.fill(Moment::ZERO, &replica) < 0.5, "most of it is shared");
        replica.reported.on_report(report(0, 11, 0.9));
        assert!(1.0 < knees.fill(Moment::ZERO, &replica));
        let later = Moment::ZERO + Duration::from_secs(60);
        assert!(knees.fill(later, &replica) < 0.5, "that was long ago");
    }

    #[test]
    fn long_contexts_move_the_knee() {
        let (mut knees, _) = bench();
        let before = knees.replicas[&ID].sequences_max;
        (0..6_400).for_each(|_| knees.learn(30_000, 200));
        let after = knees.replicas[&ID].sequences_max;
        assert!(1.5 * after < before, "{before} {after}");
    }
}
