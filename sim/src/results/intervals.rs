//! Several seeds of one thing: the mean and where the true mean lies, with 95 per cent confidence by
//! Student's law. One seed has no interval, and says so by having none.

use serde::Serialize;

use super::Results;
use super::groups::{self, GroupResults, GroupSummary};
use crate::measure::real;

/// A mean over seeds and half the width of its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Interval {
    pub mean: f64,
    pub half_width: Option<f64>,
}

impl Interval {
    pub fn of(values: &[f64]) -> Self {
        let count = real(u64::try_from(values.len()).unwrap_or(u64::MAX));
        let mean = if values.is_empty() { 0.0 } else { values.iter().sum::<f64>() / count };
        let half_width = (1 < values.len()).then(|| {
            let squares: f64 = values.iter().map(|it| (it - mean) * (it - mean)).sum();
            student_95(values.len() - 1) * (squares / (count - 1.0) / count).sqrt()
        });
        Self { mean, half_width }
    }

    /// Looks at one figure of each of several things.
    pub fn of_each<T>(things: &[T], figure: impl Fn(&T) -> f64) -> Self {
        Self::of(&things.iter().map(figure).collect::<Vec<_>>())
    }
}

/// The figures of a policy that are compared, over all its seeds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MetricSummary {
    pub policy: String,
    pub seeds: usize,
    pub ttft_mean_s: Interval,
    pub ttft_p50_s: Interval,
    pub ttft_p90_s: Interval,
    pub ttft_p99_s: Interval,
    pub tpot_mean_s: Interval,
    pub tpot_p99_s: Interval,
    pub end_to_end_p50_s: Interval,
    pub end_to_end_p99_s: Interval,
    pub good_share: Interval,
    pub good_per_s: Interval,
    pub hit: Interval,
    pub again_elsewhere: Interval,
    pub again_evicted: Interval,
    pub load_max_over_mean: Interval,
    pub fairness: Interval,
    pub sessions_moved: Interval,
    /// Where faults were about: the share of others that were struck, and that suffered, the replicas
    /// that harmful requests reached, and the others with and without.
    pub struck: Option<Interval>,
    pub reached: Option<Interval>,
    pub blast_radius: Option<Interval>,
    pub hit_calm: Option<Interval>,
    pub others: Option<GroupSummary>,
    pub others_calm: Option<GroupSummary>,
    pub classes: Vec<GroupSummary>,
    pub tenants: Vec<GroupSummary>,
}

/// Puts the runs of one policy together; there must be one at least.
pub fn summarize(runs: &[&Results]) -> MetricSummary {
    let over = |figure: fn(&Results) -> f64| Interval::of_each(runs, |it| figure(it));
    let one = |of: fn(&Results) -> &Option<GroupResults>| {
        groups::summaries(runs.iter().filter_map(|it| of(it).as_ref().map(std::slice::from_ref)))
            .pop()
    };
    let some = |figure: fn(&Results) -> Option<f64>| {
        let known: Vec<f64> = runs.iter().filter_map(|it| figure(it)).collect();
        (!known.is_empty()).then(|| Interval::of(&known))
    };
    MetricSummary {
        policy: runs.first().map(|it| it.policy.clone()).unwrap_or_default(),
        seeds: runs.len(),
        ttft_mean_s: over(|it| it.ttft_s.mean),
        ttft_p50_s: over(|it| it.ttft_s.p50),
        ttft_p90_s: over(|it| it.ttft_s.p90),
        ttft_p99_s: over(|it| it.ttft_s.p99),
        tpot_mean_s: over(|it| it.tpot_s.mean),
        tpot_p99_s: over(|it| it.tpot_s.p99),
        end_to_end_p50_s: over(|it| it.end_to_end_s.p50),
        end_to_end_p99_s: over(|it| it.end_to_end_s.p99),
        good_share: over(|it| it.good_share),
        good_per_s: over(|it| it.good_per_s),
        hit: over(|it| it.hit),
        again_elsewhere: over(|it| it.again_elsewhere),
        again_evicted: over(|it| it.again_evicted),
        load_max_over_mean: over(|it| it.load_max_over_mean),
        fairness: over(|it| it.fairness),
        sessions_moved: over(|it| real(it.sessions_moved)),
        struck: some(|it| it.struck),
        reached: some(|it| it.reached.map(real)),
        blast_radius: some(|it| it.blast_radius),
        hit_calm: some(|it| it.hit_calm),
        others: one(|it| &it.others),
        others_calm: one(|it| &it.others_calm),
        classes: groups::summaries(runs.iter().map(|it| it.classes.as_slice())),
        tenants: groups::summaries(runs.iter().map(|it| it.tenants.as_slice())),
    }
}

/// Student's quantile for a two-sided 95 per cent.
fn student_95(freedom: usize) -> f64 {
    const TABLE: [f64; 30] = [
        12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
        2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056,
        2.052, 2.048, 2.045, 2.042,
    ];
    freedom.checked_sub(1).and_then(|at| TABLE.get(at)).copied().unwrap_or(1.96)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_has_no_interval_and_five_have_students() {
        assert_eq!(Interval::of(&[2.0]).half_width, None);
        let five = Interval::of(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        // Deviation 1.5811 over the root of 5, times 2.776.
        assert!((five.mean - 3.0).abs() < 1e-12);
        assert!((five.half_width.unwrap() - 1.963).abs() < 1e-3, "{five:?}");
    }
}
