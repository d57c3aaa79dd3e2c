//! What all threads of the data plane share: pools, the table of models, limits and counters. A
//! changed configuration is taken on here.

mod ordering;
mod probing;

pub use ordering::NotAudited;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use cleave_core::brain::{Event, Order};
use cleave_core::domain::{Moment, Place, RequestId};
use cleave_core::queue::Use;
use cleave_core::sharding::Generation;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_rustls::TlsAcceptor;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::telemetry::{
    AccessLog, AssignmentGauges, AuditLog, Events, Incident, Metrics, PoolGauges, ReplicaGauges,
    TenantGauges,
};
use crate::tls::ServerTls;

use super::assignment_file;
use super::buffers::Buffers;
use super::callers::Callers;
use super::clock::Clock;
use super::explanations::Explanations;
use super::pool::{Member, Pool, keep_time};
use super::salts::Salts;
use super::settings::{PoolSettings, ProxySettings};
use super::table::Table;
use super::tenants::Tenants;
use super::workloads::WorkloadNames;

const TICK: Duration = Duration::from_millis(250);
/// How many ticks pass between two looks whether an assignment has changed.
const TICKS_TO_KEEP: u32 = 8;
/// Questions of one pool to its replicas that wait to be put.
const QUESTIONS_MAX: usize = 256;

#[derive(Debug)]
pub struct Router {
    pub(super) settings: ProxySettings,
    pub(super) clock: Clock,
    pub(super) access: AccessLog,
    audit: AuditLog,
    pub metrics: Metrics,
    /// Decisions that are kept.
    pub explanations: Explanations,
    /// What operators are told.
    pub events: Arc<Events>,
    /// The room for request bodies, and what each caller has of it.
    pub(super) buffers: Arc<Buffers>,
    pub(super) callers: Callers,
    /// Keeps tenants apart in caches.
    pub(super) salts: Salts,
    pools: ArcSwap<Vec<Arc<Pool>>>,
    table: ArcSwap<Table>,
    tenants: ArcSwap<Tenants>,
    requests: AtomicU64,
    replicas: AtomicU32,
    draining: AtomicBool,
    /// The certificate that clients see, taken up anew when its files change.
    tls: ArcSwapOption<ServerTls>,
    /// The same for operators.
    admin_tls: ArcSwapOption<ServerTls>,
    pub(super) tasks: TaskTracker,
    #[cfg(test)]
    pub(super) traps: super::testing::Traps,
}

impl Router {
    pub fn new(settings: ProxySettings, access: AccessLog) -> Arc<Self> {
        let buffers = Buffers::for_bodies(settings.limits.buffered_bytes_max);
        let explanations = Explanations::new(settings.explain.clone());
        let salts = Salts::new(settings.cache_secret.as_ref(), settings.state_dir.as_deref());
        let tls = ArcSwapOption::from_pointee(settings.tls.clone());
        let audit = AuditLog(settings.audit_file.clone());
        Arc::new(Self {
            settings,
            tls,
            admin_tls: ArcSwapOption::default(),
            salts,
            clock: Clock::start(),
            access,
            audit,
            metrics: Metrics::default(),
            explanations,
            events: Arc::default(),
            buffers,
            callers: Callers::default(),
            pools: ArcSwap::default(),
            table: ArcSwap::default(),
            tenants: ArcSwap::default(),
            requests: AtomicU64::new(0),
            replicas: AtomicU32::new(0),
            draining: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            #[cfg(test)]
            traps: super::testing::Traps::default(),
        })
    }

    /// The time by which pools and their reports are dated.
    pub fn now(&self) -> Moment {
        self.clock.now()
    }

    pub fn pools(&self) -> Arc<Vec<Arc<Pool>>> {
        self.pools.load_full()
    }

    /// Requests that were taken and have not ended.
    pub fn in_flight(&self) -> usize {
        self.pools.load().iter().map(|it| it.snapshot().requests_in_flight).sum()
    }

    /// Tells whether a client would be served: some replica is up, and the router is staying.
    pub fn is_ready(&self) -> bool {
        let any_up = |pool: &Arc<Pool>| pool.snapshot().replicas.iter().any(|it| it.state == "up");
        !self.is_draining() && self.pools.load().iter().any(any_up)
    }

    pub fn is_draining(&self) -> bool {
        self.draining.load(Relaxed)
    }

    pub fn start_draining(&self) {
        if self.draining.swap(true, Relaxed) {
            return;
        }
        self.events.publish(Incident { kind: "drain", state: "draining", ..Incident::default() });
    }

