//! What weighs on each replica as JSON: what this router has booked there, and what its engine said.

use cleave_core::brain::ReplicaLoad;
use cleave_core::domain::{Moment, Report};
use serde::Serialize;

use crate::proxy::{Pool, Router};

/// What `/load` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Load {
    pub pools: Vec<PoolLoad>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PoolLoad {
    pub name: String,
    pub replicas: Vec<ReplicaFigures>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReplicaFigures {
    pub url: String,
    pub in_flight: u32,
    pub booked: Booked,
    /// The engine's own figures; null when it never gave any.
    pub report: Option<ReportFigures>,
}

/// Tokens of the requests in flight, as estimated when they came.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Booked {
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
        Self { name: pool.name.clone(), replicas }
    }
}

impl ReplicaFigures {
    fn of(load: ReplicaLoad, now: Moment) -> Self {
        Self {
            url: load.name,
            in_flight: load.in_flight,
            booked: Booked {
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
