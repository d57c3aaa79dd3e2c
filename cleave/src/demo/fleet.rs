//! Mock replicas and a router in this process, joined by TCP as they would be between machines. One
//! router for the whole demo: to change the policy it is given another pool of fresh replicas, as a
//! changed file would do, so the address that was printed stays good.

use std::collections::BTreeMap;
use std::future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use cleave_core::brain::{self, TtftError};
use cleave_core::policy::PolicyKind;
use cleave_io::admin::{AdminBindError, AdminServer, AdminSettings};
use cleave_io::proxy::{
    BindError, CacheScope, ExplainSettings, HardwareClasses, Hosting, Limits, Listener, Passing,
    PoolSettings, ProxySettings, ReplicaSettings, Router, Server, Tenants, Timeouts,
    default_session_headers,
};
use cleave_io::replicas::{Access, Origin, ProbeSettings};
use cleave_io::telemetry::{AccessLog, LogFormat, RecordSettings};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use crate::mock::{self, Replica};

/// The model that all clients ask for.
pub(super) const MODEL: &str = "mock-8b";
const NAME_PREFIX: &str = "replica-";
/// Where clients connect unless told otherwise, or unless the port is taken.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);
/// The same for operators.
const ADMIN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 9090);
/// The share of requests whose decision the page can show.
const EXPLAINED: f64 = 0.25;
/// For replicas on this machine to pass their first probe.
const START_MAX: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(5);
/// For a stream that is tried by hand when the demo ends.
const DRAIN: Duration = Duration::from_secs(1);

/// A router and its replicas; dropping it ends the replicas.
#[derive(Debug)]
pub(super) struct DemoFleet {
    pub(super) address: SocketAddr,
    router: Arc<Router>,
    stop: CancellationToken,
    server: JoinSet<io::Result<usize>>,
    /// What runs beside the server; ends with the fleet.
    beside: JoinSet<()>,
    replicas: Vec<(Origin, Replica)>,
    engines: JoinSet<()>,
}

/// What a replica is busy with at the moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Busy {
    /// Requests the router has there.
    pub(super) in_flight: u32,
    /// Requests in the engine's line.
    pub(super) waiting: usize,
    /// Requests in the engine's batch.
    pub(super) running: usize,
}

impl DemoFleet {
    /// Starts the router, which has no replicas yet.
    pub(super) fn start(
        listen: Option<SocketAddr>,
        record: &RecordSettings,
    ) -> anyhow::Result<Self> {
        let (router, listener) = if let Some(address) = listen {
            bind(address, record)?
        } else {
            let free = || bind(SocketAddr::new(LISTEN.ip(), 0), record);
            bind(LISTEN, record).or_else(|_| free())?
        };
        let address = listener.local_addr()?;
        let server = Server::new(Arc::clone(&router), listener);
        let stop = CancellationToken::new();
        let mut running = JoinSet::new();
        running.spawn(server.run(stop.clone(), stop.clone(), CancellationToken::new()));
        let mut beside = JoinSet::new();
        // A phase lasts seconds.
        router.flow.sample_every_second();
        beside.spawn(Arc::clone(&router).tick());
        beside.spawn(Arc::clone(&router).record());
        Ok(Self {
            address,
            router,
            stop,
            server: running,
            beside,
            replicas: Vec::new(),
            engines: JoinSet::new(),
        })
    }

    /// Opens the admin port with the page, which shows the pools of `compared` side by side.
    pub(super) async fn open_admin(
        &mut self,
        listen: Option<SocketAddr>,
        compared: Vec<String>,
    ) -> anyhow::Result<SocketAddr> {
        let listen_at = async |listen| {
            let (tokens, tls, hosts, compared) = (Vec::new(), None, Vec::new(), compared.clone());
            let (replayer, keda_listen) = (std::env::current_exe().ok(), None);
            let settings =
                AdminSettings { listen, keda_listen, tokens, tls, hosts, compared, replayer };
            AdminServer::bind(&settings, Arc::clone(&self.router)).await
        };
        let server: Result<AdminServer, AdminBindError> = match listen {
            Some(address) => listen_at(address).await,
            None => match listen_at(ADMIN).await {
                Err(_) => listen_at(SocketAddr::new(ADMIN.ip(), 0)).await,
                bound => bound,
            },
        };
        let server = server?;
        let address = server.local_addr()?;
        self.beside.spawn(server.run(self.stop.clone()));
        Ok(address)
    }

