//! `cleave serve`: read the configuration, bind, announce, serve, drain. A table of contents; what
//! each step means is said in the rooms it calls.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use cleave_io::admin::{self, AdminBindError, AdminServer, KedaServer};
use cleave_io::config::{self, Config, Flags};
use cleave_io::coordination::{self, Cluster};
use cleave_io::proxy::Router;
use cleave_io::scaling;
use cleave_io::telemetry::{self, AccessLog, Incident};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{interval, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

use crate::membership::Membership;
use crate::plane::{self, Role, announce};
use crate::stopping::Stopping;
use crate::successor;

/// How often the file is looked at for changes.
const LOOK: Duration = Duration::from_secs(1);
/// How long the process before us may take to close the admin port.
const ADMIN_WAIT: Duration = Duration::from_secs(5);
/// How long a successor waits to hear from its replicas.
const KNOW_WAIT: Duration = Duration::from_secs(5);
const POLL: Duration = Duration::from_millis(20);

/// Route requests to replicas
///
/// With a file: `cleave serve --config cleave.toml`. Without one, name the replicas:
/// `cleave serve --replica http://gpu-0:8000 --replica http://gpu-1:8000`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Serve {
    /// Read settings from this file; it is read again when it changes and on SIGHUP
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// A replica's address, once for each replica
    #[arg(long = "replica", value_name = "URL")]
    replicas: Vec<String>,
    /// Where clients connect [default: 127.0.0.1:8080]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,
    /// Where operators connect [default: 127.0.0.1:9090]
    #[arg(long, value_name = "ADDR")]
    admin: Option<String>,
    /// How replicas are chosen: `priced`, `session`, `round_robin`, `random`, `least_requests` or
    /// `power_of_two` [default: priced]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Another router to decide as one with, HOST:PORT of its `cluster.listen`, once for each
    #[arg(long = "join", value_name = "HOST:PORT")]
    join: Vec<String>,
    /// Take the listener from standard input, from the process that serves now
    #[arg(long, hide = true)]
    take_over: bool,
    /// Whether the router carries requests itself.
    #[arg(skip)]
    role: Role,
}

