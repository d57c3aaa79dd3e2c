//! What a world is made of; valid by construction, except for faults that name what is not there,
//! which [`WorldSettings::check`] finds.

use std::time::Duration;

use cleave_core::brain;
use cleave_core::cost::StepTimes;
use cleave_core::domain::Moment;
use cleave_core::queue::Limits;

use crate::engine;
use crate::measure::{Others, Slo};
use crate::traces::Tenant;

/// One replica as the world starts it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReplicaSettings {
    pub engine: engine::EngineSettings,
    /// Its share of sessions, for policies that look at weights.
    pub weight: f64,
}

/// A fleet, its routers and what befalls them.
#[derive(Clone, Debug, PartialEq)]
pub struct WorldSettings {
    pub replicas: Vec<ReplicaSettings>,
    pub routers: usize,
    /// What every router runs; its seed is drawn from the world's.
    pub brain: brain::Settings,
    /// What tenants may use; those not named may use what they like.
    pub contracts: Vec<(Tenant, Limits)>,
    pub view: View,
    /// How routers tell each other what they do; none when they do not.
    pub exchange: Option<Exchange>,
    pub belief: Belief,
    /// The share of requests whose answer comes whole at its end.
    pub non_streaming: f64,
    pub timeouts: Timeouts,
    pub faults: Vec<Fault>,
    /// Whether the faults stay away, although others are counted as if they came: the calm half of a
    /// pair of runs.
    pub calm: bool,
    pub slo: Slo,
    pub seed: u64,
    /// Whether to check every invariant after everything that happens.
    pub checks: bool,
}

/// How routers learn what engines say of themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// Time between two readings of a replica's metrics.
    pub interval: Duration,
    /// Time from a reading to its arrival.
    pub delay: Duration,
}

/// How several routers hear of each other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exchange {
    /// Time from what happens at one router until others hear of it.
    pub delay: Duration,
    /// The share of frames that are lost on the way.
    pub loss: f64,
    /// This many routers, the first, speak the version of the protocol before this one until they are started again: a
    /// rolling upgrade.
    pub older: usize,
}

/// What routers take for true, as factors of what is: how much a mistake costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Belief {
    /// Of the four coefficients of a step: floor, new token, attention, context.
    pub coefficients: [f64; 4],
    /// What all replicas are taken to have, in place of what each has.
    pub steps: Option<StepTimes>,
    /// Of the tokens of a prompt, as when they are estimated from bytes.
    pub tokens: f64,
}

impl Belief {
    /// Shows step times as routers believe them.
    pub(super) fn of_steps(&self, times: StepTimes) -> StepTimes {
        let [floor, new_token, attention, context] = self.coefficients;
        let times = self.steps.unwrap_or(times);
        StepTimes {
            floor_ms: times.floor_ms * floor,
            new_token_ms: times.new_token_ms * new_token,
            attention_ms: times.attention_ms * attention,
            context_ms: times.context_ms * context,
        }
    }

    /// Shows a number of tokens as routers believe it; never none where there is one.
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from float to int, `as` saturates, and the factor is not negative"
    )]
    pub(super) fn of_tokens(&self, tokens: u32) -> u32 {
        (f64::from(tokens) * self.tokens).round().max(f64::from(tokens.min(1))) as u32
    }
}

impl Default for Belief {
    fn default() -> Self {
        Self { coefficients: [1.0; 4], steps: None, tokens: 1.0 }
    }
}

/// How long routers wait, and how often they look after their replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    pub first_byte: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
    pub probe_interval: Duration,
}

/// Something that goes wrong, or is done to the fleet, some time after measuring began.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fault {
    pub at: Duration,
    /// How long it lasts; for ever where nothing is said.
    pub lasts: Option<Duration>,
    pub kind: FaultKind,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FaultKind {
    /// The process is gone and its cache with it; it comes back cold.
    Crash { replica: usize },
    /// Connections stand, nothing moves.
    Hang { replica: usize },
    /// Every step takes `factor` times as long.
    Slow { replica: usize, factor: f64 },
    /// Its metrics are read as before, but no longer change; of all replicas when none is named.
    Freeze { replica: Option<usize> },
    /// The operator takes it away; it finishes what it has.
    Drain { replica: usize },
    /// A replica like the first one is added, with a cold cache.
    Join,
    /// A router forgets everything, and what it was relaying is cut.
    RestartRouter { router: usize },
    /// A router cannot reach the others, nor they it.
    Apart { router: usize },
    /// All connections of a router break; what was under way on them is lost, and others are made.
    HangUp { router: usize },
    /// Every request of this tenant crashes, or hangs, the replica it reaches.
    Poison { tenant: Tenant, hangs: bool },
    /// It says of itself, and of what requests came to, what makes no sense.
    Lie { replica: usize },
    /// All tenants are taken out of the configuration, and are back in it afterwards.
    Reload,
}

