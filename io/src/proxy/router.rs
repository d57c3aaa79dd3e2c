//! What all threads of the data plane share: pools, the table of models, limits and counters. A
//! changed configuration is taken on here.

mod certificates;
mod flow;
mod keeping;
mod metering;
mod ordering;
mod probing;
mod recording;
mod scaling;

pub use ordering::{NotAudited, NotKept, NotOrdered, OnlyInForce};
pub use recording::NotRecorded;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use arc_swap::{ArcSwap, ArcSwapOption};
use cleave_core::brain::{Event, MoveTotals};
use cleave_core::cluster::{FoundOut, News};
use cleave_core::domain::{Moment, RequestId, RouterId};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

use crate::telemetry::{AccessLog, AuditLog, Events, Incident, Metrics, Recorder, Traces};
use crate::tls::{ExpiryWatch, OwnCertificate, ServerTls};

use super::announce::moved;
use super::buffers::Buffers;
use super::callers::Callers;
use super::clock::Clock;
use super::explanations::Explanations;
use super::flow::FlowHistory;
use super::kept_ids::KeptIdTable;
use super::pool::{Member, Pool, keep_time};
use super::salts::Salts;
use super::settings::{PoolSettings, ProxySettings};
use super::sharing::{ALL_POOLS, Sharing};
use super::table::Table;
use super::tenants::Tenants;
use super::workloads::{WorkloadNames, seeds};

const TICK: Duration = Duration::from_millis(250);
/// How many ticks pass between two looks whether an assignment has changed.
const TICKS_TO_KEEP: u32 = 8;
/// How many ticks pass between two events that tell of sessions which moved, and two looks at certificates.
const TICKS_TO_TELL: u32 = 240;
/// How many ticks make a second.
const TICKS_PER_SECOND: u32 = 4;
/// Questions of one pool to its replicas that wait to be put.
const QUESTIONS_MAX: usize = 256;