impl Serve {
    fn load(&self) -> Result<Config, config::Problems> {
        let flags = Flags {
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            policy: self.policy.clone(),
            replicas: self.replicas.clone(),
            join: self.join.clone(),
        };
        let loaded = config::load(self.config.as_deref(), config::environment(), flags);
        loaded.map(|it| self.role.adapt(it))
    }

    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.run_as(Role::Proxy)
    }

    pub(crate) fn run_as(mut self, role: Role) -> anyhow::Result<ExitCode> {
        self.role = role;
        let config = match self.load() {
            Ok(config) => config,
            Err(problems) => {
                telemetry::last_words(&problems.to_string());
                return Ok(ExitCode::from(crate::EX_USAGE));
            }
        };
        telemetry::start(&config.telemetry).context("log.level is not a filter")?;
        // Accepting, probing and the admin port have a thread of their own: a busy data plane must
        // not make its replicas look dead.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = runtime.block_on(self.serve(config));
        telemetry::finish();
        served.map(|()| ExitCode::SUCCESS)
    }

    async fn serve(self, config: Config) -> anyhow::Result<()> {
        let access = AccessLog::new(config.telemetry.format, config.telemetry.access_log);
        let router = Router::new(config.proxy.clone(), access);
        let given = self.take_over.then(successor::take_listener).transpose()?;
        let listener = plane::bind(&config, given)?;
        let replayer = std::env::current_exe().ok();
        let admin = admin::AdminSettings { replayer, ..config.admin.clone() };
        let port = RunningAdmin::open(&admin, &router, self.take_over).await?;
        let cluster = config.cluster.clone();
        let cluster = cluster.map(|it| Cluster::bind(it, Arc::clone(&router))).transpose()?;
        admin::answer_other_routers(&router);
        let membership = Membership::new(Arc::clone(&router));
        membership.configure(&config);
        if self.take_over {
            know_replicas(&router).await;
            coordination::take_over(&router).await;
        }
        announce(
            self.role,
            &config,
            listener.local_addr()?,
            (port.address, port.settings.keda_listen),
        )?;
        warn_of_open_admin(&config, &router, port.address);
        successor::tell_supervisor();

        let [stop, hurry, taken] = std::array::from_fn(|_| CancellationToken::new());
        let beside = Beside { router: Arc::clone(&router), tasks: TaskTracker::new() };
        let cluster = cluster.map(|(cluster, listener)| {
            let (own, listener) = (Arc::clone(&cluster), Arc::new(listener));
            beside.keep("cluster", move || Arc::clone(&own).run(Arc::clone(&listener)));
            cluster
        });
        let traced = Arc::clone(&router);
        beside.keep("traces", move || Arc::clone(&traced).send_traces());
        let recorded = Arc::clone(&router);
        beside.keep("recording", move || Arc::clone(&recorded).record());
        let scaled = Arc::clone(&router);
        beside.keep("scaling", move || scaling::run(Arc::clone(&scaled)));
        beside.keep("tick", move || Arc::clone(&router).tick());
        let handing = Arc::new(Handing {
            listener: listener.share()?,
            port: tokio::sync::Mutex::new(port),
            stop: stop.clone(),
            taken: taken.clone(),
        });
        beside.keep("handing over", move || or_warn(Arc::clone(&handing).wait()));
        let stopping = Arc::new(Stopping {
            router: Arc::clone(&beside.router),
            delay: config.proxy.timeouts.drain_delay,
            stop: stop.clone(),
            hurry: hurry.clone(),
        });
        beside.keep("signals", move || or_warn(Arc::clone(&stopping).wait()));
        let (role, served, config) = (self.role, Arc::clone(&beside.router), Arc::new(config));
        beside.keep("reload", move || {
            or_warn(self.clone().reload_on_change(Arc::clone(&config), Arc::clone(&membership)))
        });
        let cut = role.serve(listener, served, [stop, hurry, taken]).await?;
        if let Some(cluster) = cluster {
            cluster.leave().await;
        }
        beside.router.traces.finish().await;
        beside.router.recorder.finish();
        if cut == 0 {
            info!("drained, nothing cut");
        } else {
            warn!(requests_cut = cut, "drained, but not in time");
        }
        Ok(())
    }

    /// Takes on the configuration again whenever its file or one beside it (a key, a certificate) changes, or
    /// SIGHUP comes. A broken file changes nothing.
    async fn reload_on_change(
        self,
        running: Arc<Config>,
        membership: Arc<Membership>,
    ) -> anyhow::Result<()> {
        let mut hangups = signal(SignalKind::hangup())?;
        let mut looks = interval(LOOK);
        let mut files = running.files.clone();
        let mut seen = self.changed_at(&files);
        loop {
            let by = tokio::select! {
                _ = hangups.recv() => "SIGHUP",
                _ = looks.tick() => {
                    let now = self.changed_at(&files);
                    if now == seen {
                        continue;
                    }
                    seen = now;
                    "file"
                }
            };
            match self.load() {
                Err(problems) => {
                    error!("configuration not changed:\n{problems}");
                    let kept = "the file has problems; see the log".to_owned();
                    membership.router.events.publish(Incident {
                        kind: "reload",
                        state: "refused",
                        detail: Some(kept),
                        by: Some(by.to_owned()),
                        alert: true,
                        ..Incident::default()
                    });
                }
                Ok(new) => {
                    // Held against what runs, however often the file has changed since.
                    for setting in config::changes_static(&running, &new) {
                        warn!(setting, "changed in the file, needs a restart");
                    }
                    config::renew_tls(&running, &new);
                    membership.configure(&new);
                    if files != new.files {
                        files.clone_from(&new.files);
                        seen = self.changed_at(&files);
                    }
                    info!(pools = new.pools.len(), "configuration reloaded");
                    membership.router.on_reload(by);
                    membership.router.events.publish(Incident {
                        kind: "reload",
                        state: "reloaded",
                        by: Some(by.to_owned()),
                        ..Incident::default()
                    });
                }
            }
        }
    }

    /// Says when the configuration and the files beside it were changed; nothing for one that is not there.
    /// A file that was put in place of another is told by its number too: their times may be the same.
    fn changed_at(&self, beside: &[PathBuf]) -> Vec<Option<(SystemTime, u64, u64)>> {
        let changed = |file: &PathBuf| {
            let file = std::fs::metadata(file).ok()?;
            Some((file.modified().ok()?, file.len(), file.ino()))
        };
        self.config.iter().chain(beside).map(changed).collect()
    }
}

/// Tells operators that the admin port is open to all that reach it, where it is.
fn warn_of_open_admin(config: &Config, router: &Router, address: SocketAddr) {
    if !address.ip().is_loopback() && config.admin.tokens.is_empty() {
        router.events.publish(Incident {
            kind: "admin",
            state: "open",
            detail: Some(format!(
                "the admin port {address} is open beyond this machine and asks for no token: all that \
                 reach it can read everything and give orders (admin.tokens)"
            )),
            alert: true,
            ..Incident::default()
        });
    }
}

