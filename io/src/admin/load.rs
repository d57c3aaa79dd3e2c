//! What weighs on each replica as JSON: what this router has booked there, and what its engine said.

use cleave_core::brain::ReplicaLoad;
use cleave_core::domain::{Moment, Report, RouterId};
use cleave_core::fleet::ms;
use serde::Serialize;

use crate::proxy::{Pool, Router};

use super::costs::CostFigures;

/// What `/load` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    pub pools: Vec<PoolLoad>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PoolLoad {
    pub name: String,
    /// What work takes, for each class of its replicas; empty where learning is off.
    pub costs: Vec<CostFigures>,
    pub replicas: Vec<ReplicaFigures>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReplicaFigures {
    pub url: String,
    /// The hardware class whose coefficients price its work.
    pub class: String,
    pub in_flight: u32,
    /// Work of the requests in flight in model units: what is still to be done of it.
    pub in_flight_mu: f64,
    /// What it makes in a minute at its knee, at the pace it shows.
    pub capacity_mu_per_min: f64,
    /// How many times as long as its class promises things take.
    pub pace: f64,
    pub booked: Booked,
    /// Work that other routers say they have there, in milliseconds.
    pub elsewhere_ms: f64,
    /// The same by router, of those that have anything there.
    pub elsewhere: Vec<ElsewhereFigures>,
    /// The engine's own figures; null when it never gave any.
    pub report: Option<ReportFigures>,
}

/// What one other router has at a replica.
#[derive(Clone, Debug, Serialize)]
pub struct ElsewhereFigures {
    pub router: String,
    pub in_flight: usize,
    pub work_ms: f64,
}

/// What the requests in flight come to, as expected now.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Booked {
    /// Reading prompts whose answer has not begun, in milliseconds of a busy replica.
    pub prefill_ms: f64,
    /// Writing what is still to come of answers.
    pub decode_ms: f64,
    /// Tokens in KV memory, as if no two requests shared any.
    pub kv_tokens: u64,
    /// Tokens that answers will add to it.
    pub kv_growth_tokens: u64,
    /// In prompts whose answer has not begun, cached ones included.
    pub waiting_prompt_tokens: u64,
    /// In prompts that are being answered.
    pub answering_prompt_tokens: u64,
    /// In all of their answers.
    pub output_tokens: u64,
}

#[derive(Clone, Copy, Debug, Serialize)]
pub struct ReportFigures {
    pub age_seconds: f64,
    pub waiting: u32,
    pub running: u32,
    pub kv_used_share: f64,
    pub kv_tokens_max: Option<u64>,
}

impl Load {
    pub(super) fn of(router: &Router) -> Self {
        let now = router.now();
        Self { pools: router.pools().iter().map(|it| PoolLoad::of(it, now)).collect() }
    }
}

impl PoolLoad {
    fn of(pool: &Pool, now: Moment) -> Self {
        let replicas = pool.load().into_iter().map(|it| ReplicaFigures::of(it, now)).collect();
        let costs = pool.learned_costs().iter().map(CostFigures::of).collect();
        Self { name: pool.name.clone(), costs, replicas }
    }
}

fn elsewhere((router, (in_flight, work_ms)): (RouterId, (usize, f64))) -> ElsewhereFigures {
    ElsewhereFigures { router: router.to_string(), in_flight, work_ms }
}

impl ReplicaFigures {
    fn of(load: ReplicaLoad, now: Moment) -> Self {
        Self {
            url: load.name,
            class: load.class,
            in_flight: load.in_flight,
            in_flight_mu: load.in_flight_mu,
            capacity_mu_per_min: load.capacity_mu_per_min,
            pace: load.pace,
            elsewhere_ms: load.elsewhere.work_ms(),
            elsewhere: load.by_router.into_iter().map(elsewhere).collect(),
            booked: Booked {
                prefill_ms: ms(load.booked.prefill_us),
                decode_ms: ms(load.booked.decode_us),
                kv_tokens: load.booked.kv_tokens,
                kv_growth_tokens: load.booked.growth_tokens,
                waiting_prompt_tokens: load.waiting_prompt_tokens,
                answering_prompt_tokens: load.answering_prompt_tokens,
                output_tokens: load.output_tokens,
            },
            report: load.report.map(|it| ReportFigures::of(it, now)),
        }
    }
}

impl ReportFigures {
    fn of(report: Report, now: Moment) -> Self {
        Self {
            age_seconds: now.since(report.taken_at).as_secs_f64(),
            waiting: report.waiting,
            running: report.running,
            kv_used_share: report.kv_used_share,
            kv_tokens_max: report.kv_tokens_max,
        }
    }
}
