//! The state of the router as JSON.

use std::collections::BTreeMap;

use cleave_core::brain::{LeaveCause, QueueSnapshot, ReplicaSnapshot};
use cleave_core::queue::ClassSnapshot;
use serde::Serialize;

use super::pins::{PinFigures, pins_of};
use super::routers::StandingFigures;
use crate::proxy::{Given, Pool, Router};

/// What `/status` answers.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    pub version: &'static str,
    pub ready: bool,
    pub draining: bool,
    pub connections: i64,
    /// Where the router stands among others; left out for one that is alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<StandingFigures>,
    pub pools: Vec<PoolStatus>,
}

#[derive(Clone, Debug, Serialize)]
pub struct PoolStatus {
    pub name: String,
    pub policy: &'static str,
    /// Which parts are on.
    pub parts: String,
    pub models: Vec<String>,
    pub requests_in_flight: usize,
    pub sessions: u64,
    pub sessions_moved_total: u64,
    /// The same by cause.
    pub sessions_moved: BTreeMap<&'static str, u64>,
    /// Requests that are refused because replicas failed while they were served.
    pub quarantined: usize,
    pub queue: QueueStatus,
    /// By which token its assignment was ordered to stay as it is, and when.
    pub frozen: Option<Given>,
    pub pins: Vec<PinFigures>,
    pub replicas: Vec<ReplicaStatus>,
}

/// The requests that wait at the router.
#[derive(Clone, Debug, Serialize)]
pub struct QueueStatus {
    pub waiting: usize,
    pub waiting_bytes: usize,
    /// What leaves the line in a minute while others wait.
    pub mu_per_min: f64,
    pub classes: Vec<ClassStatus>,
    /// Sessions that live, what KV they hold, and from where on new ones wait; null when unknown.
    pub sessions: usize,
    pub sessions_kv_tokens: u64,
    pub sessions_kv_tokens_max: Option<u64>,
}

#[derive(Clone, Debug, Serialize)]
pub struct ClassStatus {
    pub name: String,
    pub waiting: usize,
    pub waiting_mu: f64,
}

#[derive(Clone, Debug, Serialize)]
pub struct ReplicaStatus {
    pub url: String,
    /// `joining`, `up`, `draining`, `drained`, `suspect`, `out`, `trial`, or `leaving`.
    pub state: &'static str,
    /// Why it is suspected or out, or why it never came up.
    pub reason: Option<&'static str>,
    /// What the last probe found, in words for people.
    pub detail: Option<String>,
    /// By which token it was ordered drained, and when.
    pub drained: Option<Given>,
    pub weight: f64,
    pub in_flight: u32,
    pub sessions: u32,
    pub sent_total: u64,
    pub failed_total: u64,
}

impl Status {
    pub(super) fn of(router: &Router) -> Self {
        Self {
            version: env!("CARGO_PKG_VERSION"),
            ready: router.is_ready(),
            draining: router.is_draining(),
            connections: router.metrics.connections.get(),
            cluster: StandingFigures::of(router),
            pools: router.pools().iter().map(|it| PoolStatus::of(router, it)).collect(),
        }
    }
}

impl PoolStatus {
    fn of(router: &Router, pool: &Pool) -> Self {
        let (snapshot, mut troubles) = (pool.snapshot(), pool.troubles());
        let mut orders = pool.orders();
        let replica = |it: ReplicaSnapshot| {
            let drained = orders.drained.remove(&it.name);
            let trouble = troubles.remove(&it.name).filter(|_| it.state != "up");
            ReplicaStatus {
                url: it.name,
                state: it.state,
                reason: it.reason.or(trouble.as_ref().map(|it| it.word)),
                detail: trouble.map(|of| of.beside(it.reason)),
                drained,
                weight: it.weight,
                in_flight: it.in_flight,
                sessions: it.sessions,
                sent_total: it.sent_total,
                failed_total: it.failed_total,
            }
        };
        let replicas: Vec<ReplicaStatus> = snapshot.replicas.into_iter().map(replica).collect();
        Self {
            name: pool.name.clone(),
            policy: snapshot.policy.as_str(),
            parts: pool.parts(),
            models: pool.models(),
            requests_in_flight: snapshot.requests_in_flight,
            sessions: replicas.iter().map(|it| u64::from(it.sessions)).sum(),
            sessions_moved_total: snapshot.sessions_moved.all(),
            sessions_moved: LeaveCause::ALL
                .map(|it| (it.as_str(), snapshot.sessions_moved.of(it)))
                .into(),
            quarantined: snapshot.quarantined,
            queue: QueueStatus::of(snapshot.queue),
            frozen: orders.frozen,
            pins: pins_of(router, pool),
            replicas,
        }
    }
}

impl QueueStatus {
    fn of(queue: QueueSnapshot) -> Self {
        let class = |(name, it): (String, ClassSnapshot)| ClassStatus {
            name,
            waiting: it.count,
            waiting_mu: it.work.as_mu(),
        };
        Self {
            waiting: queue.waiting,
            waiting_bytes: queue.bytes,
            mu_per_min: queue.mu_per_min,
            classes: queue.classes.into_iter().map(class).collect(),
            sessions: queue.sessions.sessions,
            sessions_kv_tokens: queue.sessions.tokens,
            sessions_kv_tokens_max: queue.sessions.tokens_max,
        }
    }
}
