//! What will be simulated, settled: every default filled in, every number checked, every file's kind
//! known. From here on nothing can be misspelt.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use cleave_core::brain;
use cleave_core::cost::CostBook;
use cleave_core::policy::PolicyKind;
use cleave_core::queue::{Limits, Work};
use cleave_sim::engine;
use cleave_sim::measure::Slo;
use cleave_sim::traces::{
    Class, ClassShare, Format, Loop, Mix, Replay, Scale, Starts, Tenant, TraceError, Workload,
    format_of, presets,
};
use cleave_sim::world::{
    Belief, Exchange, Fault, FaultKind, ReplicaSettings, Timeouts, View, WorldSettings,
};

use super::scenario::{
    ClassName, ContractLine, FaultLine, Kind, LoopKind, ReplicaClass, RouterSection, Scenario,
    Span, WorkloadSection,
};
use super::{load, routers};
use crate::hardware;

/// One comparison: policies and seeds over one workload on one fleet.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) policies: Vec<PolicyKind>,
    pub(crate) seed: u64,
    pub(crate) seeds: u64,
    pub(crate) settings: WorldSettings,
    pub(crate) source: Source,
    pub(crate) mix: Mix,
    /// The class whose requests alone are played.
    pub(crate) only: Option<Class>,
    pub(crate) warmup: Option<PathBuf>,
    pub(crate) replay: Replay,
    pub(crate) classes: Vec<ReplicaClass>,
}

/// Where the requests come from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    Trace {
        file: PathBuf,
        format: Option<Format>,
    },
    /// What a router recorded, in several files.
    Recordings {
        files: Vec<PathBuf>,
    },
    Composed {
        tenants: PathBuf,
        content: PathBuf,
    },
    Synthetic {
        preset: String,
    },
}

impl Plan {
    pub(crate) fn settle(mut scenario: Scenario) -> anyhow::Result<Self> {
        let seeds = scenario.seeds.unwrap_or(1);
        ensure!(0 < seeds, "seeds must be 1 or more");
        let slo = match &scenario.slo {
            None => Slo::default(),
            Some(text) => text.parse().context("slo")?,
        };
        let seed = scenario.seed.unwrap_or(0);
        let source = source(&scenario.workload)?;
        if let Some(warmup) = &scenario.workload.warmup {
            format_of(warmup).context("the warm-up")?;
        }
        let replay = replay(&scenario.workload, &source, seed)?;
        let book = scenario.costs.as_deref().map(hardware::read_costs).transpose()?;
        let book = book.unwrap_or_default();
        let believed = scenario.believe.as_deref().map(|it| hardware::times_of(it, &book));
        let settings = WorldSettings {
            replicas: fleet(&mut scenario.fleet, &book)?,
            routers: scenario.routers.count.unwrap_or(1),
            brain: routers::settle(&scenario, slo)?,
            contracts: scenario.contract.iter().map(contract).collect(),
            view: view(scenario.routers)?,
            exchange: exchange(scenario.routers),
            belief: Belief { steps: believed.transpose()?, ..belief(scenario.routers)? },
            non_streaming: scenario.workload.non_streaming.unwrap_or(0.0),
            timeouts: timeouts(scenario.routers),
            faults: scenario.fault.iter().map(fault).collect::<anyhow::Result<_>>()?,
            calm: false,
            slo,
            seed,
            checks: false,
        };
        ensure!(0 < settings.routers, "there must be a router");
        let is_share = (0.0..=1.0).contains(&settings.non_streaming);
        ensure!(is_share, "non_streaming is a share, from 0 to 1");
        settings.check()?;
        let mut plan = Self {
            policies: policies(&scenario, settings.brain.policy)?,
            seed,
            seeds,
            settings,
            mix: mix(&scenario.workload, &source)?,
            only: scenario.workload.only.as_ref().map(class).transpose()?,
            source,
            warmup: scenario.workload.warmup.clone(),
            replay,
            classes: scenario.fleet,
        };
        load::settle(&mut plan, &scenario.workload)?;
        let closed = plan.replay.pace == Loop::Closed;
        ensure!(plan.only.is_none() || !closed, "only is for open loops");
        Ok(plan)
    }

