//! One run as plain numbers, with their units in their names. It reads measures and never runs
//! anything; `report` shows them to people.

mod groups;
mod intervals;

use serde::Serialize;

use crate::measure::{Histogram, Measures, Tally, jain, ratio, real};
use crate::world::World;

pub use groups::{GroupResults, GroupSummary};
pub use intervals::{Interval, MetricSummary, summarize};

/// A distribution in five figures, in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Quantiles {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    pub max: f64,
}

impl Quantiles {
    pub fn of(histogram: &Histogram) -> Self {
        Self {
            mean: histogram.mean_s(),
            p50: histogram.quantile_s(500),
            p90: histogram.quantile_s(900),
            p99: histogram.quantile_s(990),
            max: histogram.max_s(),
        }
    }
}

/// What one run came to.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Results {
    pub policy: String,
    pub seed: u64,
    pub requests: u64,
    pub finished: u64,
    /// Answers that broke off.
    pub cut: u64,
    pub refused: u64,
    /// Requests that no replica has the KV for.
    pub too_long: u64,
    pub retries: u64,
    /// From the start of measuring to the last end.
    pub span_s: f64,
    pub ttft_s: Quantiles,
    pub tpot_s: Quantiles,
    pub end_to_end_s: Quantiles,
    /// Requests that kept the promise, as a share of all and per second.
    pub good_share: f64,
    pub good_per_s: f64,
    pub prompt_tokens: u64,
    pub output_tokens: u64,
    /// Share of prompt tokens found in the replica's cache.
    pub hit: f64,
    /// Share of prompt tokens computed again although another replica had them.
    pub again_elsewhere: f64,
    /// Share of prompt tokens computed again because no replica had them any more, or yet.
    pub again_evicted: f64,
    /// The heaviest replica's work over the mean.
    pub load_max_over_mean: f64,
    /// Share of KV that running requests hold: mean over replicas and time, and the highest.
    pub kv_mean: f64,
    pub kv_max: f64,
    pub preemptions: u64,
    pub sessions_moved: u64,
    /// Jain's index over tenants of work served in time per work asked for.
    pub fairness: f64,
    /// Of the requests that ended after the first fault and did not cause it, the share whose
    /// replica it hit, or that no replica was left to take; none without faults.
    pub struck: Option<f64>,
    /// Replicas that requests which do harm have reached; none where no tenant sends any.
    pub reached: Option<u64>,
    /// Share of others' requests that kept the promise without the faults and did not with them.
    pub blast_radius: Option<f64>,
    /// Share of prompt tokens found in the cache in the run without the faults.
    pub hit_calm: Option<f64>,
    /// The requests that came after the first fault and did not cause it, with the faults and
    /// without.
    pub others: Option<GroupResults>,
    pub others_calm: Option<GroupResults>,
    pub classes: Vec<GroupResults>,
    pub tenants: Vec<GroupResults>,
    pub replicas: Vec<ReplicaResults>,
}

/// One replica's part.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ReplicaResults {
    pub requests: u64,
    pub work_s: f64,
    pub hit: f64,
    pub kv_mean: f64,
    pub waiting_mean: f64,
}

/// What is drawn.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Curves {
    /// Seconds, and the share of requests whose first token came within them.
    pub ttft_cdf: Vec<(f64, f64)>,
    pub load_width_s: f64,
    /// Per replica, work received per second over time, in milliseconds of a busy replica.
    pub load_ms_per_s: Vec<Vec<f64>>,
}

impl Results {
    pub fn of(world: &World, policy: &str) -> Self {
        let it = world.measures();
        let (prompt_tokens, arrived) = (real(it.prompt_tokens), real(it.arrived));
        let span_s = it.span.seconds();
        let (kv_mean, kv_max) = kv(it);
        Self {
            policy: policy.to_owned(),
            seed: world.settings().seed,
            requests: it.arrived,
            finished: it.finished,
            cut: it.cut,
            refused: it.refused,
            too_long: it.too_long,
            retries: it.retries,
            span_s,
            ttft_s: Quantiles::of(&it.ttft),
            tpot_s: Quantiles::of(&it.tpot),
            end_to_end_s: Quantiles::of(&it.end_to_end),
            good_share: ratio(real(it.good), arrived),
            good_per_s: ratio(real(it.good), span_s),
            prompt_tokens: it.prompt_tokens,
            output_tokens: it.output_tokens,
            hit: ratio(real(it.cached_tokens), prompt_tokens),
            again_elsewhere: ratio(real(it.elsewhere_tokens), prompt_tokens),
            again_evicted: ratio(real(it.evicted_tokens), prompt_tokens),
            load_max_over_mean: it.load_max_over_mean(),
            kv_mean,
            kv_max,
            preemptions: it.preemptions,
            sessions_moved: world.sessions_moved(),
            fairness: jain(it.tenants.values().map(Tally::share)),
            struck: (0 < it.bystanders)
                .then(|| ratio(real(it.bystanders_struck), real(it.bystanders))),
            reached: world.reached().and_then(|it| u64::try_from(it).ok()),
            blast_radius: None,
            hit_calm: None,
            others: it.others.map(|_| GroupResults::of("others", &it.others_tally, span_s)),
            others_calm: None,
            classes: groups::all(&it.classes, span_s),
            tenants: groups::all(&it.tenants, span_s),
            replicas: replicas(it),
        }
    }
}

impl Results {
    /// Holds the run against the same run without its faults. A request suffers when it keeps the
    /// promise there and not here; how many do is the difference.
    pub fn pair_with(&mut self, calm: Self) {
        let good = |it: &GroupResults| it.good_share * real(it.requests);
        self.blast_radius = self
            .others
            .as_ref()
            .zip(calm.others.as_ref())
            .map(|(with, without)| ratio(good(without) - good(with), real(without.requests)));
        self.hit_calm = Some(calm.hit);
        self.others_calm = calm.others;
    }
}

impl Curves {
    pub fn of(world: &World) -> Self {
        let it = world.measures();
        Self {
            ttft_cdf: it.ttft.cdf().collect(),
            load_width_s: it.work.width().as_secs_f64(),
            load_ms_per_s: it.work.rates(),
        }
    }
}

fn kv(it: &Measures) -> (f64, f64) {
    let count = real(u64::try_from(it.replicas.len()).unwrap_or(u64::MAX));
    let means: f64 = it.replicas.iter().map(|it| it.kv.mean()).sum();
    let max = it.replicas.iter().map(|it| it.kv.max()).fold(0.0, f64::max);
    (ratio(means, count), max)
}

fn replicas(it: &Measures) -> Vec<ReplicaResults> {
    let results = it.replicas.iter().map(|it| ReplicaResults {
        requests: it.requests,
        work_s: it.work_ms / 1e3,
        hit: ratio(real(it.cached_tokens), real(it.prompt_tokens)),
        kv_mean: it.kv.mean(),
        waiting_mean: it.waiting.mean(),
    });
    results.collect()
}
