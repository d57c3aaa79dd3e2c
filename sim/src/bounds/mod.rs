//! What is possible at best, beside which every policy's figures are printed. Hits: of a cache that
//! never forgets, and of one cache as large as all together. First tokens: on a replica that has
//! nothing else to do, and in the mean of one server as fast as all together that always does the
//! shortest work first. All of it is computed on the arrivals of the pooled replay (`world::pooled`),
//! so that a closed loop is bounded by a closed loop.

mod srpt;

use std::time::Duration;

use cleave_core::domain::Moment;
use serde::Serialize;

use crate::measure::{Histogram, ratio, real};
use crate::report::{Interval, Results, Spread};
use crate::traces::Workload;
use crate::work;
use crate::world::{ReplicaSettings, RunError, Settings, Unwatched, World};

use srpt::Srpt;

/// The bounds of one workload on one fleet.
#[derive(Clone, Debug, Serialize)]
pub struct Bounds {
    /// Share of prompt tokens that a cache without end would have saved.
    pub infinite_hit: f64,
    /// The same for one cache as large as the fleet's together.
    pub pooled_hit: f64,
    /// First token on a replica that has nothing else to do and finds everything ever sent.
    pub floor: Spread,
    /// No fleet as fast as this one has a lower mean time to the first token.
    pub ttft_mean_s: f64,
    /// The pooled replay: one line, one cache.
    pub pooled: Results,
}

impl Bounds {
    /// Averages the bounds of several seeds; the rest is the first one's. There must be one at least.
    pub fn mean(seeds: &[Self]) -> Self {
        let mut mean = seeds.first().expect("a comparison has a seed").clone();
        let over = |figure: fn(&Self) -> f64| Interval::of_each(seeds, figure).mean;
        let spread = |figure: fn(&Self) -> Spread| {
            let all: Vec<Spread> = seeds.iter().map(figure).collect();
            let over = |part: fn(&Spread) -> f64| Interval::of_each(&all, part).mean;
            Spread {
                mean: over(|it| it.mean),
                p50: over(|it| it.p50),
                p90: over(|it| it.p90),
                p99: over(|it| it.p99),
                max: over(|it| it.max),
            }
        };
        mean.infinite_hit = over(|it| it.infinite_hit);
        mean.pooled_hit = over(|it| it.pooled_hit);
        mean.floor = spread(|it| it.floor);
        mean.ttft_mean_s = over(|it| it.ttft_mean_s);
        mean.pooled.good_share = over(|it| it.pooled.good_share);
        mean.pooled.good_per_s = over(|it| it.pooled.good_per_s);
        mean.pooled.ttft_s = spread(|it| it.pooled.ttft_s);
        mean.pooled.tpot_s = spread(|it| it.pooled.tpot_s);
        mean.pooled.end_to_end_s = spread(|it| it.pooled.end_to_end_s);
        mean
    }
}

/// Collects what the bounds need, arrival by arrival.
#[derive(Clone, Debug)]
pub struct Ideal {
    fastest: ReplicaSettings,
    speed: u64,
    srpt: Srpt,
    floor: Histogram,
    prompt_tokens: u64,
    seen_tokens: u64,
    pooled_tokens: u64,
}

impl Ideal {
    /// Prepares for a fleet; in a mixed one, every replica is taken to be as fast as the fastest.
    pub(crate) fn new(replicas: &[ReplicaSettings]) -> Self {
        let speed = |it: &&ReplicaSettings| work::prefill_ms(&it.engine.times, 1_000, 10_000);
        let fastest = replicas.iter().min_by(|a, b| speed(a).total_cmp(&speed(b)));
        Self {
            fastest: *fastest.expect("a world has replicas"),
            speed: u64::try_from(replicas.len()).unwrap_or(u64::MAX),
            srpt: Srpt::default(),
            floor: Histogram::default(),
            prompt_tokens: 0,
            seen_tokens: 0,
            pooled_tokens: 0,
        }
    }

    pub(crate) fn on_arrival(&mut self, now: Moment, prompt: u32, seen: u32, pooled: u32) {
        let engine = &self.fastest.engine;
        let alone = work::alone_ms(&engine.times, engine.batched_tokens_max, prompt - seen, seen);
        self.floor.record(span(alone));
        let needed = span(work::prefill_ms(&engine.times, prompt - seen, seen));
        let needed = u64::try_from(needed.as_nanos()).unwrap_or(u64::MAX);
        self.srpt.on_arrival(now, needed / self.speed);
        self.prompt_tokens += u64::from(prompt);
        self.seen_tokens += u64::from(seen);
        self.pooled_tokens += u64::from(pooled);
    }

    fn bounds(&self, pooled: Results) -> Bounds {
        let prompt_tokens = real(self.prompt_tokens);
        let floor = Spread::of(&self.floor);
        Bounds {
            infinite_hit: ratio(real(self.seen_tokens), prompt_tokens),
            pooled_hit: ratio(real(self.pooled_tokens), prompt_tokens),
            // Both are lower bounds of the same mean, so the higher one is.
            ttft_mean_s: floor.mean.max(real(self.srpt.mean_ns()) / 1e9),
            floor,
            pooled,
        }
    }
}

/// Computes the bounds of a workload on a fleet, after a warm-up if there is one.
pub fn bounds(
    settings: Settings,
    warmup: Option<&mut Workload>,
    workload: &mut Workload,
) -> Result<Bounds, RunError> {
    let mut world = World::pooled(settings);
    if let Some(warmup) = warmup {
        world.run(warmup, &mut Unwatched)?;
    }
    world.start_measuring();
    world.run(workload, &mut Unwatched)?;
    let results = Results::of(&world, "pooled");
    let ideal = world.ideal().expect("a pooled world collects them");
    Ok(ideal.bounds(results))
}

fn span(ms: f64) -> Duration {
    Duration::try_from_secs_f64(ms / 1e3).unwrap_or(Duration::MAX)
}
