//! Every metric, by name: a file for each kind, and here what holds them together. Handles are made
//! once per pool; a request touches only those. The rest is read off the books at a scrape. The
//! guide lists them all (`docs/guide/metrics.md`), and a test compares the two.

mod accept;
mod assignment;
mod certificates;
mod clients;
mod decisions;
mod gen_ai;
mod labels;
mod line;
mod panics;
mod peers;
mod process;
mod recording;
mod replicas;
mod requests;
mod scale;
mod served;
#[cfg(test)]
mod tests;
mod text;
mod traces;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cleave_core::cluster::ClusterStanding;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::recording::RecordCounters;
use super::traces::SpanCounters;

pub use assignment::AssignmentGauges;
pub use clients::Clients;
pub use decisions::PoolGauges;
pub use gen_ai::GenAiMetrics;
pub use line::TenantGauges;
pub use peers::PeerGauges;
pub use replicas::ReplicaGauges;
pub use requests::PoolMetrics;
pub use scale::ScaleGauges;
pub use served::{ReplicaHandles, ServedRequest, TenantMetrics};
pub use text::MetricsFormat;
pub use traces::TracedHistogram;

/// All families, and the registry they are in.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Open client connections.
    pub connections: Gauge,
    /// What the router ended because of its client.
    pub clients: Clients,
    log_lines_dropped: Counter,
    requests: requests::RequestFamilies,
    replicas: replicas::ReplicaFamilies,
    decisions: decisions::DecisionFamilies,
    assignment: assignment::AssignmentFamilies,
    line: line::LineFamilies,
    panics: panics::PanicFamilies,
    served: Arc<served::ServedFamilies>,
    gen_ai: Arc<gen_ai::GenAiFamilies>,
    process: process::ProcessFamilies,
    peers: peers::PeerFamilies,
    scale: scale::ScaleFamilies,
    traces: traces::TraceFamilies,
    recording: recording::RecordingFamilies,
    certificates: certificates::CertificateFamilies,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut it = Self {
            registry: Registry::default(),
            connections: Gauge::default(),
            clients: Clients::default(),
            log_lines_dropped: Counter::default(),
            requests: requests::RequestFamilies::default(),
            replicas: replicas::ReplicaFamilies::default(),
            decisions: decisions::DecisionFamilies::default(),
            assignment: assignment::AssignmentFamilies::default(),
            line: line::LineFamilies::default(),
            panics: panics::PanicFamilies::default(),
            served: Arc::default(),
            gen_ai: Arc::default(),
            process: process::ProcessFamilies::default(),
            peers: peers::PeerFamilies::default(),
            scale: scale::ScaleFamilies::default(),
            traces: traces::TraceFamilies::default(),
            recording: recording::RecordingFamilies::default(),
            certificates: certificates::CertificateFamilies::default(),
        };
        it.requests.register(&it.connections, &mut it.registry);
        it.clients.register(&mut it.registry);
        it.replicas.register(&mut it.registry);
        it.decisions.register(&mut it.registry);
        it.assignment.register(&mut it.registry);
        it.line.register(&mut it.registry);
        it.panics.register(&mut it.registry);
        it.served.register(&mut it.registry);
        it.gen_ai.register(&mut it.registry);
        it.process.register(&mut it.registry);
        it.peers.register(&mut it.registry);
        it.scale.register(&mut it.registry);
        it.traces.register(&mut it.registry);
        it.recording.register(&mut it.registry);
        it.certificates.register(&mut it.registry);
        it.registry.register(
            "cleave_log_lines_dropped",
            "Log lines that were dropped because standard error took no more",
            it.log_lines_dropped.clone(),
        );
        it
    }
}

impl Metrics {
    /// Makes the handles of one pool.
    pub fn pool(&self, pool: &str) -> PoolMetrics {
        let gen_ai = GenAiMetrics::new(Arc::clone(&self.gen_ai));
        self.requests.pool(pool, self.panics.pool(pool), &self.served, gen_ai)
    }

    /// Makes the counters of spans.
    pub fn span_counters(&self) -> SpanCounters {
        self.traces.counters()
    }

    /// Makes the counters of recordings.
    pub fn record_counters(&self) -> RecordCounters {
        self.recording.counters()
    }

    /// Sets when the router's own certificates end: what each is shown to, its file, and the second of Unix time.
    pub fn set_certificates<'a>(&self, all: impl Iterator<Item = (&'static str, &'a str, i64)>) {
        self.certificates.set(all);
    }

    /// Counts an error that the router answered by itself.
    pub fn on_error(&self, code: &'static str, status: u16) {
        self.process.on_error(code, status);
    }

    /// Notes how late a loop was that should have run: of a `worker`, or the `main` one.
    pub fn on_lag(&self, thread: &'static str, lag: Duration) {
        self.process.on_lag(thread, lag);
    }

    /// Counts a panic outside the brains: of a `request`, a `stream`, a `task` or a `thread`.
    pub fn on_panic(&self, kind: &'static str) {
        self.panics.on_panic(kind);
    }

    /// Sets what is read off the pools only at a scrape. Replicas that left disappear.
    pub fn set_pool<'a>(
        &self,
        pool: &str,
        own: &PoolGauges,
        replicas: impl Iterator<Item = ReplicaGauges<'a>>,
    ) {
        self.decisions.set(pool, own);
        replicas.for_each(|it| self.replicas.set(pool, &it));
    }

    /// Sets what is told of a pool's assignment.
    pub fn set_assignment(&self, pool: &str, it: AssignmentGauges<'_>) {
        self.assignment.set(pool, it);
    }

    /// Sets what waits and what tenants have used in a pool.
    pub fn set_line<'a>(
        &self,
        pool: &str,
        classes: impl Iterator<Item = (&'a str, usize)>,
        tenants: &[TenantGauges<'_>],
    ) {
        self.line.set(pool, classes, tenants);
    }

    /// Sets what is told of other routers.
    pub fn set_peers(&self, peers: &[PeerGauges<'_>]) {
        self.peers.set(peers);
    }

    /// Sets how many replicas a pool should have.
    pub fn set_scale(&self, pool: &str, it: &ScaleGauges) {
        self.scale.set(pool, it);
    }

    /// Sets where this router stands among the others.
    pub fn set_standing(&self, standing: &ClusterStanding, leads: bool) {
        self.peers.set_standing(standing, leads);
    }

    /// Counts a connection of another router that came to nothing, by its reason.
    pub fn on_router_refused(&self, reason: &'static str) {
        self.peers.on_refused(reason);
    }

    /// Sets how the store is doing that routers share.
    pub fn set_store(&self, is_up: bool, failures: u64, writes: u64) {
        self.peers.set_store(is_up, failures, writes);
    }

    /// Sets how many log lines were dropped since the start.
    pub fn set_log_lines_dropped(&self, total: u64) {
        self.log_lines_dropped.inner().store(total, Relaxed);
    }

    /// Forgets the figures of every replica, workload and tenant, before they are set anew.
    pub fn clear_replicas(&self) {
        self.replicas.clear();
        self.decisions.clear();
        self.line.clear();
        self.scale.clear();
    }

    /// Writes everything as `OpenMetrics`.
    pub fn write(&self) -> String {
        self.process.look();
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}