    /// Every seed to be run.
    pub(crate) fn all_seeds(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.seed;
        (0..self.seeds).map(move |number| first.wrapping_add(number))
    }

    /// The world's settings for one policy and seed.
    pub(crate) fn settings(&self, policy: PolicyKind, seed: u64) -> WorldSettings {
        let brain = brain::Settings { policy, ..self.settings.brain.clone() };
        WorldSettings { brain, seed, ..self.settings.clone() }
    }

    /// Opens the workload for one run.
    pub(crate) fn workload(&self, seed: u64) -> Result<Workload, TraceError> {
        let workload = self.workload_as(&Replay { seed, ..self.replay.clone() })?;
        Ok(match self.only {
            Some(class) => workload.only(class),
            None => workload,
        })
    }

    /// Opens the workload to be played in a given way.
    pub(crate) fn workload_as(&self, replay: &Replay) -> Result<Workload, TraceError> {
        let workload = match &self.source {
            Source::Trace { file, format } => Workload::open(file, *format, replay)?,
            Source::Recordings { files } => Workload::of_recordings(files, replay)?,
            Source::Composed { tenants, content } => {
                // The shares of classes are shares of these tenants.
                return Workload::compose(tenants, content, &self.mix.classes, replay);
            }
            Source::Synthetic { preset } => {
                let synthetic = presets::named(preset).expect("checked when the plan was made");
                Workload::synthetic(&synthetic, replay)
            }
        };
        Ok(workload.labelled(replay.seed, self.mix.clone()))
    }

    /// Opens what is played first, unmeasured.
    pub(crate) fn warmup(&self, seed: u64) -> Result<Option<Workload>, TraceError> {
        let replay = Replay { seed, ..self.replay.clone() };
        self.warmup.as_ref().map(|file| Workload::open(file, None, &replay)).transpose()
    }
}

fn contract(it: &ContractLine) -> (Tenant, Limits) {
    let limits = Limits {
        work_per_min: it.mu_per_min.map(Work::from_mu),
        tokens_per_min: it.tokens_per_min,
        requests_per_min: it.requests_per_min,
        burst: it.burst.map_or(Duration::ZERO, |Span(time)| time),
        is_hard: false,
    };
    (Tenant(it.tenant), limits)
}

/// Lists the policies to compare; a file of the router brings its own, `configured`.
fn policies(scenario: &Scenario, configured: PolicyKind) -> anyhow::Result<Vec<PolicyKind>> {
    match scenario.policies.as_slice() {
        [] if scenario.config.is_some() => Ok(vec![configured]),
        [] => Ok(vec![PolicyKind::PRICED, PolicyKind::SESSION, PolicyKind::ROUND_ROBIN]),
        [all] if all == "all" => Ok(cleave_sim::policies::ALL.to_vec()),
        names => {
            let mut policies = Vec::new();
            for name in names {
                let policy = PolicyKind::among(cleave_sim::policies::ALL, name.trim())
                    .with_context(|| format!("{name:?}"))?;
                ensure!(!policies.contains(&policy), "{name} is named twice");
                policies.push(policy);
            }
            Ok(policies)
        }
    }
}

fn source(it: &WorkloadSection) -> anyhow::Result<Source> {
    if let Some(preset) = &it.synthetic {
        ensure!(it.traces.is_empty(), "a workload is recorded or generated, not both");
        ensure!(!it.compose, "--compose takes two traces: when clients send (ServeGen), and what");
        if presets::named(preset).is_none() {
            let names: Vec<_> = presets::names().collect();
            bail!("no preset is called {preset:?}; there are: {}", names.join(", "));
        }
        return Ok(Source::Synthetic { preset: preset.clone() });
    }
    match (it.compose, it.traces.as_slice()) {
        (_, []) => {
            bail!("nothing to play: give --trace FILE, --synthetic PRESET or --scenario FILE")
        }
        (false, [file]) => {
            let format = it.format.as_deref().map(str::parse).transpose()?;
            Ok(Source::Trace { file: file.clone(), format })
        }
        (true, [tenants, content]) => {
            Ok(Source::Composed { tenants: tenants.clone(), content: content.clone() })
        }
        (false, files) if are_recordings(files)? => {
            Ok(Source::Recordings { files: files.to_vec() })
        }
        (false, _) => bail!("several traces are played together with --compose"),
        (true, _) => bail!("--compose takes two traces: when clients send (ServeGen), and what"),
    }
}

