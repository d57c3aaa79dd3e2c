//! `cargo xtask e2e-scale`: a router whose command starts and stops mock replicas, under a burst: none, then six, one
//! and none again. Replicas take their time to start. Counted is what clients notice: nothing may be lost, what is held
//! must be answered, and a replica that is stopped must have nothing left to do. KEDA's protocol is asked by a client that
//! is generated from its published messages, where that installs. Not part of `cargo xtask test`: it takes minutes.

pub(crate) mod clients;
pub(crate) mod hosts;
mod keda;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::http1::{self, free_address};
use crate::repo;
use crate::rig::{self, TOKEN};
use crate::server::Server;
use clients::{Clients, Tally};
use hosts::Hosts;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary [default: the one tests build]
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Seconds that a replica takes to start
    #[arg(long, default_value_t = 6)]
    start_delay: u64,
    /// Clients of the burst, each with one request after the other
    #[arg(long, default_value_t = 48)]
    clients: usize,
    /// Leave KEDA's client out
    #[arg(long)]
    no_keda: bool,
}

/// The most replicas.
const MAX: usize = 6;
const POLL: Duration = Duration::from_millis(200);
/// For one phase; the longest waits for sessions to be given up.
const PHASE_LIMIT: Duration = Duration::from_secs(300);
/// For how long the burst goes on once all replicas are there.
const BURST_MORE: Duration = Duration::from_secs(15);

#[derive(Debug, Deserialize)]
struct ScalePage {
    pools: Vec<ScaledPool>,
}

#[derive(Debug, Deserialize)]
struct ScaledPool {
    wanted: Option<usize>,
    reason: Option<String>,
    steps_done: u64,
    steps_failed: u64,
    replica_hours: f64,
    terms: Option<TermsPage>,
}

#[derive(Debug, Default, Deserialize)]
struct TermsPage {
    ready: usize,
    demand_mu_per_min: f64,
    start_up_seconds: f64,
}

struct Rig {
    address: std::net::SocketAddr,
    admin: std::net::SocketAddr,
    began: Instant,
    hosts: Hosts,
    shown: Option<(usize, usize)>,
    _router: Server,
}

impl Rig {
    fn page(&self) -> Result<ScaledPool> {
        let (head, body) = http1::get_as(TOKEN, self.admin, "/scale")?;
        ensure!(head.is_success(), "no page: {}", head.first_line);
        let page: ScalePage = serde_json::from_slice(&body)?;
        page.pools.into_iter().next().context("one pool is scaled")
    }

