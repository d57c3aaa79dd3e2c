//! One pretended replica: an engine, whether it can be reached, and what its metrics say.

use std::sync::Arc;

use cleave_core::cost::Hardware;
use cleave_core::domain::{Moment, Report, Usage};

use crate::engine::{self, Engine, Stats};

use super::settings::{Belief, ReplicaSettings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Up,
    Down,
    Hung {
        since: Moment,
    },
    /// The operator has taken it away.
    Gone,
}

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) settings: ReplicaSettings,
    /// What routers are told that work takes there.
    pub(super) hardware: Arc<Hardware>,
    pub(super) engine: Engine,
    pub(super) standing: Standing,
    /// The step end that is in the heap; other entries for this replica are out of date.
    pub(super) due: Option<Moment>,
    /// What its metrics say for as long as they do not change.
    frozen: Option<Stats>,
    /// Whether its figures make no sense.
    pub(super) lies: bool,
    /// Since when nothing is wrong with it.
    pub(super) well_since: Option<Moment>,
    /// Routers that have not released it yet, while it leaves.
    pub(super) leaving_from: usize,
}

impl Replica {
    pub(super) fn new(number: usize, settings: ReplicaSettings, belief: &Belief) -> Self {
        let steps = belief.of_steps(settings.engine.times);
        Self {
            name: format!("http://replica-{number}"),
            settings,
            hardware: Arc::new(Hardware::of_steps("simulated", steps)),
            engine: fresh(settings.engine),
            standing: Standing::Up,
            due: None,
            frozen: None,
            lies: false,
            well_since: Some(Moment::ZERO),
            leaving_from: 0,
        }
    }

    /// Puts a cold engine in the place of the old one.
    pub(super) fn replace_engine(&mut self) -> Engine {
        self.due = None;
        std::mem::replace(&mut self.engine, fresh(self.settings.engine))
    }

    pub(super) fn is_up(&self) -> bool {
        self.standing == Standing::Up
    }

    pub(super) fn is_gone(&self) -> bool {
        self.standing == Standing::Gone
    }

    pub(super) fn set_frozen(&mut self, frozen: bool) {
        self.frozen = frozen.then(|| self.engine.stats());
    }

    /// Reads its metrics; nothing comes from a replica that does not answer.
    pub(super) fn report(&self, now: Moment) -> Option<Report> {
        if !self.is_up() {
            return None;
        }
        if self.lies {
            return Some(absurd_report(now));
        }
        let stats = self.frozen.unwrap_or_else(|| self.engine.stats());
        Some(Report {
            taken_at: now,
            waiting: u32::try_from(stats.waiting).unwrap_or(u32::MAX),
            running: u32::try_from(stats.running).unwrap_or(u32::MAX),
            waiting_tokens: None,
            kv_used_share: stats.kv_used_share,
            kv_tokens_max: Some(u64::from(self.engine.capacity_tokens())),
        })
    }
}

/// Figures that make no sense, for each report others.
fn absurd_report(now: Moment) -> Report {
    let odd = now.as_nanos() / 1_000;
    let count = if odd.is_multiple_of(2) { 0 } else { u32::MAX };
    let shares = [f64::NAN, f64::INFINITY, -1.0, 1e300];
    let share = usize::try_from(odd % 4).map_or(f64::NAN, |it| shares[it]);
    Report {
        taken_at: now,
        waiting: count,
        running: u32::MAX,
        waiting_tokens: Some(u64::MAX),
        kv_used_share: share,
        kv_tokens_max: Some(if odd.is_multiple_of(3) { 0 } else { u64::MAX }),
    }
}

/// What a replica that lies says that a request came to, for each request something else.
pub(super) fn absurd_usage(request: u64) -> Usage {
    let figures = [0, 1, u32::MAX, 1 << 31, 7];
    let figure = |at: u64| usize::try_from(at % 5).ok().map(|at| figures[at]);
    Usage { input: figure(request), output: figure(request / 5), cached: figure(request / 25) }
}

fn fresh(settings: engine::EngineSettings) -> Engine {
    let mut engine = Engine::new(settings);
    engine.watch_kv();
    engine
}