    /// Takes up a certificate that was read again. Whether there is TLS at all is settled at the start.
    pub fn renew_certificate(&self, new: Option<&ServerTls>) {
        if let (Some(_), Some(new)) = (&self.settings.tls, new) {
            self.tls.store(Some(Arc::new(new.clone())));
        }
    }

    /// Takes up the admin port's certificate at its start.
    pub(crate) fn set_admin_certificate(&self, own: Option<&ServerTls>) {
        self.admin_tls.store(own.cloned().map(Arc::new));
    }

    /// Takes up the admin port's certificate when it was read again.
    pub fn renew_admin_certificate(&self, new: Option<&ServerTls>) {
        if self.admin_tls.load().is_some() && new.is_some() {
            self.set_admin_certificate(new);
        }
    }

    pub(crate) fn admin_acceptor(&self) -> Option<TlsAcceptor> {
        self.admin_tls.load().as_ref().map(|it| it.acceptor())
    }

    pub(super) fn acceptor(&self) -> Option<TlsAcceptor> {
        self.tls.load().as_ref().map(|it| it.acceptor())
    }

    pub(super) fn table(&self) -> Arc<Table> {
        self.table.load_full()
    }

    /// Tenants by their keys.
    pub fn tenants(&self) -> Arc<Tenants> {
        self.tenants.load_full()
    }

    /// Tells what the workloads of a pool are called.
    pub fn workload_names(&self, pool: &Pool) -> WorkloadNames {
        WorkloadNames::of(pool, &self.tenants())
    }

    pub(super) fn next_request(&self) -> RequestId {
        RequestId(self.requests.fetch_add(1, Relaxed))
    }

    /// Takes on tenants and pools as configured, at the start or later. Needs a tokio runtime, on
    /// which new replicas are probed.
    pub fn apply(self: &Arc<Self>, configured: Vec<PoolSettings>, tenants: Tenants) {
        let old = self.pools();
        let mut pools = Vec::with_capacity(configured.len());
        for settings in configured {
            let pool = old.iter().find(|it| it.name == settings.name).cloned();
            let pool = pool.unwrap_or_else(|| {
                let metrics = self.metrics.pool(&settings.name);
                let events = Arc::clone(&self.events);
                let (questions, coming) = mpsc::channel(QUESTIONS_MAX);
                let pool = Pool::new(settings.clone(), metrics, self.clock, events, questions);
                self.restore(&pool);
                self.restore_orders(&pool);
                let timed = Arc::downgrade(&pool);
                self.spawn_kept("timer", move || keep_time(timed.clone()));
                let (router, asked) = (Arc::clone(self), Arc::downgrade(&pool));
                let coming = Arc::new(tokio::sync::Mutex::new(coming));
                self.spawn_kept("questions", move || {
                    Arc::clone(&router).put_questions(asked.clone(), Arc::clone(&coming))
                });
                pool
            });
            pool.tell(Event::Contracted { limits: tenants.limits(&pool.name) });
            let joined = pool.apply(settings, &self.replicas);
            if !joined.is_empty() {
                pool.repeat_orders();
            }
            for member in joined {
                self.look_after(&pool, &member);
            }
            pools.push(pool);
        }
        for gone in old.iter().filter(|it| pools.iter().all(|kept| kept.name != it.name)) {
            let settings = PoolSettings { replicas: Vec::new(), ..(*gone.spec()).clone() };
            gone.apply(settings, &self.replicas);
            info!(pool = gone.name, "pool removed");
        }
        self.pools.store(Arc::new(pools));
        self.tenants.store(Arc::new(tenants));
        self.rebuild_table();
    }

    /// Has a replica probed and asked for its load until it leaves.
    fn look_after(self: &Arc<Self>, pool: &Arc<Pool>, member: &Arc<Member>) {
        let (router, pool, member) = (Arc::clone(self), Arc::clone(pool), Arc::clone(member));
        let (other, of, asked) = (router.clone(), pool.clone(), member.clone());
        self.spawn_kept("probes", move || router.clone().watch(pool.clone(), member.clone()));
        self.spawn_kept("reports", move || other.clone().hear(of.clone(), asked.clone()));
    }

