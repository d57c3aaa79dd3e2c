//! The fleet that is played: as it was recorded, with what was asked for changed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use cleave_core::brain;
use cleave_core::cost::{CostBook, StepTimes};
use cleave_core::domain::{Promise, span_of_ms};
use cleave_core::policy::PolicyKind;
use cleave_core::queue::{Class, Classes, Weight};
use cleave_core::recording::{PoolLine, ReplicaLine};
use cleave_sim::engine::EngineSettings;
use cleave_sim::measure::Slo;
use cleave_sim::world::{ReplicaSettings, WorldSettings};

use super::ReplicaCount;
use super::past::Past;
use crate::hardware;
use crate::simulate::routers;

/// How the fleet would be.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct ReplayFleetArgs {
    /// Replicas, or how many more or fewer: 8, +2 or -2
    #[arg(long, value_name = "COUNT", allow_hyphen_values = true)]
    replicas: Option<ReplicaCount>,
    /// Other hardware for all of them: llama-8b or llama-70b, or a class of --costs
    #[arg(long, value_name = "NAME")]
    hardware: Option<String>,
    /// A file of coefficients, as `cleave calibrate` writes it, for --hardware
    #[arg(long, value_name = "FILE")]
    costs: Option<PathBuf>,
    /// How many times as fast as they were
    #[arg(long, value_name = "FACTOR")]
    speed: Option<f64>,
    /// Room in a replica's KV cache [default: what its engine said, or 524288]
    #[arg(long, value_name = "TOKENS")]
    kv_tokens: Option<u32>,
    /// Tokens in a block of the engines' KV cache, as it was too [default: 16]
    #[arg(long, value_name = "TOKENS", default_value_t = 16)]
    block_tokens: u32,
    /// Tokens computed in one step at most, as it was too [default: 8192]
    #[arg(long, value_name = "TOKENS", default_value_t = 8192)]
    batched_tokens: u32,
    /// Sequences running at once at most, as it was too [default: 256]
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    max_seqs: u32,
}

/// What is changed, settled.
#[derive(Debug)]
pub(super) struct FleetChange {
    replicas: Option<ReplicaCount>,
    times: Option<StepTimes>,
    speed: Option<f64>,
    kv_tokens: Option<u32>,
    /// What the engines were too: routers do not know it.
    engine: EngineSettings,
}

impl FleetChange {
    pub(super) fn read(args: ReplayFleetArgs) -> anyhow::Result<Self> {
        let book = args.costs.as_deref().map(hardware::read_costs).transpose()?;
        let book: CostBook = book.unwrap_or_default();
        let hardware =
            args.hardware.or_else(|| args.costs.is_some().then(|| hardware::usual(&book)));
        let times = hardware.map(|it| hardware::times_of(&it, &book)).transpose()?;
        let is_factor = |it: &f64| it.is_finite() && 0.0 < *it;
        ensure!(args.speed.as_ref().is_none_or(is_factor), "--speed must be above 0");
        ensure!(0 < args.block_tokens, "--block-tokens must be 1 or more");
        ensure!(0 < args.batched_tokens, "--batched-tokens must be 1 or more");
        ensure!(0 < args.max_seqs, "--max-seqs must be 1 or more");
        let engine = EngineSettings {
            block_tokens: args.block_tokens,
            batched_tokens_max: args.batched_tokens,
            seqs_max: args.max_seqs,
            ..EngineSettings::default()
        };
        let (replicas, speed, kv_tokens) = (args.replicas, args.speed, args.kv_tokens);
        Ok(Self { replicas, times, speed, kv_tokens, engine })
    }

    pub(super) fn is_some(&self) -> bool {
        self.replicas.is_some()
            || self.times.is_some()
            || self.speed.is_some()
            || self.kv_tokens.is_some()
    }

    /// Changes the world as asked.
    pub(super) fn apply(
        &self,
        was: &WorldSettings,
        policy: PolicyKind,
        slo: Option<Slo>,
    ) -> anyhow::Result<WorldSettings> {
        let mut settings = was.clone();
        settings.brain.policy = policy;
        if let Some(slo) = slo {
            let promise = Promise { first_token: Some(slo.ttft), token_gap: Some(slo.tpot) };
            settings.brain.line.classes = settings.brain.line.classes.promising(promise);
        }
        let there = settings.replicas.len();
        let count = match self.replicas {
            None => there,
            Some(ReplicaCount::Is(count)) => count,
            Some(ReplicaCount::More(more)) => there.saturating_add(more),
            Some(ReplicaCount::Fewer(fewer)) => there.saturating_sub(fewer),
        };
        ensure!(0 < count, "no replica would be left of {there}");
        ensure!(count <= 4096, "{count} replicas are more than can be played");
        // New ones are like those that are there, in the same mixture.
        settings.replicas = (0..count).map(|at| was.replicas[at % there]).collect();
        for replica in &mut settings.replicas {
            let engine = &mut replica.engine;
            engine.times =
                scaled(self.times.unwrap_or(engine.times), self.speed.map_or(1.0, |it| 1.0 / it));
            engine.kv_tokens = self.kv_tokens.unwrap_or(engine.kv_tokens);
            ensure!(
                engine.block_tokens <= engine.kv_tokens,
                "--kv-tokens must hold a block at least"
            );
        }
        Ok(settings)
    }
}