    /// Replaces all replicas by `count` fresh ones with cold caches, chosen by `policy` from now on.
    pub(super) async fn renew(
        &mut self,
        policy: PolicyKind,
        count: usize,
        settings: &mock::Settings,
    ) -> anyhow::Result<()> {
        let mut replicas = Vec::with_capacity(count);
        let mut engines = JoinSet::new();
        for number in 0..count {
            let listener = TcpListener::bind((LISTEN.ip(), 0)).await?;
            let origin: Origin = format!("http://{}", listener.local_addr()?).parse()?;
            let replica = Replica::new(format!("{NAME_PREFIX}{number}"), settings.clone());
            replicas.push((origin, replica.clone()));
            engines.spawn(async move { _ = replica.serve(listener, future::pending()).await });
        }
        let origins = replicas.iter().map(|(origin, _)| origin.clone());
        self.router.apply(vec![pool(policy, origins)], Tenants::default());
        // Only now the old ones end: no request is sent to a replica that is gone.
        (self.replicas, self.engines) = (replicas, engines);
        timeout(START_MAX, self.all_up()).await.context("the mock replicas did not start")
    }

    async fn all_up(&self) {
        let is_up = |pool: &cleave_io::proxy::Pool| {
            pool.snapshot().replicas.iter().all(|it| it.state == "up")
        };
        while !self.router.pools().iter().all(|it| is_up(it)) {
            sleep(LOOK).await;
        }
    }

    /// Looks at every replica, in the order of their numbers.
    pub(super) fn busy(&self) -> Vec<Busy> {
        let in_flight: BTreeMap<String, u32> = (self.router.pools().iter())
            .flat_map(|pool| pool.snapshot().replicas)
            .map(|it| (it.name, it.in_flight))
            .collect();
        let look = |(origin, replica): &(Origin, Replica)| {
            let stats = replica.stats();
            let in_flight = in_flight.get(origin.as_str()).copied().unwrap_or(0);
            Busy { in_flight, waiting: stats.waiting, running: stats.running }
        };
        self.replicas.iter().map(look).collect()
    }

    /// Says how well first tokens were predicted since the replicas were renewed.
    pub(super) fn ttft_error(&self) -> TtftError {
        let mut all = TtftError::default();
        self.router.pools().iter().for_each(|it| all.merge(&it.snapshot().ttft_error));
        all
    }

    /// Takes no more requests, lets those in flight finish for a moment, ends.
    pub(super) async fn stop(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while let Some(ended) = self.server.join_next().await {
            ended??;
        }
        self.router.recorder.finish();
        Ok(())
    }
}

/// Reads the number of a replica off its name.
pub(super) fn replica_number(name: &str) -> Option<usize> {
    name.strip_prefix(NAME_PREFIX)?.parse().ok()
}

fn bind(listen: SocketAddr, record: &RecordSettings) -> Result<(Arc<Router>, Listener), BindError> {
    let settings = ProxySettings {
        listen,
        tls: None,
        threads: std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN),
        limits: Limits::default(),
        timeouts: Timeouts { drain: DRAIN, ..Timeouts::default() },
        workload_header: None,
        session_headers: default_session_headers(),
        state_dir: None,
        audit_file: None,
        kept_ids_bytes_max: 1 << 20,
        cache_secret: None,
        explain: ExplainSettings { sample: EXPLAINED, ..ExplainSettings::default() },
        traces: None,
        record: record.clone(),
        paths_allowed: Vec::new(),
    };
    let listener = Listener::bind(listen, settings.limits.connections_max, None)?;
    // Lines about requests would run through the live view.
    let router = Router::new(settings, AccessLog::new(LogFormat::Text, false));
    Ok((router, listener))
}

/// Names the pool after its policy: another name is another pool, with a brain of its own.
fn pool(policy: PolicyKind, origins: impl Iterator<Item = Origin>) -> PoolSettings {
    let replica = |origin| ReplicaSettings {
        origin,
        weight: 1.0,
        hardware: Arc::default(),
        zone: None,
        access: Access::default(),
        hosting: Hosting::default(),
    };
    PoolSettings {
        name: policy.to_string(),
        models: vec![MODEL.to_owned()],
        aliases: BTreeMap::new(),
        replicas: origins.map(replica).collect(),
        access: Access::default(),
        classes: HardwareClasses::default(),
        cache: CacheScope::Shared,
        tokenizer: None,
        brain: brain::Settings { policy, ..brain::Settings::default() },
        probe: ProbeSettings::default(),
        resume: false,
        passing: Passing::default(),
        scaling: None,
        is_whole: true,
    }
}