    /// Lets the hosts work until the page is as wanted, and prints each change.
    fn until(&mut self, what: &str, holds: impl Fn(usize, usize) -> bool) -> Result<Duration> {
        let began = Instant::now();
        loop {
            self.hosts.work()?;
            let page = self.page()?;
            let terms = page.terms.unwrap_or_default();
            let (wanted, ready) = (page.wanted.unwrap_or(0), terms.ready);
            if self.shown != Some((wanted, ready)) {
                self.shown = Some((wanted, ready));
                println!(
                    "{:>6.1} s  wanted {wanted}  ready {ready}  running {}  {:>7.1} MU/min  start-up {:>5.1} s  {}",
                    self.began.elapsed().as_secs_f64(),
                    self.hosts.count(),
                    terms.demand_mu_per_min,
                    terms.start_up_seconds,
                    page.reason.unwrap_or_default()
                );
            }
            if page.wanted.is_some() && holds(wanted, ready) {
                return Ok(began.elapsed());
            }
            ensure!(began.elapsed() < PHASE_LIMIT, "waited in vain: {what}");
            thread::sleep(POLL);
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = rig::binary(args.cleave.as_ref())?;
    let folder = repo::target_dir().join("e2e-scale");
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let hosts = Hosts::new(&binary, &folder, args.start_delay)?;
    let (address, admin, keda) = (free_address()?, free_address()?, free_address()?);
    let config = format!(
        "listen = \"{address}\"\nthreads = 2\nhealth.interval = \"500ms\"\nlog.access = false\n\
         [admin]\nlisten = \"{admin}\"\ntoken = \"{TOKEN}\"\nkeda_listen = \"{keda}\"\n[subsets]\nstate_dir = \"{}\"\n\
         [[pools]]\nname = \"chat\"\nmodels = [\"m\"]\ndiscover = \"file:{}\"\n[pools.scaling]\n\
         mode = \"command\"\ncommand = [\"/bin/sh\", \"{}\"]\nmin = 0\nmax = {MAX}\n",
        folder.display(),
        hosts.list().display(),
        hosts.script().display(),
    );
    let router = Server::start("router", &mut rig::router(&binary, &folder, &config)?, &folder)?;
    rig::wait_until_ready(admin, &folder)?;
    let began = Instant::now();
    let mut rig = Rig { address, admin, began, hosts, shown: None, _router: router };
    rig.until("none is wanted", |wanted, ready| (wanted, ready) == (0, 0))?;
    println!("no replica; a burst of {} clients begins", args.clients);
    let burst = Clients::start(rig.address, args.clients, Duration::ZERO);
    let first = rig.until("the first replica is there", |_, ready| 0 < ready)?;
    let grown =
        rig.until("all replicas are there", |wanted, ready| (wanted, ready) == (MAX, MAX))?;
    if !args.no_keda {
        keda::check(&folder, keda, "chat", &rig)?;
    }
    let until = Instant::now() + BURST_MORE;
    while Instant::now() < until {
        rig.hosts.work()?;
        thread::sleep(POLL);
    }
    let burst = burst.stop()?;
    println!("the burst is over; one client asks now and then");
    let quiet = Clients::start(rig.address, 1, Duration::from_secs(2));
    let shrunk = rig.until("one replica is left", |_, ready| ready == 1)?;
    let quiet = quiet.stop()?;
    println!("no client asks");
    let gone = rig.until("none is left", |wanted, ready| (wanted, ready) == (0, 0))?;
    while 0 < rig.hosts.count() {
        rig.hosts.work()?;
        thread::sleep(POLL);
    }
    let last = Clients::start(rig.address, 1, Duration::ZERO);
    let back = rig.until("one is back", |_, ready| 0 < ready)?;
    let last = last.stop()?;
    report(&rig, &[("burst", &burst), ("quiet", &quiet), ("from none again", &last)])?;
    println!(
        "first replica after {:.1} s, all six {:.1} s later, down to one in {:.1} s, to none in {:.1} s, back in {:.1} s",
        first.as_secs_f64(),
        grown.as_secs_f64(),
        shrunk.as_secs_f64(),
        gone.as_secs_f64(),
        back.as_secs_f64()
    );
    Ok(())
}

fn report(rig: &Rig, phases: &[(&str, &Arc<Tally>)]) -> Result<()> {
    let page = rig.page()?;
    println!("| phase | answered | refused | lost | longest wait for an answer |");
    println!("| --- | --- | --- | --- | --- |");
    let mut lost = Vec::new();
    for (name, tally) in phases {
        let it = tally.sums();
        println!(
            "| {name} | {} | {} | {} | {:.1} s |",
            it.answered,
            it.refused,
            it.lost.len(),
            it.longest.as_secs_f64()
        );
        lost.extend(it.lost);
    }
    let hosts = &rig.hosts;
    println!(
        "{} replicas started, {} stopped, {} of them with work left; {} commands, {} failed; {:.3} replica hours",
        hosts.started(),
        hosts.stopped(),
        hosts.stopped_busy(),
        page.steps_done,
        page.steps_failed,
        page.replica_hours
    );
    ensure!(lost.is_empty(), "lost: {lost:?}");
    ensure!(hosts.stopped_busy() == 0, "a replica was stopped that still had work");
    ensure!(page.steps_failed == 0, "a command failed");
    let refused: usize = phases.iter().map(|it| it.1.sums().refused).sum();
    ensure!(refused == 0, "{refused} requests were refused that could have waited");
    Ok(())
}
