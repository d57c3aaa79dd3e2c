//! SMG's `least_load`: the shortest expected wait, (tokens queued + tokens sent since that was
//! reported) / throughput + 0.15 s · k / (1 - k) for a KV memory used to the share k. An engine that
//! tells only how many wait is taken for 1024 tokens each. A replica without a report is taken for
//! the best of those with one, plus what is in flight; with no reports at all the fewest in flight.
//! Replicas whose engine said 8 or more wait, or 0.8 of KV is used, are passed over while any other
//! is left (its overload veto, on by default).
//!
//! Generation throughput is not in our reports, so it is always the default of 2000 tokens a second.
//! Its rule that lets new replicas warm up on a share of the misses is left out.

use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashMap;

use cleave_core::domain::{Moment, ReplicaId, Report, RequestId, float};

use super::{Ask, Candidate, Policy, lowest_by_chance};

const KV_PRESSURE_S: f64 = 0.15;
const TOKENS_PER_SECOND: f64 = 2000.0;
const MEAN_PREFILL_TOKENS: u32 = 1024;
const VETO_WAITING: u32 = 8;
const VETO_KV_SHARE: f64 = 0.8;

#[derive(Debug, Default)]
pub(super) struct LeastLoad {
    waits: Waits,
}

impl Policy for LeastLoad {
    fn pick(&mut self, _: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        self.waits.measure(candidates);
        lowest_by_chance(candidates.len(), chance, |it| self.waits.of(it))
    }

    fn on_sent(&mut self, _: RequestId, ask: &Ask<'_>, to: &Candidate) -> usize {
        self.waits.on_sent(ask, to);
        0
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.waits.forget(replica);
    }
}

/// The expected waits of the candidates, and what they are reckoned from.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Tokens sent to each replica since its report of that moment.
    sent: FxHashMap<ReplicaId, (Option<Moment>, u64)>,
    seconds: Vec<f64>,
}

impl Waits {
    /// Measures for all candidates; [`Self::of`] then tells. A vetoed replica has an infinite wait.
    pub(super) fn measure(&mut self, candidates: &[Candidate]) {
        let mut seconds = std::mem::take(&mut self.seconds);
        seconds.clear();
        let reported = candidates.iter().filter_map(|it| Some(self.reported_s(it, it.report?)));
        let best = reported.min_by(f64::total_cmp);
        seconds.extend(candidates.iter().map(|it| match (it.report, best) {
            (Some(report), _) => self.reported_s(it, report),
            (None, Some(best)) => {
                let tokens = f64::from(it.in_flight) * f64::from(MEAN_PREFILL_TOKENS);
                best + tokens / TOKENS_PER_SECOND
            }
            (None, None) => f64::from(it.in_flight),
        }));
        if candidates.iter().any(|it| !is_vetoed(it)) {
            let vetoed = seconds.iter_mut().zip(candidates).filter(|(_, it)| is_vetoed(it));
            vetoed.for_each(|(seconds, _)| *seconds = f64::INFINITY);
        }
        self.seconds = seconds;
    }

    pub(super) fn of(&self, position: usize) -> f64 {
        self.seconds[position]
    }

    pub(super) fn on_sent(&mut self, ask: &Ask<'_>, to: &Candidate) {
        let since = to.report.map(|it| it.taken_at);
        let tokens = match ask.outline.prompt_tokens {
            0 => MEAN_PREFILL_TOKENS,
            tokens => tokens,
        };
        let before = self.sent_since(to.id, since);
        self.sent.insert(to.id, (since, before + u64::from(tokens)));
    }

    pub(super) fn forget(&mut self, replica: ReplicaId) {
        self.sent.remove(&replica);
    }

    fn sent_since(&self, replica: ReplicaId, since: Option<Moment>) -> u64 {
        self.sent.get(&replica).filter(|it| it.0 == since).map_or(0, |it| it.1)
    }

    fn reported_s(&self, candidate: &Candidate, report: Report) -> f64 {
        let guessed = u64::from(report.waiting) * u64::from(MEAN_PREFILL_TOKENS);
        let queued = report.waiting_tokens.filter(|it| 0 < *it).unwrap_or(guessed);
        let sent = self.sent_since(candidate.id, Some(report.taken_at));
        let kv = report.kv_used_share.clamp(0.0, 0.999);
        float(queued + sent) / TOKENS_PER_SECOND + KV_PRESSURE_S * kv / (1.0 - kv)
    }
}

fn is_vetoed(candidate: &Candidate) -> bool {
    candidate
        .report
        .is_some_and(|it| VETO_WAITING <= it.waiting || VETO_KV_SHARE <= it.kv_used_share)
}

#[cfg(test)]
mod tests {
    use super::super::SMG_LEAST_LOAD;
    use super::super::bench::{Bench, prompt};

    fn bench() -> Bench {
        Bench::new(SMG_LEAST_LOAD, 3)
    }

    #[test]
    fn waits_are_tokens_over_throughput_and_the_pressure_on_kv() {
        let mut bench = bench();
        let short = prompt(&[(0, 1)]);
        // 1024 / 2000 = 0.512 s; 0.15 · 0.75 / 0.25 = 0.45 s; 0.15 · 0.78 / 0.22 = 0.532 s.
        bench.report(0, 1, 0.0);
        bench.report(1, 0, 0.75);
        bench.report(2, 0, 0.78);
        assert_eq!(bench.pick(&short), 1);
        // 2 · 100 tokens later it is 0.55 s there.
        bench.send(&short, 1);
        bench.send(&short, 1);
        assert_eq!(bench.pick(&short), 0);
        // A new report knows of what was sent.
        bench.wait(1);
        bench.report(1, 0, 0.75);
        assert_eq!(bench.pick(&short), 1);
    }

    #[test]
    fn who_does_not_report_is_as_good_as_the_best_who_does_but_for_what_is_in_flight() {
        let mut bench = bench();
        let short = prompt(&[(0, 1)]);
        bench.report(0, 2, 0.0);
        bench.report(1, 1, 0.0);
        bench.in_flight(&[0, 0, 1]);
        assert_eq!(bench.pick(&short), 1);
        let mut dark = Bench::new(SMG_LEAST_LOAD, 3);
        dark.in_flight(&[3, 1, 2]);
        assert_eq!(dark.pick(&short), 1);
    }

    #[test]
    fn the_overloaded_are_passed_over_while_another_is_left() {
        let mut bench = bench();
        let short = prompt(&[(0, 1)]);
        bench.report(0, 0, 0.8);
        bench.report(1, 8, 0.0);
        bench.report(2, 7, 0.7);
        assert_eq!(bench.pick(&short), 2);
        // All overloaded: 0.6 s, 4.1 s and 4.1 s.
        bench.report(2, 8, 0.0);
        assert_eq!(bench.pick(&short), 0);
    }
}
