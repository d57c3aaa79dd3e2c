//! How a workload is to be played: seed, loop, speed, which part of it. Valid by construction; what
//! does not concern a kind of trace is ignored by it, and said so here.

use std::time::Duration;

use super::lines::TraceError;

/// A factor above zero.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale(f64);

impl Scale {
    pub const ONE: Self = Self(1.0);

    pub fn new(value: f64) -> Result<Self, TraceError> {
        let ok = value.is_finite() && 0.0 < value;
        ok.then_some(Self(value)).ok_or(TraceError::NotPositive { what: "a rate scale", value })
    }

    pub fn get(self) -> f64 {
        self.0
    }
}

/// What decides when the next request of a session comes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Loop {
    /// The recorded moments, whatever the replicas do. Sessions recorded without moments have no
    /// open loop and are played closed.
    #[default]
    Open,
    /// The end of what it waits for, and the think time after that.
    Closed,
}

/// When sessions start that were recorded without a start.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Starts {
    /// At random, this many a second on average.
    Poisson { per_second: f64 },
    /// A fixed number at a time, recorded starts or not: when one ends, the next begins.
    Concurrent { sessions: u32 },
}

/// How to play a workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    pub seed: u64,
    pub pace: Loop,
    /// Above one, time is squeezed: recorded moments are divided by it, session starts are that much
    /// more frequent or concurrent, and the rates of `ServeGen` clients are multiplied where they stand.
    /// Think times stay as they are.
    pub rate_scale: Scale,
    /// The part of the trace to play, in trace time before scaling; it starts at moment zero. For
    /// sessions their recorded start counts.
    pub from: Duration,
    pub until: Duration,
    pub requests_max: u64,
    /// Longer prompts are left out; a session ends where it outgrows this.
    pub prompt_tokens_max: u32,
    /// Longer pauses are cut to this: recorded sessions contain nights.
    pub think_max: Duration,
    pub starts: Starts,
    /// Whether sessions with tool definitions of equal length share them, as the recordings suggest
    /// but do not tell (Claude Code only).
    pub share_tools: bool,
}

impl Default for Replay {
    fn default() -> Self {
        Self {
            seed: 0,
            pace: Loop::Open,
            rate_scale: Scale::ONE,
            from: Duration::ZERO,
            until: Duration::MAX,
            requests_max: u64::MAX,
            prompt_tokens_max: u32::MAX,
            think_max: Duration::MAX,
            starts: Starts::Poisson { per_second: 0.03 },
            share_tools: false,
        }
    }
}
