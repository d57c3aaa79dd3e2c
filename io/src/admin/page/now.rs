//! The figures of one moment, twice a second: a column for each figure, in the order of the replicas that the page was
//! told of. Hundreds of replicas are so a few KiB, and no name is written twice.

use std::collections::BTreeMap;
use std::time::{SystemTime, UNIX_EPOCH};

use cleave_core::brain::{LeaveCause, LiveReplica, LiveView};
use cleave_core::domain::{Moment, ReplicaId};
use serde::Serialize;

use crate::proxy::{Given, Lately, Pool, Router};

/// One moment.
#[derive(Clone, Debug, Serialize)]
pub(super) struct LiveNow {
    at_ms: u64,
    ready: bool,
    draining: bool,
    connections: i64,
    pools: Vec<PoolNow>,
}

#[derive(Clone, Debug, Serialize)]
struct PoolNow {
    name: String,
    in_flight: usize,
    quarantined: usize,
    waiting: usize,
    waiting_bytes: usize,
    /// Model units that leave the line in a minute.
    mu_per_min: f64,
    /// Requests and their work that wait, by class.
    classes: Vec<(usize, f64)>,
    /// Sessions that moved since the start, by cause.
    moved: [u64; LeaveCause::ALL.len()],
    frozen: Option<Given>,
    replicas: ReplicaColumns,
    /// What is to be said of some replicas, by their place in the columns.
    notes: BTreeMap<usize, ReplicaNote>,
}

/// A figure for each replica.
#[derive(Clone, Debug, Default, Serialize)]
struct ReplicaColumns {
    state: Vec<&'static str>,
    in_flight: Vec<u32>,
    /// Work in flight in model units, and what it makes in a minute.
    mu: Vec<f64>,
    mu_per_min: Vec<f64>,
    /// How full it is; from 1 on it is past its knee.
    fill: Vec<f64>,
    pace: Vec<f64>,
    /// As the engine says: null where it never did.
    waiting: Vec<Option<u32>>,
    running: Vec<Option<u32>>,
    kv_share: Vec<Option<f64>>,
    kv_tokens_max: Vec<Option<u64>>,
    report_age_s: Vec<Option<f64>>,
    /// As this router has booked it.
    kv_tokens: Vec<u64>,
    sessions: Vec<u32>,
    sent: Vec<u64>,
    failed: Vec<u64>,
    cached: Vec<Option<f64>>,
    first_token_ms: Vec<Option<f64>>,
    first_token_hour_ms: Vec<Option<f64>>,
}

/// Why a replica is not up, or by which token it is drained.
#[derive(Clone, Debug, Serialize)]
struct ReplicaNote {
    reason: Option<&'static str>,
    detail: Option<String>,
    drained: Option<Given>,
}

/// How replicas do lately; worked out once for each sample.
#[derive(Debug, Default)]
pub(super) struct LatelyCache {
    sampled_s: u64,
    known: BTreeMap<ReplicaId, Lately>,
}

impl LatelyCache {
    /// Looks again if there is a new sample.
    pub(super) fn renew(&mut self, router: &Router) {
        let newest = router.flow.newest_s();
        if newest != self.sampled_s {
            self.sampled_s = newest;
            self.known = router.pools().iter().flat_map(|it| it.lately()).collect();
        }
    }
}

impl LiveNow {
    pub(super) fn of(router: &Router, views: Vec<LiveView>, lately: &LatelyCache) -> Self {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let any_up = views.iter().flat_map(|it| &it.replicas).any(|it| it.state == "up");
        let is_joining = router.sharing().is_some_and(|it| it.is_joining());
        let (pools, now) = (router.pools(), router.now());
        let pools = pools.iter().zip(views).map(|(pool, it)| PoolNow::of(pool, it, now, lately));
        Self {
            at_ms: u64::try_from(at.as_millis()).unwrap_or(u64::MAX),
            ready: any_up && !router.is_draining() && !is_joining,
            draining: router.is_draining(),
            connections: router.metrics.connections.get(),
            pools: pools.collect(),
        }
    }
}

impl PoolNow {
    fn of(pool: &Pool, view: LiveView, now: Moment, lately: &LatelyCache) -> Self {
        let (mut troubles, mut orders) = (pool.troubles(), pool.orders());
        let mut columns = ReplicaColumns::default();
        let mut notes = BTreeMap::new();
        for (at, it) in view.replicas.iter().enumerate() {
            columns.add(it, now, lately.known.get(&it.id).copied().unwrap_or_default());
            // Only of few is there anything to say, so that few names are looked up.
            if it.state == "up" {
                continue;
            }
            let Some(name) = pool.address_of(it.id) else { continue };
            let trouble = troubles.remove(&name);
            let reason = it.reason.or(trouble.as_ref().map(|it| it.word));
            let detail = trouble.map(|of| of.beside(it.reason));
            let drained = orders.drained.remove(&name);
            notes.insert(at, ReplicaNote { reason, detail, drained });
        }
        Self {
            name: pool.name.clone(),
            in_flight: view.requests_in_flight,
            quarantined: view.quarantined,
            waiting: view.waiting,
            waiting_bytes: view.waiting_bytes,
            mu_per_min: short(view.mu_per_min),
            classes: view.classes.iter().map(|it| (it.count, short(it.work.as_mu()))).collect(),
            moved: LeaveCause::ALL.map(|it| view.sessions_moved.of(it)),
            frozen: orders.frozen,
            replicas: columns,
            notes,
        }
    }
}

impl ReplicaColumns {
    fn add(&mut self, it: &LiveReplica, now: Moment, lately: Lately) {
        let report = it.report;
        self.state.push(it.state);
        self.in_flight.push(it.in_flight);
        self.mu.push(short(it.in_flight_mu));
        self.mu_per_min.push(short(it.capacity_mu_per_min));
        self.fill.push(short(it.fill));
        self.pace.push(short(it.pace));
        self.waiting.push(report.map(|it| it.waiting));
        self.running.push(report.map(|it| it.running));
        self.kv_share.push(report.map(|it| short(it.kv_used_share)));
        self.kv_tokens_max.push(report.and_then(|it| it.kv_tokens_max));
        self.report_age_s.push(report.map(|it| short(now.since(it.taken_at).as_secs_f64())));
        self.kv_tokens.push(it.kv_tokens);
        self.sessions.push(it.sessions);
        self.sent.push(it.sent_total);
        self.failed.push(it.failed_total);
        self.cached.push(lately.cached_share.map(short));
        self.first_token_ms.push(lately.first_token_ms.map(short));
        self.first_token_hour_ms.push(lately.first_token_hour_ms.map(short));
    }
}

/// Rounds to hundredths: more is not seen, and takes bytes.
fn short(figure: f64) -> f64 {
    (figure * 100.0).round() / 100.0
}
