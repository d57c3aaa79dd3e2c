//! What the operator may set about deciding; valid by construction.

use std::time::Duration;

use crate::domain::RouterId;
use crate::fleet::BreakerSettings;
use crate::policy::PolicyKind;
use crate::queue::{self, Classes, GateSettings};

use super::placement::SubsetSettings;
use super::poison::QuarantineSettings;

/// Everything one pool's brain is told at its start.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub policy: PolicyKind,
    pub retries: RetrySettings,
    pub breaker: BreakerSettings,
    pub sessions: SessionSettings,
    pub subsets: SubsetSettings,
    pub watch: WatchSettings,
    pub quarantine: QuarantineSettings,
    pub line: LineSettings,
    /// This router among others that it talks to; `None` for one that is alone.
    pub router: Option<RouterId>,
    /// Whether what work takes is learned from what streams show.
    pub learns_costs: bool,
    /// Where chance starts; two brains with one seed and the same events decide alike.
    pub seed: u64,
}

/// How often a request may go elsewhere before its first byte.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RetrySettings {
    /// Tries of one request in all, the first included; at least 1.
    pub tries_max: u32,
    /// Retries allowed per request that arrives, in the long run.
    pub share: f64,
    /// Retries allowed in a burst on top of that.
    pub reserve: u32,
}

/// What is remembered of sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionSettings {
    pub bytes_max: usize,
    pub ttl: Duration,
}

/// How replicas are watched beside their health checks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchSettings {
    /// How long nothing may have come from an idle replica before it is asked for one token.
    pub idle: Duration,
}

impl Default for WatchSettings {
    fn default() -> Self {
        Self { idle: Duration::from_secs(30) }
    }
}

/// Which requests wait, where and for how long.
#[derive(Clone, Debug, PartialEq)]
pub struct LineSettings {
    /// Whether requests wait here while every replica is past its knee.
    pub holds: bool,
    /// Whether new sessions wait while the fleet's KV is full.
    pub gates: bool,
    pub limits: queue::QueueLimits,
    pub gate: GateSettings,
    pub classes: Classes,
}

impl LineSettings {
    /// No request waits here; engines have their own lines.
    pub fn off() -> Self {
        Self { holds: false, gates: false, ..Self::default() }
    }
}

impl Default for LineSettings {
    fn default() -> Self {
        Self {
            holds: true,
            // It looks at KV only and so lets new sessions wait while compute is idle: off unless set.
            gates: false,
            limits: queue::QueueLimits::default(),
            gate: GateSettings::default(),
            classes: Classes::default(),
        }
    }
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self { tries_max: 3, share: 0.2, reserve: 100 }
    }
}

impl Default for SessionSettings {
    fn default() -> Self {
        Self { bytes_max: 16 << 20, ttl: Duration::from_secs(60 * 60) }
    }
}

impl Settings {
    /// Says which parts are on.
    pub fn summary(&self) -> String {
        let word = |is_on: bool| if is_on { "on" } else { "off" };
        format!(
            "policy {}, line {}, gate {}, subsets {}, quarantine {}, tries {}",
            self.policy.as_str(),
            word(self.line.holds),
            word(self.line.gates),
            word(self.subsets != SubsetSettings::undivided()),
            word(self.quarantine.enabled),
            self.retries.tries_max,
        )
    }

    /// A policy alone: no request waits at the router, as at most routers.
    pub fn without_line(policy: PolicyKind) -> Self {
        Self { policy, line: LineSettings::off(), ..Self::default() }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            policy: PolicyKind::PRICED,
            retries: RetrySettings::default(),
            breaker: BreakerSettings::default(),
            sessions: SessionSettings::default(),
            subsets: SubsetSettings::default(),
            watch: WatchSettings::default(),
            quarantine: QuarantineSettings::default(),
            line: LineSettings::default(),
            router: None,
            learns_costs: true,
            seed: 0,
        }
    }
}
