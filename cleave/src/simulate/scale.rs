//! `cleave simulate scale`: one workload, several rules that size the fleet, several start-up times. What each costs in
//! replica hours and in promises kept, beside a fleet that is as large as its peak needs and beside a rule that knows
//! the load to come.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::ValueEnum;
use cleave_core::domain::Moment;
use cleave_core::policy::PolicyKind;
use cleave_sim::measure::{ratio, real};
use cleave_sim::results::{Quantiles, Results};
use cleave_sim::scalers::{
    Clairvoyant, Fixed, Hpa, Kpa, Limits, LoadRecord, Ours, ScaleRule, Signal,
};
use cleave_sim::world::{FleetPoint, Unwatched, World};
use serde::Serialize;

use super::args::What;
use super::compare::print;
use super::plan::Plan;
use super::{header, output, runs, scale_plot, scale_table};

/// How many points of good requests a fleet may lose against the largest one, or a rule against the static peak.
pub(super) const POINTS: f64 = 0.005;
/// How full the rule that knows the future may make replicas, as shares of their capacity; the fullest that keeps
/// the promises is used.
const USE_SHARES: [f64; 9] = [1.6, 1.45, 1.3, 1.15, 1.0, 0.9, 0.8, 0.65, 0.5];
/// What the other rules aim at; each is the usual setting.
const UTILISATION: f64 = 0.7;
const WAITING_PER_REPLICA: f64 = 5.0;

/// Play a workload with rules that size the fleet, and show what each costs
#[derive(Debug, clap::Args)]
pub(crate) struct Scale {
    #[command(flatten)]
    what: What,
    /// Rules to compare, with commas between them [default: all]
    #[arg(long = "scaler", value_enum, value_name = "NAMES", value_delimiter = ',')]
    scalers: Vec<ScalerKind>,
    /// How long a replica takes to start; several with commas between them
    #[arg(long, value_name = "TIMES", value_delimiter = ',', default_value = "30s,120s,300s", value_parser = humantime::parse_duration)]
    start_up: Vec<Duration>,
    /// The fewest replicas; the most are those of the fleet
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    min: usize,
    /// What a replica costs in an hour
    #[arg(long, value_name = "AMOUNT", default_value_t = 2.5)]
    price: f64,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Draw load, wanted and ready replicas over time into this file, as SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// A rule by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScalerKind {
    /// What `cleave serve` advises
    Ours,
    /// Kubernetes' autoscaler on work over capacity, 70% of it
    Hpa,
    /// KEDA on waiting requests
    Keda,
    /// Knative's autoscaler on concurrency, with panic
    Kpa,
    /// A fleet that always has what its peak needs
    Static,
    /// A rule that knows the load to come: what is possible
    Clairvoyant,
}

impl ScalerKind {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Ours => "cleave",
            Self::Hpa => "hpa utilisation",
            Self::Keda => "keda waiting",
            Self::Kpa => "knative kpa",
            Self::Static => "static peak",
            Self::Clairvoyant => "clairvoyant",
        }
    }
}

/// What a rule came to with one start-up time.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ScaleRun {
    pub(crate) scaler: ScalerKind,
    pub(crate) start_up_s: f64,
    pub(crate) requests: u64,
    pub(crate) replica_hours: f64,
    pub(crate) cost: f64,
    pub(crate) good_share: f64,
    pub(crate) ttft_p99_s: f64,
    /// First tokens of prompts that were seen before, in part, and found nothing of it.
    pub(crate) cold_share: f64,
    pub(crate) refused: u64,
    pub(crate) replicas_max: usize,
    /// Steps that undid one of less than three start-up times before: the most in any three start-up times.
    pub(crate) reversals: usize,
    /// Replica hours saved against the static peak, and what they are of the rule that knows the future.
    pub(crate) saved: Option<f64>,
    pub(crate) of_clairvoyant: Option<f64>,
    #[serde(skip)]
    pub(crate) points: Vec<FleetPoint>,
    #[serde(skip)]
    pub(crate) load: LoadRecord,
}

#[derive(Serialize)]
struct ScaleDocument<'a> {
    version: &'static str,
    seed: u64,
    price: f64,
    runs: &'a [ScaleRun],
}

/// What is played: the plan, the bounds of the fleet and how it begins.
struct Play<'a> {
    plan: &'a Plan,
    limits: Limits,
    start: usize,
    price: f64,
}