fn are_recordings(files: &[PathBuf]) -> anyhow::Result<bool> {
    for file in files {
        if format_of(file)? != Some(Format::Recording) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn class(name: &ClassName) -> anyhow::Result<Class> {
    match name {
        ClassName::Number(number) => Ok(Class(*number)),
        ClassName::Name(name) => Class::named(name).with_context(|| {
            format!("no class is called {name:?}; there are interactive, standard and batch")
        }),
    }
}

fn mix(it: &WorkloadSection, source: &Source) -> anyhow::Result<Mix> {
    let is_share = |share: f64| share.is_finite() && 0.0 < share;
    let classes = it.class.iter().map(|line| {
        ensure!(is_share(line.share), "the share of a class must be above 0");
        let class = class(&line.class)?;
        let deadline = line.deadline.map(|Span(time)| time);
        Ok(ClassShare { class, share: line.share, deadline })
    });
    let tenants = it.tenant.iter().map(|line| {
        ensure!(is_share(line.share), "the share of a tenant must be above 0");
        Ok((Tenant(line.tenant), line.share))
    });
    let composed = matches!(source, Source::Composed { .. });
    ensure!(
        it.tenant.is_empty() || !composed,
        "a composed workload has the tenants of its first trace; leave [[workload.tenant]] out"
    );
    Ok(Mix {
        classes: classes.collect::<anyhow::Result<_>>()?,
        tenants: tenants.collect::<anyhow::Result<_>>()?,
    })
}

fn replay(it: &WorkloadSection, source: &Source, seed: u64) -> anyhow::Result<Replay> {
    let recorded_sessions = match source {
        Source::Trace { file, format } => is_sessions(file, *format)?,
        Source::Recordings { .. } | Source::Composed { .. } | Source::Synthetic { .. } => false,
    };
    let base = Replay::default();
    let starts = match (it.sessions_per_second, it.sessions_at_once) {
        (_, Some(sessions)) => Starts::Concurrent { sessions },
        (Some(per_second), None) => Starts::Poisson { per_second },
        (None, None) => base.starts,
    };
    let pace = match it.r#loop {
        Some(LoopKind::Closed) => Loop::Closed,
        None if recorded_sessions => Loop::Closed,
        Some(LoopKind::Open) | None => Loop::Open,
    };
    let time = |span: Option<Span>, or: Duration| span.map_or(or, |Span(time)| time);
    Ok(Replay {
        seed,
        pace,
        rate_scale: Scale::new(it.rate_scale.unwrap_or(1.0))?,
        from: time(it.from, base.from),
        until: time(it.until, base.until),
        requests_max: it.requests_max.unwrap_or(base.requests_max),
        prompt_tokens_max: it.prompt_tokens_max.unwrap_or(base.prompt_tokens_max),
        think_max: time(it.think_max, base.think_max),
        starts,
        share_tools: it.share_tools,
    })
}

fn is_sessions(file: &Path, format: Option<Format>) -> anyhow::Result<bool> {
    let format = match format {
        Some(format) => Some(format),
        None => format_of(file)?,
    };
    Ok(matches!(format, Some(Format::Sessions | Format::LmCache)))
}

fn fleet(classes: &mut [ReplicaClass], book: &CostBook) -> anyhow::Result<Vec<ReplicaSettings>> {
    let mut replicas = Vec::new();
    let block_tokens = classes.first().map_or(0, |it| it.block_tokens);
    for it in classes {
        ensure!(0 < it.block_tokens, "block_tokens must be 1 or more");
        ensure!(it.block_tokens == block_tokens, "all replicas must have one block_tokens");
        ensure!(it.block_tokens <= it.kv_tokens, "kv_tokens must hold a block at least");
        ensure!(0 < it.batched_tokens, "batched_tokens must be 1 or more");
        ensure!(0 < it.max_seqs, "max_seqs must be 1 or more");
        ensure!(it.speed.is_finite() && 0.0 < it.speed, "speed must be above 0");
        ensure!(it.weight.is_finite() && 0.0 <= it.weight, "weight must be 0 or more");
        let mut times =
            hardware::times_of(it.hardware.get_or_insert_with(|| hardware::usual(book)), book)?;
        times.floor_ms /= it.speed;
        times.new_token_ms /= it.speed;
        times.attention_ms /= it.speed;
        times.context_ms /= it.speed;
        let engine = engine::EngineSettings {
            times,
            kv_tokens: it.kv_tokens,
            block_tokens: it.block_tokens,
            batched_tokens_max: it.batched_tokens,
            seqs_max: it.max_seqs,
        };
        let one = ReplicaSettings { engine, weight: it.weight };
        replicas.extend(std::iter::repeat_n(one, it.replicas));
    }
    ensure!(!replicas.is_empty(), "the fleet has no replicas");
    Ok(replicas)
}

fn view(it: RouterSection) -> anyhow::Result<View> {
    let base = View::default();
    let interval = it.scrape_interval.map_or(base.interval, |Span(time)| time);
    ensure!(!interval.is_zero(), "scrape_interval must be above 0");
    Ok(View { interval, delay: it.scrape_delay.map_or(base.delay, |Span(time)| time) })
}

fn belief(it: RouterSection) -> anyhow::Result<Belief> {
    let base = Belief::default();
    let coefficients = it.coefficients_off.unwrap_or(base.coefficients);
    let tokens = it.tokens_off.unwrap_or(base.tokens);
    let factors = coefficients.iter().chain([&tokens]);
    let sound = factors.into_iter().all(|it| it.is_finite() && 0.0 < *it);
    ensure!(sound, "coefficients_off and tokens_off are factors above 0");
    Ok(Belief { coefficients, tokens, ..base })
}

fn exchange(it: RouterSection) -> Option<Exchange> {
    it.exchange_delay.map(|Span(delay)| Exchange { delay, loss: 0.0, older: 0 })
}

fn timeouts(it: RouterSection) -> Timeouts {
    let base = Timeouts::default();
    Timeouts {
        first_byte: it.first_byte_timeout.map_or(base.first_byte, |Span(time)| time),
        idle: it.idle_timeout.map_or(base.idle, |Span(time)| time),
        ..base
    }
}

fn fault(it: &FaultLine) -> anyhow::Result<Fault> {
    let replica = || it.replica.context("a fault of this kind names its replica: replica = 0");
    let kind = match it.kind {
        Kind::Crash => FaultKind::Crash { replica: replica()? },
        Kind::Hang => FaultKind::Hang { replica: replica()? },
        Kind::Slow => {
            let factor = it.factor.context("a slow replica has a factor: factor = 4.0")?;
            ensure!(factor.is_finite() && 0.0 < factor, "a slow replica's factor is above 0");
            FaultKind::Slow { replica: replica()?, factor }
        }
        Kind::Freeze => FaultKind::Freeze { replica: it.replica },
        Kind::Drain => FaultKind::Drain { replica: replica()? },
        Kind::Join => FaultKind::Join,
        Kind::RestartRouter => FaultKind::RestartRouter { router: it.router.unwrap_or(0) },
        Kind::Apart => FaultKind::Apart { router: it.router.unwrap_or(0) },
        Kind::Poison => {
            let tenant = it.tenant.context("a poison names its tenant: tenant = 0")?;
            FaultKind::Poison { tenant: Tenant(tenant), hangs: it.hangs }
        }
    };
    Ok(Fault { at: it.at.0, lasts: it.lasts.map(|Span(time)| time), kind })
}
