//! Metrics of every replica, read off the books at a scrape.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cleave_core::fleet::Drift;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::decisions::kinds_s;
use super::labels::{Real, RealCounter, set_real};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub(super) struct ReplicaLabel {
    pub(super) pool: String,
    pub(super) replica: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkLabel {
    pool: String,
    replica: String,
    kind: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct ReplicaFamilies {
    up: Family<ReplicaLabel, Gauge>,
    in_flight: Family<ReplicaLabel, Gauge>,
    sessions: Family<ReplicaLabel, Gauge>,
    sent: Family<ReplicaLabel, Counter>,
    failed: Family<ReplicaLabel, Counter>,
    report_age: Family<ReplicaLabel, Real>,
    in_flight_mu: Family<ReplicaLabel, Real>,
    pace: Family<ReplicaLabel, Real>,
    work: Family<WorkLabel, RealCounter>,
    denied: Family<ReplicaLabel, Counter>,
    draining: Family<ReplicaLabel, Gauge>,
    capacity: Family<ReplicaLabel, Real>,
    engine_waiting: Family<ReplicaLabel, Gauge>,
    engine_running: Family<ReplicaLabel, Gauge>,
    engine_kv: Family<ReplicaLabel, Real>,
}

/// One replica's state at the time of a scrape.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaGauges<'a> {
    pub replica: &'a str,
    pub up: bool,
    pub in_flight: u32,
    pub sessions: u32,
    pub sent_total: u64,
    pub failed_total: u64,
    /// How old the engine's last report is; `None` when there never was one.
    pub report_age: Option<Duration>,
    pub in_flight_mu: f64,
    pub pace: f64,
    pub drift: Drift,
    /// Answers by which it refused the router's key, or asked for one.
    pub denied_total: u64,
    /// Whether an operator ordered it drained.
    pub is_drained: bool,
    pub capacity_mu_per_min: f64,
    /// What its engine last said: requests that wait and run, and the share of KV memory in use.
    pub engine: Option<(u32, u32, f64)>,
}

impl ReplicaFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register("cleave_replica_up", "1 when the replica takes requests", self.up.clone());
        it.register("cleave_replica_in_flight", "Requests there now", self.in_flight.clone());
        it.register(
            "cleave_replica_sessions",
            "Sessions last served by the replica",
            self.sessions.clone(),
        );
        it.register(
            "cleave_replica_sent",
            "Requests sent to the replica since it joined",
            self.sent.clone(),
        );
        it.register(
            "cleave_replica_failed",
            "Failures the replica was blamed for since it joined",
            self.failed.clone(),
        );
        it.register(
            "cleave_replica_report_age_seconds",
            "Age of what the engine last said of its load",
            self.report_age.clone(),
        );
        it.register(
            "cleave_replica_in_flight_mu",
            "Work at the replica now, in model units",
            self.in_flight_mu.clone(),
        );
        it.register(
            "cleave_replica_pace",
            "How many times as long as its class promises things take",
            self.pace.clone(),
        );
        it.register(
            "cleave_replica_work_seconds",
            "Work predicted, settled, and missed by the prediction, of requests that ended",
            self.work.clone(),
        );
        it.register(
            "cleave_replica_unauthorized",
            "Answers 401 or 403 by which the replica refused the router's key, or asked for one",
            self.denied.clone(),
        );
        it.register(
            "cleave_replica_draining",
            "1 while an operator's order to drain the replica stands",
            self.draining.clone(),
        );
        it.register(
            "cleave_replica_capacity_mu_per_minute",
            "What the replica makes in a minute, in model units",
            self.capacity.clone(),
        );
        it.register(
            "cleave_replica_engine_waiting",
            "Requests that wait in the engine, as it last said",
            self.engine_waiting.clone(),
        );
        it.register(
            "cleave_replica_engine_running",
            "Requests that run in the engine, as it last said",
            self.engine_running.clone(),
        );
        it.register(
            "cleave_replica_engine_kv_used_ratio",
            "Share of the engine's KV memory in use, as it last said",
            self.engine_kv.clone(),
        );
    }

    pub(super) fn set(&self, pool: &str, it: &ReplicaGauges<'_>) {
        for (kind, seconds) in kinds_s(&it.drift) {
            let (pool, replica) = (pool.to_owned(), it.replica.to_owned());
            set_real(&self.work.get_or_create(&WorkLabel { pool, replica, kind }), seconds);
        }
        let label = ReplicaLabel { pool: pool.to_owned(), replica: it.replica.to_owned() };
        self.up.get_or_create(&label).set(it.up.into());
        self.in_flight.get_or_create(&label).set(it.in_flight.into());
        self.sessions.get_or_create(&label).set(it.sessions.into());
        self.sent.get_or_create(&label).inner().store(it.sent_total, Relaxed);
        self.failed.get_or_create(&label).inner().store(it.failed_total, Relaxed);
        self.capacity.get_or_create(&label).set(it.capacity_mu_per_min);
        if let Some((waiting, running, kv)) = it.engine {
            self.engine_waiting.get_or_create(&label).set(waiting.into());
            self.engine_running.get_or_create(&label).set(running.into());
            self.engine_kv.get_or_create(&label).set(kv);
        }
        self.draining.get_or_create(&label).set(it.is_drained.into());
        self.denied.get_or_create(&label).inner().store(it.denied_total, Relaxed);
        self.in_flight_mu.get_or_create(&label).set(it.in_flight_mu);
        self.pace.get_or_create(&label).set(it.pace);
        if let Some(age) = it.report_age {
            self.report_age.get_or_create(&label).set(age.as_secs_f64());
        }
    }

    /// Forgets them all, before those that are still there are set anew.
    pub(super) fn clear(&self) {
        self.up.clear();
        self.in_flight.clear();
        self.sessions.clear();
        self.sent.clear();
        self.failed.clear();
        self.report_age.clear();
        self.in_flight_mu.clear();
        self.pace.clear();
        self.work.clear();
        self.denied.clear();
        self.draining.clear();
        self.capacity.clear();
        self.engine_waiting.clear();
        self.engine_running.clear();
        self.engine_kv.clear();
    }
}