    /// Runs until stopped: small things that must happen though nothing else does.
    pub async fn tick(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut kept, mut drained) = (BTreeMap::new(), BTreeSet::new());
        for tick in 1_u32.. {
            ticks.tick().await;
            self.access.flush();
            if tick.is_multiple_of(TICKS_TO_KEEP) {
                self.keep(&mut kept);
                self.notice_drained(&mut drained);
            }
        }
    }

    /// Goes on from the assignment that an earlier run left.
    fn restore(&self, pool: &Pool) {
        let Some(folder) = &self.settings.state_dir else { return };
        let file = self.file_of(folder, "assignment", pool);
        match assignment_file::read(&file) {
            Ok(None) => {}
            Ok(Some(assignment)) => {
                let generation = assignment.generation();
                info!(pool = pool.name, %generation, file = %file.display(), "assignment restored");
                pool.tell(Event::Ordered(Order::Restore { assignment }));
            }
            Err(error) => {
                warn!(pool = pool.name, file = %file.display(), %error, "assignment not restored");
            }
        }
    }

    /// Writes the assignments that have changed since `kept`.
    fn keep(&self, kept: &mut BTreeMap<String, Generation>) {
        let Some(folder) = &self.settings.state_dir else { return };
        for pool in self.pools.load().iter() {
            let view = pool.assignment();
            if view.assignment.is_empty() || kept.get(&pool.name) == Some(&view.generation) {
                continue;
            }
            let names = pool.snapshot().replicas.into_iter();
            let names = names.map(|it| (Place::of(&it.name), it.name)).collect();
            let file = self.file_of(folder, "assignment", pool);
            if let Err(error) = assignment_file::write(&file, &view, &names) {
                warn!(pool = pool.name, file = %file.display(), %error, "assignment not kept");
            }
            // Said once for each change, not every few seconds.
            kept.insert(pool.name.clone(), view.generation);
        }
    }

    /// Hands on the last access lines.
    pub fn flush(&self) {
        self.access.flush();
    }

    /// Writes all metrics, with those of pools and replicas as they are now.
    pub fn write_metrics(&self) -> String {
        self.metrics.clear_replicas();
        self.metrics.set_log_lines_dropped(self.access.dropped_total());
        let (now, known) = (self.clock.now(), self.tenants());
        for pool in self.pools.load().iter() {
            let snapshot = pool.snapshot();
            let (members, orders) = (pool.members(), pool.orders());
            let denied = |name: &str| {
                let member = members.iter().find(|it| it.origin.as_str() == name);
                member.map_or(0, |it| it.denied_total())
            };
            let gauges = snapshot.replicas.iter().map(|it| ReplicaGauges {
                replica: &it.name,
                up: it.state == "up",
                in_flight: it.in_flight,
                sessions: it.sessions,
                sent_total: it.sent_total,
                failed_total: it.failed_total,
                report_age: it.report.map(|report| now.since(report.taken_at)),
                in_flight_mu: it.in_flight_mu,
                pace: it.pace,
                drift: it.drift,
                denied_total: denied(&it.name),
                is_drained: orders.drained.contains_key(&it.name),
                capacity_mu_per_min: it.capacity_mu_per_min,
                engine: it.report.map(|it| (it.waiting, it.running, it.kv_used_share)),
            });
            let names = WorkloadNames::of(pool, &known);
            let own = PoolGauges {
                sessions_moved_total: snapshot.sessions_moved_total,
                quarantined_total: snapshot.quarantined_total,
                misses: snapshot.misses,
                shadows: pool.shadows(),
                ttft_error: snapshot.ttft_error.clone(),
                workloads: pool
                    .workload_drifts()
                    .into_iter()
                    .map(|it| (names.name(it.workload), it.drift))
                    .collect(),
            };
            self.metrics.set_pool(&pool.name, &own, gauges);
            let view = pool.assignment();
            let assignment = AssignmentGauges {
                totals: &view.totals,
                balance: &view.balance,
                slices: view.slices.len(),
                hot_keys: view.hot_keys.len(),
                planning: pool.planning(),
            };
            self.metrics.set_assignment(&pool.name, assignment);
            let classes = &snapshot.queue.classes;
            let books = pool.tenants();
            let tenants = books.iter().map(|it| TenantGauges {
                tenant: known.name(it.tenant).unwrap_or("default"),
                waiting: it.waiting,
                used_mu: Use::ALL
                    .map(|kind| (kind.as_str(), it.usage.used[kind.index()].work.as_mu())),
            });
            self.metrics.set_line(
                &pool.name,
                classes.iter().map(|(name, it)| (name.as_str(), it.count)),
                &tenants.collect::<Vec<_>>(),
            );
        }
        self.metrics.write()
    }

    fn rebuild_table(&self) {
        self.table.store(Arc::new(Table::build(&self.pools.load())));
    }
}
