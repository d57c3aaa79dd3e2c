//! `cleave serve`: read the configuration, bind, announce, serve, drain. A table of contents; what
//! each step means is said in the rooms it calls.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use cleave_io::admin::AdminServer;
use cleave_io::config::{self, Config, Flags};
use cleave_io::proxy::{Router, Server};
use cleave_io::telemetry::{self, AccessLog};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::interval;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{error, info, warn};

/// How often the file is looked at for changes.
const LOOK: Duration = Duration::from_secs(1);

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
    /// How replicas are chosen: `session`, `round_robin`, `random`, `least_requests`, `power_of_two`
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
}

impl Serve {
    fn load(&self) -> Result<Config, config::Problems> {
        let flags = Flags {
            listen: self.listen.clone(),
            admin: self.admin.clone(),
            policy: self.policy.clone(),
            replicas: self.replicas.clone(),
        };
        config::load(self.config.as_deref(), config::environment(), flags)
    }

    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let config = match self.load() {
            Ok(config) => config,
            Err(problems) => {
                _ = writeln!(std::io::stderr(), "{problems}");
                return Ok(ExitCode::from(crate::EX_USAGE));
            }
        };
        telemetry::start(&config.telemetry).context("log.level is not a filter")?;
        raise_file_limit(config.proxy.limits.connections_max);
        // Accepting, probing and the admin port have a thread of their own: a busy data plane must
        // not make its replicas look dead.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.serve(config))?;
        Ok(ExitCode::SUCCESS)
    }

    async fn serve(self, config: Config) -> anyhow::Result<()> {
        let access = AccessLog::new(config.telemetry.format, config.telemetry.access_log);
        let router = Router::new(config.proxy.clone(), access);
        let server = Server::bind(Arc::clone(&router))?;
        let admin = AdminServer::bind(&config.admin, Arc::clone(&router)).await?;
        announce(&config, &server, &admin)?;

        router.apply(config.pools.clone(), config.tenants.clone());
        let [stop, hurry, end] = std::array::from_fn(|_| CancellationToken::new());
        let beside = TaskTracker::new();
        beside.spawn(Arc::clone(&router).tick());
        beside.spawn(admin.run(end.clone()));
        beside.spawn(self.reload_on_change(config, Arc::clone(&router)));
        beside.spawn(stop_on_signal(stop.clone(), hurry.clone()));
        let cut = server.run(stop, hurry).await?;
        end.cancel();
        if cut == 0 {
            info!("drained, nothing cut");
        } else {
            warn!(requests_cut = cut, "drained, but not in time");
        }
        Ok(())
    }

    /// Takes on the file again whenever it changes or SIGHUP comes. A broken file changes nothing.
    async fn reload_on_change(
        self,
        mut config: Config,
        router: Arc<Router>,
    ) -> std::io::Result<()> {
        let mut hangups = signal(SignalKind::hangup())?;
        let mut looks = interval(LOOK);
        let mut seen = self.changed_at();
        loop {
            tokio::select! {
                _ = hangups.recv() => {}
                _ = looks.tick() => {
                    let now = self.changed_at();
                    if now == seen {
                        continue;
                    }
                    seen = now;
                }
            }
            match self.load() {
                Err(problems) => error!("configuration not changed:\n{problems}"),
                Ok(new) => {
                    for setting in config::changes_static(&config, &new) {
                        warn!(setting, "changed in the file, needs a restart");
                    }
                    router.apply(new.pools.clone(), new.tenants.clone());
                    info!(pools = new.pools.len(), "configuration reloaded");
                    config = new;
                }
            }
        }
    }

    fn changed_at(&self) -> Option<(SystemTime, u64)> {
        let file = std::fs::metadata(self.config.as_ref()?).ok()?;
        Some((file.modified().ok()?, file.len()))
    }
}

/// Says where everything is: once on standard output for people and scripts, once in the log.
fn announce(config: &Config, server: &Server, admin: &AdminServer) -> anyhow::Result<()> {
    let scheme = if config.proxy.tls.is_some() { "https" } else { "http" };
    let (listen, admin_listen) = (server.local_addr()?, admin.local_addr()?);
    let mut out = std::io::stdout();
    writeln!(out, "cleave listening on {scheme}://{listen}, admin on http://{admin_listen}")?;
    out.flush()?;
    for pool in &config.pools {
        let (replicas, policy) = (pool.replicas.len(), pool.brain.policy);
        info!(pool = pool.name, replicas, %policy, models = pool.models.join(","), "pool");
    }
    if !admin_listen.ip().is_loopback() && config.admin.token.is_none() {
        warn!(%admin_listen, "the admin port is open beyond this machine and asks for no token");
    }
    Ok(())
}

/// The first signal drains, the second does not wait.
async fn stop_on_signal(stop: CancellationToken, hurry: CancellationToken) -> std::io::Result<()> {
    let (mut term, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let mut next = async || {
        tokio::select! {
            _ = term.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    let name = next().await;
    info!(signal = name, "draining: no new connections, streams finish");
    stop.cancel();
    next().await;
    warn!("second signal: ending at once");
    hurry.cancel();
    Ok(())
}

/// A connection on each side of every request, and some to spare.
fn raise_file_limit(connections_max: usize) {
    let wanted = u64::try_from(2 * connections_max + 256).unwrap_or(u64::MAX);
    match rlimit::increase_nofile_limit(wanted) {
        Ok(limit) if limit < wanted => {
            warn!(limit, wanted, "fewer files may be open than connections_max would need");
        }
        Ok(_) => {}
        Err(error) => warn!(%error, "cannot raise the limit of open files"),
    }
}