/// Makes the fleet as it was.
pub(super) fn as_it_was(
    past: &Past,
    config: Option<&Path>,
    change: &FleetChange,
    policy: PolicyKind,
    seed: u64,
) -> anyhow::Result<WorldSettings> {
    let pool = &past.pool;
    let mut brain = match config {
        Some(file) => routers::of_file(file, Some(&pool.name))?,
        None => brain_of(pool)?,
    };
    brain.policy = policy;
    let is_there = |it: &&ReplicaLine| !matches!(it.state.as_str(), "leaving" | "drained" | "out");
    let mut there: Vec<&ReplicaLine> = pool.replicas.iter().filter(is_there).collect();
    if there.is_empty() {
        there = pool.replicas.iter().collect();
    }
    ensure!(!there.is_empty(), "the recording names no replicas of pool {:?}", pool.name);
    let replicas = there.into_iter().map(|it| replica_of(pool, it, change));
    // What the way to the client takes is not the engine's to spend.
    let ttft = past.slo.ttft.saturating_sub(span_of_ms(past.overhead_ms));
    Ok(WorldSettings {
        replicas: replicas.collect::<anyhow::Result<_>>()?,
        brain,
        non_streaming: past.non_streaming,
        slo: Slo { ttft, ..past.slo },
        seed,
        ..WorldSettings::default()
    })
}

fn replica_of(
    pool: &PoolLine,
    it: &ReplicaLine,
    change: &FleetChange,
) -> anyhow::Result<ReplicaSettings> {
    let cost = pool.costs.iter().find(|cost| cost.class == it.class);
    let cost = cost
        .with_context(|| format!("the recording does not say what work takes on {:?}", it.class))?;
    let StepTimes { floor_ms, new_token_ms, attention_ms, context_ms } = cost.step;
    let is_sound = [floor_ms, new_token_ms, attention_ms, context_ms]
        .iter()
        .all(|it| it.is_finite() && (0.0..1e6).contains(it));
    ensure!(is_sound && 0.0 < floor_ms, "the recorded costs of {:?} are no times", it.class);
    let pace = if it.pace.is_finite() { it.pace.clamp(0.05, 20.0) } else { 1.0 };
    let told = it.kv_tokens.and_then(|it| u32::try_from(it).ok());
    let kv_tokens = told.unwrap_or(change.engine.kv_tokens).max(change.engine.block_tokens);
    let engine = EngineSettings { times: scaled(cost.step, pace), kv_tokens, ..change.engine };
    let is_weight = it.weight.is_finite() && 0.0 <= it.weight;
    Ok(ReplicaSettings { engine, weight: if is_weight { it.weight } else { 1.0 } })
}

fn scaled(times: StepTimes, factor: f64) -> StepTimes {
    StepTimes {
        floor_ms: times.floor_ms * factor,
        new_token_ms: times.new_token_ms * factor,
        attention_ms: times.attention_ms * factor,
        context_ms: times.context_ms * factor,
    }
}

/// Makes what the router ran, as far as it was recorded; the rest is as by default.
fn brain_of(pool: &PoolLine) -> anyhow::Result<brain::Settings> {
    let mut brain = brain::Settings { learns_costs: pool.learns, ..brain::Settings::default() };
    brain.line.holds = pool.holds;
    brain.line.gates = pool.gates;
    let classes = pool.classes.iter().map(|it| {
        let weight = Weight::new(it.weight).context("a recorded class has no weight")?;
        let promise = Promise {
            first_token: it.first_token_ms.map(span_of_ms),
            token_gap: it.token_gap_ms.map(span_of_ms),
        };
        Ok(Class { name: it.name.clone(), weight, promise, wait_max: span_of_ms(it.wait_max_ms) })
    });
    let classes = classes.collect::<anyhow::Result<Vec<Class>>>()?;
    if let Some(default) = pool.classes.iter().find(|it| it.is_default) {
        brain.line.classes = Classes::new(classes, &default.name)?;
    }
    Ok(brain)
}