impl Scale {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let plan = Plan::settle(self.what.clone().scenario()?)?;
        ensure!(plan.warmup.is_none(), "scale plays no warm-up: leave warmup out");
        ensure!(!self.start_up.is_empty(), "--start-up names at least one time");
        let limits = Limits { min: self.min, max: plan.settings.replicas.len() };
        ensure!(self.min <= limits.max, "--min is more than the replicas of the fleet");
        if !self.json {
            print(&header::text("simulate scale", &plan))?;
        }
        let runs = self.all(&plan, limits)?;
        if let Some(file) = &self.plot {
            std::fs::write(file, scale_plot::draw(&runs))
                .with_context(|| format!("cannot write {}", file.display()))?;
        }
        if self.json {
            let (version, seed, price) = (header::VERSION, plan.seed, self.price);
            return print(&output::json(&ScaleDocument { version, seed, price, runs: &runs })?);
        }
        print(&format!("\n{}\n", scale_table::text(&runs, self.price)))
    }

    /// Plays everything; in the order of start-up times and then of rules.
    fn all(&self, plan: &Plan, limits: Limits) -> anyhow::Result<Vec<ScaleRun>> {
        let (price, start) = (self.price, limits.max);
        let mut fleet = Play { plan, limits, start, price };
        let peak = fleet.static_peak()?;
        fleet.start = limits_start(&peak.load, limits);
        let all = ScalerKind::value_variants();
        let kinds = if self.scalers.is_empty() { all } else { &self.scalers };
        let mut jobs = Vec::new();
        for start_up in &self.start_up {
            jobs.extend(kinds.iter().map(|kind| (*kind, *start_up)));
        }
        let done = runs::parallel(&jobs, |&(kind, start_up)| fleet.one(kind, start_up, &peak));
        let mut runs = done.into_iter().collect::<anyhow::Result<Vec<_>>>()?;
        for at in 0..runs.len() {
            let bound = runs.iter().find(|it| {
                let is_same = (it.start_up_s - runs[at].start_up_s).abs() < 1e-9;
                it.scaler == ScalerKind::Clairvoyant && is_same
            });
            let of_clairvoyant = bound.map(|it| ratio(runs[at].replica_hours, it.replica_hours));
            runs[at].of_clairvoyant = of_clairvoyant;
            runs[at].saved = Some(1.0 - ratio(runs[at].replica_hours, peak.replica_hours));
        }
        Ok(runs)
    }
}

/// Every rule begins with what the first minute needs.
fn limits_start(load: &LoadRecord, limits: Limits) -> usize {
    let first: f64 = load.mu.iter().take(60).sum();
    let needed = cleave_core::domain::whole((first / load.capacity_mu_per_min.max(1e-9)).ceil());
    usize::try_from(needed).unwrap_or(usize::MAX).clamp(limits.min.max(1), limits.max)
}

