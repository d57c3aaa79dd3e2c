//! Every metric, by name. Handles are made once per pool; a request touches only those. The guide
//! lists them all (`docs/guide/metrics.md`), and a test compares the two.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cleave_core::brain::{Foresight, Shadows, SubsetTotals};
use cleave_core::fleet::{Drift, ms};
use cleave_core::sharding::Balance;
use cleave_core::tokens::Misses;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

const REQUESTS: &str = "cleave_requests";
const REFUSED: &str = "cleave_refused";
const RETRIES: &str = "cleave_retries";
const CUT: &str = "cleave_streams_cut";
const RESUMED: &str = "cleave_streams_resumed";
const CANCELLED: &str = "cleave_cancelled";
const TOKENS: &str = "cleave_tokens";
const FIRST_BYTE: &str = "cleave_first_byte_seconds";
const TOTAL: &str = "cleave_request_seconds";
const CONNECTIONS: &str = "cleave_connections";
const REPLICA_UP: &str = "cleave_replica_up";
const REPLICA_IN_FLIGHT: &str = "cleave_replica_in_flight";
const REPLICA_SESSIONS: &str = "cleave_replica_sessions";
const REPLICA_SENT: &str = "cleave_replica_sent";
const REPLICA_FAILED: &str = "cleave_replica_failed";
const REPLICA_REPORT_AGE: &str = "cleave_replica_report_age_seconds";
const REPLICA_IN_FLIGHT_MU: &str = "cleave_replica_in_flight_mu";
const REPLICA_PACE: &str = "cleave_replica_pace";
const REPLICA_WORK: &str = "cleave_replica_work_seconds";
const WORKLOAD_WORK: &str = "cleave_workload_work_seconds";
const FIRST_TOKEN_ERROR: &str = "cleave_first_token_error_seconds";
const TOKENS_PREDICTED: &str = "cleave_tokens_predicted";
const TOKENS_MISSED: &str = "cleave_tokens_missed";
const TOKENS_COUNTED: &str = "cleave_tokens_counted";
const SHADOW_TTFT: &str = "cleave_shadow_ttft_seconds";
const SHADOW_DECISIONS: &str = "cleave_shadow_decisions";
const SESSIONS_MOVED: &str = "cleave_sessions_moved";
const MOVED_TOKENS: &str = "cleave_sessions_moved_tokens";
const SUBSET_SPILLED: &str = "cleave_subset_spilled";
const ASSIGNMENT_ROUNDS: &str = "cleave_assignment_rounds";
const ASSIGNMENT_CHANGES: &str = "cleave_assignment_changes";
const ASSIGNMENT_CHURN: &str = "cleave_assignment_churn";
const ASSIGNMENT_LOAD: &str = "cleave_assignment_load";
const ASSIGNMENT_SLICES: &str = "cleave_assignment_slices";
const ASSIGNMENT_HOT_KEYS: &str = "cleave_assignment_hot_keys";
const ASSIGNMENT_PLANNING: &str = "cleave_assignment_planning_seconds";
const QUARANTINED: &str = "cleave_quarantined";
const LINE_WAIT: &str = "cleave_line_wait_seconds";
const LINE_WAITING: &str = "cleave_line_waiting";
const TENANT_WORK: &str = "cleave_tenant_model_units";
const TENANT_WAITING: &str = "cleave_tenant_waiting";

/// So many tenants are shown by name; what all others use is summed.
const TENANTS_SHOWN_MAX: usize = 100;

