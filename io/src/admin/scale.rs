//! How many replicas each pool should have and why, as JSON: `GET /scale`.

use std::time::SystemTime;

use serde::Serialize;

use crate::proxy::{Pool, Router, ScalePoint, ScaleStep, ScalingSettings};

/// What `/scale` answers. Pools that are not scaled are not listed.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleList {
    pub pools: Vec<PoolScale>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PoolScale {
    pub name: String,
    /// `advise`, `command` or `kubernetes`.
    pub mode: &'static str,
    pub min: u32,
    pub max: u32,
    /// How many replicas there should be; null before the first look.
    pub wanted: Option<usize>,
    /// A word for what decided, and a sentence.
    pub reason: Option<&'static str>,
    pub why: Option<String>,
    /// Whether this router's advice is the one that is acted on.
    pub leads: bool,
    pub terms: Option<ScaleTerms>,
    /// Addresses of replicas that are drained to be taken away.
    pub victims: Vec<String>,
    pub last_step: Option<StepFigures>,
    pub steps_done: u64,
    pub steps_failed: u64,
    /// Since the router started.
    pub replica_hours: f64,
    pub price_per_hour: Option<f64>,
    /// What those hours cost.
    pub cost: Option<f64>,
    /// Oldest first.
    pub history: Vec<PointFigures>,
}

/// The figures behind the number, term by term.
#[derive(Clone, Debug, Serialize)]
pub struct ScaleTerms {
    pub demand_mu_per_min: f64,
    pub spread_mu_per_min: f64,
    pub forecast_mu_per_min: f64,
    pub held_mu: f64,
    pub refused_mu: f64,
    pub beyond_contract_mu_per_min: f64,
    pub capacity_mu_per_min: Option<f64>,
    pub kv_tokens_needed: u64,
    pub kv_tokens_per_replica: Option<u64>,
    pub needed: NeededReplicas,
    pub ready: usize,
    pub starting: usize,
    pub unhealthy: usize,
    pub coming: usize,
    pub overdue: usize,
    pub start_up_seconds: f64,
    pub cool_down_seconds: f64,
}

/// Replicas that each term alone would need.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct NeededReplicas {
    pub forecast: usize,
    pub backlog: usize,
    pub memory: usize,
    pub floor: usize,
    /// How many would do when more are there.
    pub enough: usize,
}

#[derive(Clone, Debug, Serialize)]
pub struct StepFigures {
    pub at: String,
    pub replicas: usize,
    pub victims: Vec<String>,
    pub error: Option<String>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PointFigures {
    pub at: String,
    pub wanted: usize,
    pub reason: &'static str,
    pub ready: usize,
    pub starting: usize,
    pub demand_mu_per_min: f64,
    pub held_mu: f64,
}

impl ScaleList {
    pub(super) fn of(router: &Router) -> Self {
        let pools = router.pools();
        let scaled = pools.iter().filter_map(|it| Some(PoolScale::of(it, &it.scaling()?)));
        Self { pools: scaled.collect() }
    }
}

impl PoolScale {
    fn of(pool: &Pool, settings: &ScalingSettings) -> Self {
        let state = pool.scale.state();
        let advice = state.advice;
        Self {
            name: pool.name.clone(),
            mode: settings.actuator.mode().as_str(),
            min: settings.min,
            max: settings.max,
            wanted: advice.map(|it| it.wanted),
            reason: advice.map(|it| it.reason.as_str()),
            why: advice.map(|it| it.reason.to_string()),
            leads: state.is_own,
            terms: advice.map(|it| ScaleTerms::of(&it.terms)),
            victims: state.victims,
            last_step: state.last.map(StepFigures::of),
            steps_done: state.steps_done,
            steps_failed: state.steps_failed,
            replica_hours: state.replica_hours,
            price_per_hour: settings.price_per_hour,
            cost: settings.price_per_hour.map(|it| it * state.replica_hours),
            history: state.points.iter().map(PointFigures::of).collect(),
        }
    }
}

impl ScaleTerms {
    fn of(it: &cleave_core::scaling::Terms) -> Self {
        Self {
            demand_mu_per_min: it.demand_mu_per_min,
            spread_mu_per_min: it.spread_mu_per_min,
            forecast_mu_per_min: it.forecast_mu_per_min,
            held_mu: it.held_mu,
            refused_mu: it.refused_mu,
            beyond_contract_mu_per_min: it.beyond_contract_mu_per_min,
            capacity_mu_per_min: it.capacity_mu_per_min,
            kv_tokens_needed: it.kv_tokens_needed,
            kv_tokens_per_replica: it.kv_tokens_per_replica,
            needed: NeededReplicas {
                forecast: it.by_demand,
                backlog: it.by_backlog,
                memory: it.by_memory,
                floor: it.floor,
                enough: it.enough,
            },
            ready: it.ready,
            starting: it.starting,
            unhealthy: it.unhealthy,
            coming: it.coming,
            overdue: it.overdue,
            start_up_seconds: it.start_up.as_secs_f64(),
            cool_down_seconds: it.cool_down_left.as_secs_f64(),
        }
    }
}

impl StepFigures {
    fn of(it: ScaleStep) -> Self {
        Self { at: written(it.at), replicas: it.replicas, victims: it.victims, error: it.error }
    }
}

impl PointFigures {
    fn of(it: &ScalePoint) -> Self {
        Self {
            at: written(it.at),
            wanted: it.wanted,
            reason: it.reason,
            ready: it.ready,
            starting: it.starting,
            demand_mu_per_min: it.demand_mu_per_min,
            held_mu: it.held_mu,
        }
    }
}

fn written(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}
