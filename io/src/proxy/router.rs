//! What all threads of the data plane share: pools, the table of models, limits and counters. Also
//! the slow work beside requests: asking replicas how they are, taking on a changed configuration.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use cleave_core::brain::{Event, Order};
use cleave_core::domain::{Moment, Place, RequestId};
use cleave_core::fleet::Probe;
use cleave_core::queue::Use;
use cleave_core::sharding::Generation;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::replicas::{Finding, Token, ask_models, ask_report, ask_token, probe};
use crate::telemetry::{
    AccessLog, AssignmentGauges, Events, Incident, Metrics, PoolGauges, ReplicaGauges, TenantGauges,
};

use super::assignment_file;
use super::buffers::Buffers;
use super::callers::Callers;
use super::clock::Clock;
use super::explanations::Explanations;
use super::pool::{Member, Pool, Question, keep_time};
use super::salts::Salts;
use super::settings::{PoolSettings, ProxySettings};
use super::table::Table;
use super::tenants::Tenants;
use super::workloads::WorkloadNames;

const TICK: Duration = Duration::from_millis(250);
/// How many ticks pass between two looks whether an assignment has changed.
const TICKS_TO_KEEP: u32 = 8;
/// How much longer the pause between two looks at an engine's metrics may get while it shows none.
const REPORT_PAUSE_FACTOR_MAX: u32 = 32;
/// Questions of one pool to its replicas that wait to be put.
const QUESTIONS_MAX: usize = 256;

#[derive(Debug)]
pub struct Router {
    pub(super) settings: ProxySettings,
    pub(super) clock: Clock,
    pub(super) access: AccessLog,
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
    /// Whether the operator was told that a replica asks for a key it does not get.
    pub(super) told_of_keys: AtomicBool,
    pub(super) tasks: TaskTracker,
    #[cfg(test)]
    pub(super) traps: super::testing::Traps,
}

impl Router {
    pub fn new(settings: ProxySettings, access: AccessLog) -> Arc<Self> {
        let buffers = Buffers::for_bodies(settings.limits.buffered_bytes_max);
        let explanations = Explanations::new(settings.explain.clone());
        let salts = Salts::new(settings.cache_secret.as_ref(), settings.state_dir.as_deref());
        Arc::new(Self {
            settings,
            salts,
            clock: Clock::start(),
            access,
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
            told_of_keys: AtomicBool::new(false),
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
        self.draining.store(true, Relaxed);
        self.events.publish(Incident { kind: "drain", state: "draining", ..Incident::default() });
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
            for member in pool.apply(settings, &self.replicas) {
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
        let mut kept = BTreeMap::new();
        for tick in 1_u32.. {
            ticks.tick().await;
            self.access.flush();
            if tick.is_multiple_of(TICKS_TO_KEEP) {
                self.keep(&mut kept);
            }
        }
    }

    /// Goes on from the assignment that an earlier run left.
    fn restore(&self, pool: &Pool) {
        let Some(folder) = &self.settings.state_dir else { return };
        let file = assignment_file::file_of(folder, self.settings.listen.port(), &pool.name);
        match assignment_file::read(&file) {
            Ok(None) => {}
            Ok(Some(assignment)) => {
                let generation = assignment.generation();
                info!(pool = pool.name, %generation, file = %file.display(), "assignment restored");
                pool.order(Order::Restore { assignment });
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
            let file = assignment_file::file_of(folder, self.settings.listen.port(), &pool.name);
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

    /// Probes one replica until it leaves.
    async fn watch(self: Arc<Self>, pool: Arc<Pool>, member: Arc<Member>) {
        let gone = member.gone.clone();
        gone.run_until_cancelled(async {
            let settings = pool.probe_settings();
            let mut ticks = interval(settings.interval);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            loop {
                ticks.tick().await;
                self.probe_once(&pool, &member).await;
            }
        })
        .await;
    }

    /// Asks replicas for a token when the brain wants to know, for as long as the pool has an
    /// owner.
    async fn put_questions(
        self: Arc<Self>,
        pool: Weak<Pool>,
        questions: Arc<tokio::sync::Mutex<mpsc::Receiver<Question>>>,
    ) {
        let mut questions = questions.lock().await;
        while let Some(Question { replica, limit }) = questions.recv().await {
            let Some(pool) = pool.upgrade() else { return };
            let Some(member) = pool.members().iter().find(|it| it.id == replica).cloned() else {
                continue;
            };
            let router = Arc::clone(&self);
            self.tasks.spawn(Arc::clone(&self).run_once(async move {
                let asked_at = router.clock.now();
                let model = pool.model_of(&member);
                let probe = match ask_token(&member.origin, &model, limit).await {
                    Token::Came => Probe::Generated,
                    Token::Unable => Probe::Unable,
                    Token::Failed => Probe::Failed,
                    Token::Refused => Probe::Refused,
                    Token::Missed => Probe::Mute { asked_at, last_byte_at: member.last_byte_at() },
                };
                pool.tell(Event::Probed { replica, probe });
            }));
        }
    }

    /// Asks one replica's engine how loaded it is, until it leaves. One that does not say is asked less
    /// and less often.
    async fn hear(self: Arc<Self>, pool: Arc<Pool>, member: Arc<Member>) {
        let gone = member.gone.clone();
        gone.run_until_cancelled(async {
            let mut factor = 1;
            loop {
                let settings = pool.probe_settings();
                sleep(settings.report_interval * factor).await;
                let asked_at = self.clock.now();
                factor = match ask_report(&member.origin, settings.timeout, asked_at).await {
                    Some((report, birth)) => {
                        if birth.is_some_and(|it| member.is_reborn(it)) {
                            pool.tell(Event::Restarted { replica: member.id });
                        }
                        pool.tell(Event::Reported { replica: member.id, report });
                        1
                    }
                    None => REPORT_PAUSE_FACTOR_MAX.min(2 * factor),
                };
            }
        })
        .await;
    }

    async fn probe_once(&self, pool: &Pool, member: &Member) {
        let settings = pool.probe_settings();
        let asked_at = self.clock.now();
        let probe = match probe(&member.origin, &settings).await {
            Finding::Passed => Probe::Passed,
            Finding::Failed => Probe::Failed,
            Finding::Refused => Probe::Refused,
            Finding::TimedOut => Probe::TimedOut { asked_at, last_byte_at: member.last_byte_at() },
            Finding::Nothing => return,
        };
        if probe == Probe::Passed
            && let Some(models) = ask_models(&member.origin, settings.timeout).await
        {
            if !pool.is_served_by(member, &models) {
                let probe = Probe::Stranger;
                pool.tell(Event::Probed { replica: member.id, probe });
                return;
            }
            // Before it may be chosen, its models are known: no client gets a 404 for want of time.
            let before = member.models.swap(Arc::new(models));
            let ids = |it: &[cleave_core::protocol::Model]| {
                it.iter().map(|it| it.id.clone()).collect::<Vec<_>>()
            };
            if ids(&before) != ids(&member.models.load()) {
                self.rebuild_table();
            }
        }
        pool.tell(Event::Probed { replica: member.id, probe });
    }

    fn rebuild_table(&self) {
        self.table.store(Arc::new(Table::build(&self.pools.load())));
    }
}