impl FaultKind {
    /// Tells a misfortune from what an operator does on purpose.
    pub(super) fn is_harm(self) -> bool {
        !matches!(self, Self::Join | Self::Drain { .. } | Self::Reload)
    }

    /// The replica it names, if it names one.
    fn replica(self) -> Option<usize> {
        match self {
            Self::Crash { replica }
            | Self::Hang { replica }
            | Self::Slow { replica, .. }
            | Self::Drain { replica }
            | Self::Lie { replica } => Some(replica),
            Self::Freeze { replica } => replica,
            Self::Join
            | Self::RestartRouter { .. }
            | Self::Apart { .. }
            | Self::HangUp { .. }
            | Self::Poison { .. }
            | Self::Reload => None,
        }
    }
}

/// A fault names something that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Absent {
    #[error("a fault names replica {replica}, but there are only {count} (counted from 0)")]
    Replica { replica: usize, count: usize },
    #[error("a fault names router {router}, but there are only {count} (counted from 0)")]
    Router { router: usize, count: usize },
}

impl WorldSettings {
    /// Says which requests are to be counted apart when measuring starts `now`; none where nothing
    /// goes wrong.
    pub(super) fn others(&self, now: Moment) -> Option<Others> {
        let harm = self.faults.iter().filter(|it| it.kind.is_harm());
        let culprit = self.faults.iter().find_map(|it| match it.kind {
            FaultKind::Poison { tenant, .. } => Some(tenant),
            FaultKind::Crash { .. }
            | FaultKind::Hang { .. }
            | FaultKind::Slow { .. }
            | FaultKind::Freeze { .. }
            | FaultKind::Drain { .. }
            | FaultKind::Join
            | FaultKind::Lie { .. }
            | FaultKind::Reload
            | FaultKind::RestartRouter { .. }
            | FaultKind::Apart { .. }
            | FaultKind::HangUp { .. } => None,
        });
        harm.map(|it| it.at).min().map(|at| Others { from: now + at, culprit })
    }

    /// Says whether every fault names a replica and a router that are there.
    pub fn check(&self) -> Result<(), Absent> {
        let joining = self.faults.iter().filter(|it| it.kind == FaultKind::Join).count();
        let count = self.replicas.len() + joining;
        for fault in &self.faults {
            if let Some(replica) = fault.kind.replica().filter(|it| count <= *it) {
                return Err(Absent::Replica { replica, count });
            }
            if let FaultKind::RestartRouter { router }
            | FaultKind::Apart { router }
            | FaultKind::HangUp { router } = fault.kind
                && self.routers <= router
            {
                return Err(Absent::Router { router, count: self.routers });
            }
        }
        Ok(())
    }
}

impl Default for View {
    fn default() -> Self {
        Self { interval: Duration::from_millis(100), delay: Duration::from_millis(20) }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            first_byte: Duration::from_secs(10 * 60),
            idle: Duration::from_secs(5 * 60),
            probe_interval: Duration::from_secs(5),
        }
    }
}

impl Default for ReplicaSettings {
    fn default() -> Self {
        let engine =
            engine::EngineSettings { block_tokens: 64, ..engine::EngineSettings::default() };
        Self { engine, weight: 1.0 }
    }
}

impl Default for WorldSettings {
    fn default() -> Self {
        Self {
            replicas: vec![ReplicaSettings::default(); 8],
            routers: 1,
            brain: brain::Settings::default(),
            contracts: Vec::new(),
            view: View::default(),
            exchange: None,
            belief: Belief::default(),
            non_streaming: 0.0,
            timeouts: Timeouts::default(),
            faults: Vec::new(),
            calm: false,
            slo: Slo::default(),
            seed: 0,
            checks: false,
        }
    }
}