#[derive(Debug)]
pub struct Router {
    pub(crate) settings: ProxySettings,
    pub(super) clock: Clock,
    pub(super) access: AccessLog,
    audit: AuditLog,
    pub metrics: Metrics,
    /// Spans of requests on their way to a collector.
    pub traces: Traces,
    /// Requests on their way to a recording.
    pub recorder: Arc<Recorder>,
    /// Decisions that are kept.
    pub explanations: Explanations,
    /// How the last hour went.
    pub flow: FlowHistory,
    /// What operators are told.
    pub events: Arc<Events>,
    /// The room for request bodies, and what each caller has of it.
    pub(super) buffers: Arc<Buffers>,
    pub(super) callers: Callers,
    /// Keeps tenants apart in caches.
    pub(super) salts: Salts,
    /// Set once, before there are pools, where there may be other routers.
    sharing: OnceLock<Arc<Sharing>>,
    /// Where things are that engines keep by id.
    pub(super) kept_ids: KeptIdTable,
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
    /// Those of them and of all others that the router shows, as they were read, and which operators were told of.
    certificates: ArcSwap<Vec<OwnCertificate>>,
    certificate_watch: Mutex<ExpiryWatch>,
    /// What was said of each pool whose contracts cannot all be kept.
    overcommitted: Mutex<BTreeMap<String, String>>,
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
        let (bytes_max, port) = (settings.kept_ids_bytes_max, settings.listen.port());
        let metrics = Metrics::default();
        let seed = uuid::Uuid::new_v4().as_u64_pair().0;
        let traces = Traces::new(settings.traces.clone(), seed, metrics.span_counters());
        let recorder = Recorder::new(settings.record.clone(), metrics.record_counters());
        let kept_ids = KeptIdTable::new(bytes_max, settings.state_dir.as_deref(), port);
        Arc::new(Self {
            settings,
            tls,
            admin_tls: ArcSwapOption::default(),
            salts,
            kept_ids,
            clock: Clock::start(),
            access,
            audit,
            metrics,
            traces,
            recorder: Arc::new(recorder),
            explanations,
            flow: FlowHistory::default(),
            events: Arc::default(),
            buffers,
            callers: Callers::default(),
            sharing: OnceLock::new(),
            pools: ArcSwap::default(),
            table: ArcSwap::default(),
            tenants: ArcSwap::default(),
            requests: AtomicU64::new(0),
            replicas: AtomicU32::new(0),
            draining: AtomicBool::new(false),
            certificates: ArcSwap::default(),
            certificate_watch: Mutex::default(),
            overcommitted: Mutex::default(),
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
        // A pool that may have no replica gets one when it is asked for something.
        let any_up = |pool: &Arc<Pool>| {
            let is_up = || pool.snapshot().replicas.iter().any(|it| it.state == "up");
            pool.spec().scaling.as_ref().is_some_and(|it| it.min == 0) || is_up()
        };
        let is_joining = self.sharing().is_some_and(|it| it.is_joining());
        !self.is_draining() && !is_joining && self.pools.load().iter().any(any_up)
    }

    /// Has pools tell other routers what they do; said once, before there are any.
    pub fn share(&self, sharing: Arc<Sharing>) {
        self.kept_ids.share(Arc::clone(&sharing));
        _ = self.sharing.set(sharing);
    }

    /// Takes in what another router told of a pool, or beside all pools.
    pub fn on_heard(&self, router: RouterId, pool: u64, news: Vec<News>, is_whole: bool) {
        if let Some(it) = self.pools.load().iter().find(|it| it.key() == pool) {
            return self.on_pool_heard(it, (router, news, is_whole));
        }
        for it in news {
            if let News::Found(FoundOut::Kept { rows }) = it {
                self.kept_ids.hear(rows);
            }
        }
    }

    /// Lists everything that a router must be told that knows nothing, pool by pool.
    pub fn whole(&self) -> Vec<(u64, Vec<News>)> {
        let kept = self.kept_ids.told().into_iter().map(News::Found).collect();
        let pools = self.pools.load();
        let pools = pools.iter().map(|it| (it.key(), it.whole()));
        [(ALL_POOLS, kept)].into_iter().chain(pools).collect()
    }

    /// Where other routers are told what happens; nothing for a router that is alone.
    pub fn sharing(&self) -> Option<&Arc<Sharing>> {
        self.sharing.get()
    }

    /// Where things are kept that outlive the process.
    pub fn state_dir(&self) -> Option<&Path> {
        self.settings.state_dir.as_deref()
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

    /// Names the workloads of a pool, each with the number that its sessions are hashed with.
    pub fn workload_seeds(&self, pool: &Pool) -> Vec<(String, u64)> {
        seeds(pool, &self.tenants())
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
            self.warn_of_contracts(&settings, &tenants);
            let pool = old.iter().find(|it| it.name == settings.name).cloned();
            let pool = pool.unwrap_or_else(|| {
                let metrics = self.metrics.pool(&settings.name);
                let events = Arc::clone(&self.events);
                let (questions, coming) = mpsc::channel(QUESTIONS_MAX);
                let sharing = self.sharing().cloned();
                let pool =
                    Pool::new(settings.clone(), metrics, self.clock, events, questions, sharing);
                self.restore(&pool);
                self.restore_orders(&pool);
                self.recall(&pool);
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

    /// Warns of contracts that cannot all be kept, once for each change.
    fn warn_of_contracts(&self, pool: &PoolSettings, tenants: &Tenants) {
        let warning = tenants.overcommitment(pool);
        let mut told = self.overcommitted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(warning) = warning.as_ref().filter(|it| told.get(&pool.name) != Some(it)) {
            warn!("{warning}");
        }
        match warning {
            Some(warning) => _ = told.insert(pool.name.clone(), warning),
            None => _ = told.remove(&pool.name),
        }
    }

    /// Has a replica probed and asked for its load until it leaves.
    fn look_after(self: &Arc<Self>, pool: &Arc<Pool>, member: &Arc<Member>) {
        let (router, pool, member) = (Arc::clone(self), Arc::clone(pool), Arc::clone(member));
        let (other, of, asked) = (router.clone(), pool.clone(), member.clone());
        self.spawn_kept("probes", move || router.clone().watch(pool.clone(), member.clone()));
        self.spawn_kept("reports", move || other.clone().hear(of.clone(), asked.clone()));
    }

    /// Runs until stopped: sends the spans of requests to their collector.
    pub async fn send_traces(self: Arc<Self>) {
        self.traces.run().await;
    }

    /// Runs until stopped: small things that must happen though nothing else does.
    pub async fn tick(self: Arc<Self>) {
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut kept, mut drained) = (BTreeMap::new(), BTreeSet::new());
        let mut told = BTreeMap::new();
        let mut kept_costs = BTreeMap::new();
        for tick in 1_u32.. {
            let due = ticks.tick().await;
            self.metrics.on_lag("main", due.elapsed());
            self.access.flush();
            if tick.is_multiple_of(TICKS_TO_KEEP) {
                self.keep(&mut kept);
                self.keep_costs(&mut kept_costs);
                self.notice_drained(&mut drained);
                self.kept_ids.keep();
            }
            if tick.is_multiple_of(TICKS_PER_SECOND * self.flow.sample_seconds()) {
                self.sample_flow();
            }
            if tick.is_multiple_of(TICKS_TO_TELL) {
                self.tell_moves(&mut told);
                self.tell_certificates();
            }
        }
    }

    /// Tells of the sessions that moved since `told`, in one event for each pool.
    fn tell_moves(&self, told: &mut BTreeMap<String, MoveTotals>) {
        for pool in self.pools.load().iter() {
            let now = pool.snapshot().sessions_moved;
            let before = told.insert(pool.name.clone(), now).unwrap_or_default();
            if let Some(incident) = moved(&pool.name, &before, &now) {
                self.events.publish(incident);
            }
        }
    }

    /// Hands on the last access lines, and writes down the last ids.
    pub fn flush(&self) {
        self.access.flush();
        self.kept_ids.keep();
    }

    /// Counts the requests that each other router has in flight, over all pools.
    pub fn heard_in_flight(&self) -> BTreeMap<RouterId, usize> {
        let mut all = BTreeMap::new();
        for (router, count) in self.pools.load().iter().flat_map(|it| it.heard_in_flight()) {
            *all.entry(router).or_default() += count;
        }
        all
    }

    fn rebuild_table(&self) {
        self.table.store(Arc::new(Table::build(&self.pools.load())));
    }
}