/// The admin port while it is served.
struct RunningAdmin {
    settings: admin::AdminSettings,
    router: Arc<Router>,
    address: SocketAddr,
    end: CancellationToken,
}

impl RunningAdmin {
    /// Opens the port; `patient` waits for the process before us to close it.
    async fn open(
        settings: &admin::AdminSettings,
        router: &Arc<Router>,
        patient: bool,
    ) -> anyhow::Result<Self> {
        let until = Instant::now() + ADMIN_WAIT;
        let (server, keda) = loop {
            match bind(settings, router).await {
                Ok(servers) => break servers,
                Err(_) if patient && Instant::now() < until => sleep(POLL).await,
                Err(error) => return Err(error.into()),
            }
        };
        let (address, end) = (server.local_addr()?, CancellationToken::new());
        let tasks = TaskTracker::new();
        tasks.spawn(server.run(end.clone()));
        let keda_listen = keda.as_ref().map(KedaServer::local_addr).transpose()?;
        if let Some(keda) = keda {
            tasks.spawn(keda.run(end.clone()));
        }
        // Opened again, it is where it was, even if the port was chosen by the system.
        let settings = admin::AdminSettings { listen: address, keda_listen, ..settings.clone() };
        let router = Arc::clone(router);
        Ok(Self { settings, router, address, end })
    }
}

/// Binds the ports of operators: the admin port, and KEDA's where it has one.
async fn bind(
    settings: &admin::AdminSettings,
    router: &Arc<Router>,
) -> Result<(AdminServer, Option<KedaServer>), AdminBindError> {
    let server = AdminServer::bind(settings, Arc::clone(router)).await?;
    let Some(address) = settings.keda_listen else { return Ok((server, None)) };
    Ok((server, Some(KedaServer::bind(address, Arc::clone(router)).await?)))
}

/// Waits until every replica was heard of, for a while: until then the process before us serves, and
/// it knows them.
async fn know_replicas(router: &Router) {
    let until = Instant::now() + KNOW_WAIT;
    let all_known = || {
        let pools = router.pools();
        pools.iter().all(|it| {
            let replicas = it.snapshot().replicas;
            !replicas.is_empty() && replicas.iter().all(|it| it.state != "joining")
        })
    };
    while !all_known() && Instant::now() < until {
        sleep(POLL).await;
    }
}

/// Tasks beside the data plane. One that panics is started again.
struct Beside {
    router: Arc<Router>,
    tasks: TaskTracker,
}

impl Beside {
    fn keep<F>(&self, task: &'static str, start: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(Arc::clone(&self.router).keep_up(task, start));
    }
}

/// Waits for a task to end, and says so if that is not as it should be.
async fn or_warn(task: impl Future<Output = anyhow::Result<()>>) {
    if let Err(error) = task.await {
        warn!("a task beside the data plane ended: {error:#}");
    }
}

/// What is handed to a successor.
struct Handing {
    listener: OwnedFd,
    port: tokio::sync::Mutex<RunningAdmin>,
    stop: CancellationToken,
    taken: CancellationToken,
}

impl Handing {
    /// On SIGUSR2 starts this program anew, on the same listener; once that serves, this one drains.
    async fn wait(self: Arc<Self>) -> anyhow::Result<()> {
        let mut port = self.port.lock().await;
        let mut asked = signal(SignalKind::user_defined2())?;
        while asked.recv().await.is_some() {
            info!("SIGUSR2: starting a successor");
            // There is one admin port, and the successor's is the one that matters.
            port.end.cancel();
            // The successor reads what is written down by now.
            port.router.flush();
            let starting = successor::start(self.listener.try_clone()?);
            let handing = async {
                coordination::hand_over(&port.router).await;
                std::future::pending::<()>().await;
            };
            let started = tokio::select! {
                started = starting => started,
                () = handing => continue,
            };
            match started {
                Ok(pid) => {
                    info!(pid, "successor serves: no new connections here, streams finish");
                    self.taken.cancel();
                    self.stop.cancel();
                    break;
                }
                Err(error) => {
                    error!("no successor, going on: {error:#}");
                    *port = RunningAdmin::open(&port.settings, &port.router, true).await?;
                }
            }
        }
        Ok(())
    }
}
