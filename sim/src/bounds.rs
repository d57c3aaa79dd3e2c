//! What is possible at best, beside which every policy's figures are printed. Hits: of a cache that
//! never forgets, and of one cache as large as all together. First tokens: on a replica that has
//! nothing else to do, and in the mean of one server as fast as all together that always does the
//! shortest work first. All of it is computed on the arrivals of the pooled replay (`world::pooled`),
//! so that a closed loop is bounded by a closed loop.

use serde::Serialize;

use crate::results::{Interval, Quantiles, Results};
use crate::traces::Workload;
use crate::world::{RunError, Unwatched, World, WorldSettings};

/// The bounds of one workload on one fleet.
#[derive(Clone, Debug, Serialize)]
pub struct Bounds {
    /// Share of prompt tokens that a cache without end would have saved.
    pub infinite_hit: f64,
    /// The same for one cache as large as the fleet's together.
    pub pooled_hit: f64,
    /// First token on a replica that has nothing else to do and finds everything ever sent.
    pub floor: Quantiles,
    /// No fleet as fast as this one has a lower mean time to the first token.
    pub ttft_mean_s: f64,
    /// By class, the share of deadlines for a first token that no order keeps more of.
    pub deadlines: Vec<DeadlineBound>,
    /// The pooled replay: one line, one cache.
    pub pooled: Results,
}

/// What is possible at best for the deadlines of a class, had it the fleet to itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeadlineBound {
    pub class: String,
    pub met_max: f64,
}

impl Bounds {
    /// Averages the bounds of several seeds; the rest is the first one's. There must be one at least.
    pub fn mean(seeds: &[Self]) -> Self {
        let mut mean = seeds.first().expect("a comparison has a seed").clone();
        let over = |figure: fn(&Self) -> f64| Interval::of_each(seeds, figure).mean;
        let spread = |figure: fn(&Self) -> Quantiles| {
            let all: Vec<Quantiles> = seeds.iter().map(figure).collect();
            let over = |part: fn(&Quantiles) -> f64| Interval::of_each(&all, part).mean;
            Quantiles {
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
        for bound in &mut mean.deadlines {
            let same = |it: &&DeadlineBound| it.class == bound.class;
            let all: Vec<f64> = seeds
                .iter()
                .filter_map(|it| it.deadlines.iter().find(same))
                .map(|it| it.met_max)
                .collect();
            bound.met_max = Interval::of(&all).mean;
        }
        mean.pooled.good_share = over(|it| it.pooled.good_share);
        mean.pooled.good_per_s = over(|it| it.pooled.good_per_s);
        mean.pooled.ttft_s = spread(|it| it.pooled.ttft_s);
        mean.pooled.tpot_s = spread(|it| it.pooled.tpot_s);
        mean.pooled.end_to_end_s = spread(|it| it.pooled.end_to_end_s);
        mean
    }
}

/// Computes the bounds of a workload on a fleet, after a warm-up if there is one.
pub fn bounds(
    settings: WorldSettings,
    warmup: Option<&mut Workload>,
    workload: &mut Workload,
) -> Result<Bounds, RunError> {
    let mut world = World::pooled(settings);
    if let Some(warmup) = warmup {
        world.run(warmup, &mut Unwatched)?;
    }
    world.start_measuring();
    world.run(workload, &mut Unwatched)?;
    let ideal = world.ideal().expect("a pooled world collects them");
    let floor = Quantiles::of(ideal.floor());
    Ok(Bounds {
        infinite_hit: ideal.infinite_hit(),
        pooled_hit: ideal.pooled_hit(),
        // Both are lower bounds of the same mean, so the higher one is.
        ttft_mean_s: floor.mean.max(ideal.shortest_first_mean_s()),
        floor,
        deadlines: ideal
            .deadlines_met_max()
            .map(|(class, met_max)| DeadlineBound { class: class.to_string(), met_max })
            .collect(),
        pooled: Results::of(&world, "pooled"),
    })
}