impl Play<'_> {
    fn one(
        &self,
        kind: ScalerKind,
        start_up: Duration,
        peak: &ScaleRun,
    ) -> anyhow::Result<ScaleRun> {
        let limits = self.limits;
        let rule: Box<dyn ScaleRule> = match kind {
            ScalerKind::Ours => Box::new(Ours::new(limits).knowing(start_up)),
            ScalerKind::Hpa => {
                Box::new(Hpa::new(Signal::Utilisation { target: UTILISATION }, limits))
            }
            ScalerKind::Keda => {
                Box::new(Hpa::new(Signal::Waiting { per_replica: WAITING_PER_REPLICA }, limits))
            }
            ScalerKind::Kpa => Box::new(Kpa::new(limits)),
            ScalerKind::Static => {
                return Ok(ScaleRun { start_up_s: start_up.as_secs_f64(), ..peak.clone() });
            }
            ScalerKind::Clairvoyant => return self.clairvoyant(start_up, peak),
        };
        self.play(kind, rule, self.start, start_up)
    }

    /// Finds the smallest fleet that keeps nearly as many promises as the largest.
    fn static_peak(&self) -> anyhow::Result<ScaleRun> {
        let of = |count: usize| {
            let rule = Box::new(Fixed(count));
            self.play(ScalerKind::Static, rule, count, Duration::ZERO)
        };
        let mut best = of(self.limits.max)?;
        let least = best.good_share - POINTS;
        let (mut low, mut high) = (self.limits.min.max(1), self.limits.max);
        while low < high {
            let middle = usize::midpoint(low, high);
            let it = of(middle)?;
            if least <= it.good_share {
                (high, best) = (middle, it);
            } else {
                low = middle + 1;
            }
        }
        Ok(best)
    }

    /// Fills replicas as far as the promises allow.
    fn clairvoyant(&self, start_up: Duration, peak: &ScaleRun) -> anyhow::Result<ScaleRun> {
        let of = |share: f64| {
            let rule = Box::new(Clairvoyant::new(&peak.load, share, start_up, self.limits));
            self.play(ScalerKind::Clairvoyant, rule, self.start, start_up)
        };
        let (mut low, mut high) = (0, USE_SHARES.len() - 1);
        let mut best = of(USE_SHARES[high])?;
        while low < high {
            let middle = usize::midpoint(low, high);
            let it = of(USE_SHARES[middle])?;
            if peak.good_share - POINTS <= it.good_share {
                (high, best) = (middle, it);
            } else {
                low = middle + 1;
            }
        }
        Ok(best)
    }

    fn play(
        &self,
        scaler: ScalerKind,
        rule: Box<dyn ScaleRule>,
        start: usize,
        start_up: Duration,
    ) -> anyhow::Result<ScaleRun> {
        let plan = self.plan;
        let policy = plan.policies.first().copied().unwrap_or(PolicyKind::PRICED);
        let mut settings = plan.settings(policy, plan.seed);
        settings.replicas.truncate(start.max(1));
        let mut world = World::new(settings);
        world.scale_with(rule, start_up);
        world.start_measuring();
        let played = world.run(&mut plan.workload(plan.seed)?, &mut Unwatched);
        played.with_context(|| format!("{}, start-up {start_up:?}", scaler.as_str()))?;
        let measures = world.measures();
        ensure!(
            0 < measures.arrived,
            "there is nothing to play: no request of the workload is within the limits given"
        );
        let results = Results::of(&world, policy.as_str());
        let sizing = world.sizing().context("the fleet was sized")?;
        let sized = sizing.points.iter().map(|it| it.ready);
        Ok(ScaleRun {
            scaler,
            start_up_s: start_up.as_secs_f64(),
            requests: results.requests,
            replica_hours: sizing.replica_hours,
            cost: sizing.replica_hours * self.price,
            good_share: results.good_share,
            ttft_p99_s: Quantiles::of(&measures.ttft).p99,
            cold_share: ratio(real(measures.cold), real(measures.arrived)),
            refused: results.refused,
            replicas_max: sized.max().unwrap_or(0),
            reversals: reversals(&sizing.points, start_up),
            saved: None,
            of_clairvoyant: None,
            points: sizing.points,
            load: sizing.load,
        })
    }
}

/// Counts steps against one of less than three start-up times before: the most in any three start-up times.
fn reversals(points: &[FleetPoint], start_up: Duration) -> usize {
    let (near, mut steps, mut undone) = (3 * start_up, Vec::<(Moment, bool)>::new(), Vec::new());
    for pair in points.windows(2) {
        if pair[0].wanted == pair[1].wanted {
            continue;
        }
        let (at, grows) = (pair[1].at, pair[0].wanted < pair[1].wanted);
        if steps.last().is_some_and(|it| it.1 != grows && at.since(it.0) < near) {
            undone.push(at);
        }
        steps.push((at, grows));
    }
    let within =
        |from: usize| undone[from..].iter().filter(|it| it.since(undone[from]) < near).count();
    (0..undone.len()).map(within).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(steps: &[(u64, usize)]) -> Vec<FleetPoint> {
        let point = |&(at, wanted): &(u64, usize)| FleetPoint {
            at: Moment::ZERO + Duration::from_secs(at),
            wanted,
            ..FleetPoint::default()
        };
        steps.iter().map(point).collect()
    }

    #[test]
    fn a_step_that_undoes_a_recent_one_is_a_reversal() {
        let start_up = Duration::from_secs(30);
        assert_eq!(reversals(&points(&[(0, 2), (10, 4), (100, 3), (190, 2)]), start_up), 0);
        assert_eq!(
            reversals(&points(&[(0, 2), (10, 4), (99, 3), (120, 4), (500, 3)]), start_up),
            2
        );
        assert_eq!(
            reversals(&points(&[(0, 2), (10, 4), (200, 3), (220, 4), (400, 3)]), start_up),
            1
        );
    }
}