/// Half a millisecond to ten minutes, doubling and a bit.
const SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0,
    600.0,
];

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PoolLabel {
    pool: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct KindLabel {
    pool: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReplicaLabel {
    pool: String,
    replica: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkLabel {
    pool: String,
    replica: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkloadLabel {
    pool: String,
    workload: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct QuantileLabel {
    pool: String,
    quantile: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ClassLabel {
    pool: String,
    class: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TenantLabel {
    pool: String,
    tenant: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct UseLabel {
    pool: String,
    tenant: String,
    kind: &'static str,
}

type Real = Gauge<f64, AtomicU64>;
type RealCounter = Counter<f64, AtomicU64>;

/// All families, and the registry they are in.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    requests: Family<KindLabel, Counter>,
    refused: Family<KindLabel, Counter>,
    retries: Family<PoolLabel, Counter>,
    cut: Family<PoolLabel, Counter>,
    resumed: Family<PoolLabel, Counter>,
    cancelled: Family<PoolLabel, Counter>,
    tokens: Family<KindLabel, Counter>,
    first_byte: Family<PoolLabel, Histogram>,
    total: Family<PoolLabel, Histogram>,
    /// Open client connections.
    pub connections: Gauge,
    replica_up: Family<ReplicaLabel, Gauge>,
    replica_in_flight: Family<ReplicaLabel, Gauge>,
    replica_sessions: Family<ReplicaLabel, Gauge>,
    replica_sent: Family<ReplicaLabel, Counter>,
    replica_failed: Family<ReplicaLabel, Counter>,
    replica_report_age: Family<ReplicaLabel, Real>,
    replica_in_flight_mu: Family<ReplicaLabel, Real>,
    replica_pace: Family<ReplicaLabel, Real>,
    replica_work: Family<WorkLabel, RealCounter>,
    workload_work: Family<WorkloadLabel, RealCounter>,
    first_token_error: Family<QuantileLabel, Real>,
    tokens_predicted: Family<KindLabel, Counter>,
    tokens_missed: Family<KindLabel, Counter>,
    tokens_counted: Family<KindLabel, Counter>,
    shadow_ttft: Family<KindLabel, Counter<f64, AtomicU64>>,
    shadow_decisions: Family<PoolLabel, Counter>,
    sessions_moved: Family<PoolLabel, Counter>,
    assignment: AssignmentFamilies,
    quarantined: Family<PoolLabel, Counter>,
    line_wait: Family<PoolLabel, Histogram>,
    line_waiting: Family<ClassLabel, Gauge>,
    tenant_work: Family<UseLabel, Counter<f64, AtomicU64>>,
    tenant_waiting: Family<TenantLabel, Gauge>,
}

/// What is told of assignments.
#[derive(Debug, Default)]
struct AssignmentFamilies {
    moved_tokens: Family<PoolLabel, Counter>,
    spilled: Family<PoolLabel, Counter>,
    rounds: Family<PoolLabel, Counter>,
    changes: Family<PoolLabel, Counter>,
    churn: Family<KindLabel, Counter<f64, AtomicU64>>,
    load: Family<KindLabel, Gauge<f64, AtomicU64>>,
    slices: Family<PoolLabel, Gauge>,
    hot_keys: Family<PoolLabel, Gauge>,
    planning: Family<PoolLabel, Gauge<f64, AtomicU64>>,
}

impl AssignmentFamilies {
    fn register(&self, it: &mut Registry) {
        it.register(
            MOVED_TOKENS,
            "Prompt tokens computed again because their session had moved",
            self.moved_tokens.clone(),
        );
        it.register(
            SUBSET_SPILLED,
            "Requests sent beyond their workload's subset",
            self.spilled.clone(),
        );
        it.register(ASSIGNMENT_ROUNDS, "Rounds planned", self.rounds.clone());
        it.register(ASSIGNMENT_CHANGES, "Rounds that changed something", self.changes.clone());
        it.register(
            ASSIGNMENT_CHURN,
            "Share of all load that changed hands, by cause",
            self.churn.clone(),
        );
        it.register(
            ASSIGNMENT_LOAD,
            "Load of replicas as a share of capacity, by what it is",
            self.load.clone(),
        );
        it.register(ASSIGNMENT_SLICES, "Slices of the key space", self.slices.clone());
        it.register(ASSIGNMENT_HOT_KEYS, "Sessions that stand out", self.hot_keys.clone());
        it.register(
            ASSIGNMENT_PLANNING,
            "How long the last round of planning took",
            self.planning.clone(),
        );
    }
}

/// One pool's assignment at the time of a scrape.
#[derive(Clone, Copy, Debug)]
pub struct AssignmentGauges<'a> {
    pub totals: &'a SubsetTotals,
    pub balance: &'a Balance,
    pub slices: usize,
    pub hot_keys: usize,
    pub planning: Duration,
}

/// What requests of one pool touch.
#[derive(Clone, Debug)]
pub struct PoolMetrics {
    pool: String,
    answered: [Counter; 5],
    refused: Family<KindLabel, Counter>,
    tokens_counted: Family<KindLabel, Counter>,
    pub retries: Counter,
    /// Answers that broke off after their first byte.
    pub cut: Counter,
    /// Answers that broke off and went on from another replica.
    pub resumed: Counter,
    /// Requests whose client left.
    pub cancelled: Counter,
    pub tokens_input: Counter,
    pub tokens_cached: Counter,
    pub tokens_output: Counter,
    pub first_byte: Histogram,
    pub total: Histogram,
    /// From asking for a place to getting one.
    pub waited: Histogram,
}

/// One tenant's books at the time of a scrape.
#[derive(Clone, Debug)]
pub struct TenantGauges<'a> {
    pub tenant: &'a str,
    pub waiting: usize,
    /// Kind of use and model units since the start.
    pub used_mu: [(&'static str, f64); 3],
}

/// One pool's figures at the time of a scrape.
#[derive(Clone, Debug)]
pub struct PoolGauges {
    pub sessions_moved_total: u64,
    pub quarantined_total: u64,
    pub misses: Misses,
    pub shadows: Shadows,
    pub foresight: Foresight,
    /// By name.
    pub workloads: Vec<(String, Drift)>,
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
}

impl Default for Metrics {
    fn default() -> Self {
        let mut it = Self {
            registry: Registry::default(),
            requests: Family::default(),
            refused: Family::default(),
            retries: Family::default(),
            cut: Family::default(),
            resumed: Family::default(),
            cancelled: Family::default(),
            tokens: Family::default(),
            first_byte: Family::new_with_constructor(seconds),
            total: Family::new_with_constructor(seconds),
            connections: Gauge::default(),
            replica_up: Family::default(),
            replica_in_flight: Family::default(),
            replica_sessions: Family::default(),
            replica_sent: Family::default(),
            replica_failed: Family::default(),
            replica_report_age: Family::default(),
            replica_in_flight_mu: Family::default(),
            replica_pace: Family::default(),
            replica_work: Family::default(),
            workload_work: Family::default(),
            first_token_error: Family::default(),
            tokens_predicted: Family::default(),
            tokens_missed: Family::default(),
            tokens_counted: Family::default(),
            shadow_ttft: Family::default(),
            shadow_decisions: Family::default(),
            sessions_moved: Family::default(),
            assignment: AssignmentFamilies::default(),
            quarantined: Family::default(),
            line_wait: Family::new_with_constructor(seconds),
            line_waiting: Family::default(),
            tenant_work: Family::default(),
            tenant_waiting: Family::default(),
        };
        it.register();
        it.register_work();
        it.register_line();
        it
    }
}

impl Metrics {
    fn register(&mut self) {
        let it = &mut self.registry;
        it.register(REQUESTS, "Answers by status class", self.requests.clone());
        it.register(REFUSED, "Requests the router refused, by reason", self.refused.clone());
        it.register(RETRIES, "Tries after the first", self.retries.clone());
        it.register(CUT, "Answers that broke off after their first byte", self.cut.clone());
        it.register(RESUMED, "Answers that another replica went on with", self.resumed.clone());
        it.register(CANCELLED, "Requests whose client left", self.cancelled.clone());
        it.register(TOKENS, "Tokens as engines report them", self.tokens.clone());
        it.register(
            FIRST_BYTE,
            "Request received to first byte of the answer's body",
            self.first_byte.clone(),
        );
        it.register(TOTAL, "Request received to end of answer", self.total.clone());
        it.register(CONNECTIONS, "Open client connections", self.connections.clone());
        self.register_replicas();
    }

    fn register_replicas(&mut self) {
        let it = &mut self.registry;
        it.register(REPLICA_UP, "1 when the replica takes requests", self.replica_up.clone());
        it.register(
            REPLICA_IN_FLIGHT,
            "Requests at the replica now",
            self.replica_in_flight.clone(),
        );
        it.register(
            REPLICA_SESSIONS,
            "Sessions last served by the replica",
            self.replica_sessions.clone(),
        );
        it.register(
            REPLICA_SENT,
            "Requests sent to the replica since it joined",
            self.replica_sent.clone(),
        );
        it.register(
            REPLICA_FAILED,
            "Failures the replica was blamed for since it joined",
            self.replica_failed.clone(),
        );
        it.register(
            REPLICA_REPORT_AGE,
            "Age of what the engine last said of its load",
            self.replica_report_age.clone(),
        );
        self.register_decisions();
    }

    /// Registers what is told of decisions and sessions.
    fn register_decisions(&mut self) {
        let it = &mut self.registry;
        it.register(
            TOKENS_PREDICTED,
            "Tokens predicted at the decision, of requests whose count came",
            self.tokens_predicted.clone(),
        );
        it.register(
            TOKENS_MISSED,
            "Tokens predicted too many or too few",
            self.tokens_missed.clone(),
        );
        it.register(
            TOKENS_COUNTED,
            "Prompts given to the pool's tokenizer, by what came of it",
            self.tokens_counted.clone(),
        );
        it.register(
            SHADOW_TTFT,
            "Time to first token as predicted, where kept requests went and where others would send them",
            self.shadow_ttft.clone(),
        );
        it.register(
            SHADOW_DECISIONS,
            "Kept decisions that other policies were asked about",
            self.shadow_decisions.clone(),
        );
        self.assignment.register(it);
    }

    /// Registers what the books say, how far it was off, and what was done about trouble.
    fn register_work(&mut self) {
        let it = &mut self.registry;
        it.register(
            SESSIONS_MOVED,
            "Sessions that changed replica since the start",
            self.sessions_moved.clone(),
        );
        it.register(
            QUARANTINED,
            "Requests put under quarantine since the start",
            self.quarantined.clone(),
        );
        it.register(
            REPLICA_IN_FLIGHT_MU,
            "Work at the replica now, in model units",
            self.replica_in_flight_mu.clone(),
        );
        it.register(
            REPLICA_PACE,
            "How many times as long as its class promises things take",
            self.replica_pace.clone(),
        );
        it.register(
            REPLICA_WORK,
            "Work predicted, settled, and missed by the prediction, of requests that ended",
            self.replica_work.clone(),
        );
        it.register(WORKLOAD_WORK, "The same for each workload", self.workload_work.clone());
        it.register(
            FIRST_TOKEN_ERROR,
            "Error of predicted first tokens since the start, by quantile",
            self.first_token_error.clone(),
        );
    }

    fn register_line(&mut self) {
        let it = &mut self.registry;
        it.register(LINE_WAIT, "Time until a request is placed", self.line_wait.clone());
        it.register(LINE_WAITING, "Requests in the line", self.line_waiting.clone());
        it.register(
            TENANT_WORK,
            "Model units by tenant: guaranteed, burst, best_effort",
            self.tenant_work.clone(),
        );
        it.register(TENANT_WAITING, "Requests of a tenant in line", self.tenant_waiting.clone());
    }

    /// Makes the handles of one pool.
    pub fn pool(&self, pool: &str) -> PoolMetrics {
        let label = PoolLabel { pool: pool.to_owned() };
        let answered = ["1xx", "2xx", "3xx", "4xx", "5xx"].map(|kind| self.requests.of(pool, kind));
        PoolMetrics {
            pool: pool.to_owned(),
            answered,
            refused: self.refused.clone(),
            tokens_counted: self.tokens_counted.clone(),
            retries: self.retries.get_or_create_owned(&label),
            cut: self.cut.get_or_create_owned(&label),
            resumed: self.resumed.get_or_create_owned(&label),
            cancelled: self.cancelled.get_or_create_owned(&label),
            tokens_input: self.tokens.of(pool, "input"),
            tokens_cached: self.tokens.of(pool, "cached"),
            tokens_output: self.tokens.of(pool, "output"),
            first_byte: self.first_byte.get_or_create_owned(&label),
            total: self.total.get_or_create_owned(&label),
            waited: self.line_wait.get_or_create_owned(&label),
        }
    }

    /// Sets what is read off the pools only when somebody asks. Replicas that left disappear.
    pub fn set_pool<'a>(
        &self,
        pool: &str,
        own: PoolGauges,
        replicas: impl Iterator<Item = ReplicaGauges<'a>>,
    ) {
        let label = PoolLabel { pool: pool.to_owned() };
        let moved = own.sessions_moved_total;
        self.sessions_moved.get_or_create(&label).inner().store(moved, Relaxed);
        self.quarantined.get_or_create(&label).inner().store(own.quarantined_total, Relaxed);
        for (kind, miss) in [("input", own.misses.input), ("output", own.misses.output)] {
            let set = |family: &Family<_, _>, value| {
                family.of(pool, kind).inner().store(value, Relaxed);
            };
            set(&self.tokens_predicted, miss.predicted_tokens);
            set(&self.tokens_missed, miss.missed_tokens);
        }
        self.set_shadows(pool, &label, own.shadows);
        for (quantile, share) in [("0.5", 0.5), ("0.9", 0.9)] {
            let label = QuantileLabel { pool: pool.to_owned(), quantile };
            let error_s = own.foresight.error_ms(share) / 1e3;
            self.first_token_error.get_or_create(&label).set(error_s);
        }
        for (workload, drift) in &own.workloads {
            for (kind, us) in kinds(drift) {
                let (pool, workload) = (pool.to_owned(), workload.clone());
                let label = WorkloadLabel { pool, workload, kind };
                store_seconds(&self.workload_work.get_or_create(&label), us);
            }
        }
        for it in replicas {
            for (kind, us) in kinds(&it.drift) {
                let (pool, replica) = (pool.to_owned(), it.replica.to_owned());
                let label = WorkLabel { pool, replica, kind };
                store_seconds(&self.replica_work.get_or_create(&label), us);
            }
            let label = ReplicaLabel { pool: pool.to_owned(), replica: it.replica.to_owned() };
            self.replica_up.get_or_create(&label).set(it.up.into());
            self.replica_in_flight.get_or_create(&label).set(it.in_flight.into());
            self.replica_sessions.get_or_create(&label).set(it.sessions.into());
            self.replica_sent.get_or_create(&label).inner().store(it.sent_total, Relaxed);
            self.replica_failed.get_or_create(&label).inner().store(it.failed_total, Relaxed);
            self.replica_in_flight_mu.get_or_create(&label).set(it.in_flight_mu);
            self.replica_pace.get_or_create(&label).set(it.pace);
            if let Some(age) = it.report_age {
                self.replica_report_age.get_or_create(&label).set(age.as_secs_f64());
            }
        }
    }

    /// Sets what is told of a pool's assignment.
    pub fn set_assignment(&self, pool: &str, it: AssignmentGauges<'_>) {
        let label = PoolLabel { pool: pool.to_owned() };
        let count = |family: &Family<PoolLabel, Counter>, value: u64| {
            family.get_or_create(&label).inner().store(value, Relaxed);
        };
        let (own, totals, balance) = (&self.assignment, it.totals, it.balance);
        count(&own.moved_tokens, totals.moved_tokens);
        count(&own.spilled, totals.spilled);
        count(&own.rounds, totals.rounds);
        count(&own.changes, totals.changes);
        let kind = |kind| KindLabel { pool: pool.to_owned(), kind };
        let churn =
            [("removal", totals.removal), ("addition", totals.addition), ("choice", totals.choice)];
        for (name, value) in churn {
            own.churn.get_or_create(&kind(name)).inner().store(value.to_bits(), Relaxed);
        }
        for (name, value) in [
            ("mean", balance.mean),
            ("max", balance.max),
            ("min", balance.min),
            ("max_possible", balance.mean + balance.imbalance_bound),
            ("max_static", balance.static_max),
        ] {
            own.load.get_or_create(&kind(name)).set(value);
        }
        let whole = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        own.slices.get_or_create(&label).set(whole(it.slices));
        own.hot_keys.get_or_create(&label).set(whole(it.hot_keys));
        own.planning.get_or_create(&label).set(it.planning.as_secs_f64());
    }

    fn set_shadows(&self, pool: &str, label: &PoolLabel, shadows: Shadows) {
        let chosen = ("chosen", shadows.chosen_ttft_ms);
        let others = shadows.others_ttft_ms.map(|(policy, ms)| (policy.as_str(), ms));
        for (kind, ms) in std::iter::once(chosen).chain(others) {
            let label = KindLabel { pool: pool.to_owned(), kind };
            let seconds = (ms / 1e3).to_bits();
            self.shadow_ttft.get_or_create(&label).inner().store(seconds, Relaxed);
        }
        let decisions = shadows.decisions_total;
        self.shadow_decisions.get_or_create(label).inner().store(decisions, Relaxed);
    }

    /// Sets who waits and what tenants have used in a pool.
    pub fn set_line<'a>(
        &self,
        pool: &str,
        classes: impl Iterator<Item = (&'a str, usize)>,
        tenants: &[TenantGauges<'_>],
    ) {
        let count = |it: usize| i64::try_from(it).unwrap_or(i64::MAX);
        for (class, waiting) in classes {
            let label = ClassLabel { pool: pool.to_owned(), class: class.to_owned() };
            self.line_waiting.get_or_create(&label).set(count(waiting));
        }
        for (at, it) in tenants.iter().enumerate() {
            let name = if at < TENANTS_SHOWN_MAX { it.tenant } else { "other" };
            let (pool, tenant) = (pool.to_owned(), name.to_owned());
            for (kind, mu) in it.used_mu {
                let label = UseLabel { pool: pool.clone(), tenant: tenant.clone(), kind };
                self.tenant_work.get_or_create(&label).inc_by(mu);
            }
            let label = TenantLabel { pool, tenant };
            self.tenant_waiting.get_or_create(&label).inc_by(count(it.waiting));
        }
    }

    /// Forgets the figures of every replica, workload and tenant, before they are set anew.
    pub fn clear_replicas(&self) {
        self.replica_up.clear();
        self.replica_in_flight.clear();
        self.replica_sessions.clear();
        self.replica_sent.clear();
        self.replica_failed.clear();
        self.replica_report_age.clear();
        self.replica_in_flight_mu.clear();
        self.replica_pace.clear();
        self.replica_work.clear();
        self.workload_work.clear();
        self.line_waiting.clear();
        self.tenant_work.clear();
        self.tenant_waiting.clear();
    }

    /// Writes everything in the text format.
    pub fn write(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to a string does not fail");
        text
    }
}

impl PoolMetrics {
    pub fn on_answered(&self, status: u16) {
        let class = usize::from((status / 100).clamp(1, 5)) - 1;
        self.answered[class].inc();
    }

    /// Notes what came of counting a prompt.
    pub fn on_counted(&self, came: &'static str) {
        self.tokens_counted.of(&self.pool, came).inc();
    }

    pub fn on_refused(&self, reason: &'static str) {
        self.refused.of(&self.pool, reason).inc();
    }
}

/// A shorter word for the families with a kind.
trait Of {
    fn of(&self, pool: &str, kind: &'static str) -> Counter;
}

impl Of for Family<KindLabel, Counter> {
    fn of(&self, pool: &str, kind: &'static str) -> Counter {
        self.get_or_create_owned(&KindLabel { pool: pool.to_owned(), kind })
    }
}

fn kinds(drift: &Drift) -> [(&'static str, u64); 3] {
    let Drift { predicted_us, settled_us, missed_us } = *drift;
    [("predicted", predicted_us), ("settled", settled_us), ("missed", missed_us)]
}

fn store_seconds(counter: &RealCounter, us: u64) {
    counter.inner().store((ms(us) / 1e3).to_bits(), Relaxed);
}

fn seconds() -> Histogram {
    Histogram::new(SECONDS)
}

#[cfg(test)]
mod tests {
    use cleave_core::brain::{Brain, Settings};

    use super::*;

    /// A pool in which nothing has happened.
    fn idle() -> PoolGauges {
        let shadows = Brain::new(Settings::default()).shadows();
        PoolGauges {
            sessions_moved_total: 0,
            quarantined_total: 0,
            misses: Misses::default(),
            foresight: Foresight::default(),
            workloads: Vec::new(),
            shadows,
        }
    }

    #[test]
    fn the_guide_lists_every_metric_and_no_other() {
        let metrics = Metrics::default();
        metrics.pool("p").on_refused("r");
        metrics.pool("p").on_counted("late");
        let replica = ReplicaGauges {
            replica: "http://gpu-0:8000",
            up: true,
            in_flight: 1,
            sessions: 2,
            sent_total: 3,
            failed_total: 4,
            report_age: Some(Duration::from_millis(1500)),
            in_flight_mu: 0.25,
            pace: 1.0,
            drift: Drift { predicted_us: 2_500_000, ..Drift::default() },
        };
        let workloads = vec![("acme × chat".to_owned(), replica.drift)];
        let own = PoolGauges { workloads, ..idle() };
        metrics.set_pool("p", own, [replica].into_iter());
        let (totals, balance) = (SubsetTotals::default(), Balance::default());
        let (slices, hot_keys, planning) = (3, 1, Duration::from_millis(2));
        let assignment =
            AssignmentGauges { totals: &totals, balance: &balance, slices, hot_keys, planning };
        metrics.set_assignment("p", assignment);
        let tenant = TenantGauges { tenant: "t", waiting: 1, used_mu: [("burst", 2.5); 3] };
        metrics.set_line("p", [("batch", 3)].into_iter(), &[tenant]);
        let text = metrics.write();
        let written = text.lines().filter_map(|it| it.strip_prefix("# TYPE "));
        let mut written: Vec<&str> = written.filter_map(|it| it.split(' ').next()).collect();
        let guide = include_str!("../../../docs/guide/metrics.md");
        let listed = guide.lines().filter_map(|it| it.strip_prefix("| `")?.split('`').next());
        let mut listed: Vec<&str> = listed.map(|it| it.trim_end_matches("_total")).collect();
        written.sort_unstable();
        listed.sort_unstable();
        assert_eq!(written, listed);
        assert!(
            text.contains("cleave_replica_sent_total{pool=\"p\",replica=\"http://gpu-0:8000\"} 3")
        );
        assert!(text.contains("replica=\"http://gpu-0:8000\"} 1.5\n"));
        assert!(text.contains("workload=\"acme × chat\",kind=\"predicted\"} 2.5\n"), "{text}");
    }

    #[test]
    fn beyond_some_number_tenants_are_summed() {
        let metrics = Metrics::default();
        let names: Vec<String> = (0..1_000).map(|it| format!("t{it}")).collect();
        let used_mu = [("guaranteed", 1.0), ("burst", 0.0), ("best_effort", 0.0)];
        let tenants: Vec<TenantGauges<'_>> =
            names.iter().map(|it| TenantGauges { tenant: it, waiting: 1, used_mu }).collect();
        metrics.set_line("p", std::iter::empty(), &tenants);
        let text = metrics.write();
        assert!(text.contains("cleave_tenant_waiting{pool=\"p\",tenant=\"other\"} 900"));
        assert_eq!(text.matches("cleave_tenant_waiting{").count(), 101);
    }

    #[test]
    fn a_replica_that_left_is_not_reported() {
        let metrics = Metrics::default();
        let replica = ReplicaGauges {
            replica: "gone",
            up: true,
            in_flight: 0,
            sessions: 0,
            sent_total: 0,
            failed_total: 0,
            report_age: None,
            in_flight_mu: 0.0,
            pace: 1.0,
            drift: Drift::default(),
        };
        metrics.set_pool("p", idle(), [replica].into_iter());
        metrics.clear_replicas();
        assert!(!metrics.write().contains("gone"));
    }
}
