//! `cargo xtask bench soak`: ten thousand slow streams held open for minutes while a thousand clients a
//! second connect, ask and leave. What matters is that nothing fails and memory stays flat; processor
//! time is shown beside nginx's under the same load. Sockets are many and mostly idle here, so this
//! one load is asynchronous.

mod load;
mod mock;

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::meter;
use super::proxies::{LOAD_CORE, Proxy, Running};
use crate::process::works;
use crate::repo;
use crate::server::Server;
use load::{SoakCounts, SoakLoad};

/// How long the load runs after it is complete, before anything is measured.
const SETTLE: Duration = Duration::from_secs(10);
const SAMPLE: Duration = Duration::from_secs(5);
const START_LIMIT: Duration = Duration::from_secs(20);
/// Two sockets for each stream in the proxy, and some to spare.
const FILES: u64 = 65_536;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary, built with --release
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Streams held open
    #[arg(long, default_value_t = 10_000)]
    streams: u32,
    /// Clients that connect, ask once and leave, each second
    #[arg(long, default_value_t = 1_000)]
    connects: u32,
    /// How long is measured
    #[arg(long, default_value_t = 120)]
    seconds: u64,
    /// Time between two events of a stream, in milliseconds
    #[arg(long, default_value_t = 2_000)]
    pace_ms: u64,
    /// Be the replica that the proxies stand before
    #[arg(long, hide = true)]
    replica: bool,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What one proxy showed.
#[derive(Debug, Serialize)]
struct SoakOutcome {
    proxy: &'static str,
    streams_open: u64,
    events_per_second: f64,
    requests_per_second: f64,
    errors: u64,
    /// Share of one core.
    core_percent: f64,
    resident_mb_first: f64,
    resident_mb_last: f64,
    resident_mb_max: f64,
}

/// The replica, in a process of its own: there is a limit to the files of one.
struct SoakReplica {
    address: SocketAddr,
    _server: Server,
}

impl SoakReplica {
    fn start(pace_ms: u64, folder: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "soak", "--replica", "--pace-ms", &pace_ms.to_string()]);
        let mut server = Server::start("soak-replica", &mut command, folder)?;
        let address = server.wait_for(START_LIMIT, |lines| lines.first()?.parse().ok())?;
        Ok(Self { address, _server: server })
    }
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let files = rlimit::increase_nofile_limit(FILES)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if args.replica {
        return Ok(runtime.block_on(mock::serve(Duration::from_millis(args.pace_ms)))?);
    }
    let built = args.cleave.clone().unwrap_or_else(|| repo::target_dir().join("release/cleave"));
    ensure!(built.exists(), "{} is not there: build it with --release", built.display());
    let folder = repo::target_dir().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    ensure!(u64::from(args.streams) * 2 < files, "only {files} files may be open");
    // Threads inherit the core of the thread that starts them, so this comes before the first
    // thread.
    let own = std::process::id().to_string();
    let pinned = works(Command::new("taskset").args(["--pid", "--cpu-list", LOAD_CORE, &own]));
    ensure!(pinned, "cannot pin the load to core {LOAD_CORE}: two cores are needed");
    let mut outcomes = Vec::new();
    for proxy in [Proxy::Cleave(built), Proxy::Nginx] {
        let replica = SoakReplica::start(args.pace_ms, &folder)?;
        let running = proxy.start(replica.address, &folder)?;
        let outcome = runtime.block_on(measure(proxy.name(), &running, args))?;
        println!("{outcome:?}");
        outcomes.push(outcome);
    }
    print(&outcomes);
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&outcomes)?;
        fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

async fn measure(name: &'static str, running: &Running, args: &Args) -> Result<SoakOutcome> {
    let pid = running.pid().context("a proxy is a process")?;
    let counts = Arc::new(SoakCounts::default());
    println!("{name}: opening {} streams", args.streams);
    let load = SoakLoad::start(running.address, args.streams, args.connects, &counts).await;
    tokio::time::sleep(SETTLE).await;
    let (before, cpu, began) = (counts.read(), meter::cpu_time(pid)?, Instant::now());
    let mut resident = vec![meter::resident_mb(pid)?];
    let until = began + Duration::from_secs(args.seconds);
    while Instant::now() < until {
        tokio::time::sleep(SAMPLE).await;
        resident.push(meter::resident_mb(pid)?);
    }
    let (after, elapsed) = (counts.read(), began.elapsed().as_secs_f64());
    let cpu = meter::cpu_time(pid)?.saturating_sub(cpu);
    let per_second =
        |from: u64, to: u64| u32::try_from(to - from).map_or(f64::MAX, f64::from) / elapsed;
    let outcome = SoakOutcome {
        proxy: name,
        streams_open: after.streams_open,
        events_per_second: per_second(before.events, after.events),
        requests_per_second: per_second(before.answers, after.answers),
        // All of them, also those while streams were opened.
        errors: after.errors,
        core_percent: cpu.as_secs_f64() * 100.0 / elapsed,
        resident_mb_first: resident[0],
        resident_mb_last: resident[resident.len() - 1],
        resident_mb_max: resident.iter().copied().fold(0.0, f64::max),
    };
    drop(load);
    Ok(outcome)
}

fn print(outcomes: &[SoakOutcome]) {
    println!(
        "\n| proxy | streams open | events/s | requests/s | errors | of a core | MB first, last, most |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for it in outcomes {
        println!(
            "| {} | {} | {:.0} | {:.0} | {} | {:.0}% | {:.0}, {:.0}, {:.0} |",
            it.proxy,
            it.streams_open,
            it.events_per_second,
            it.requests_per_second,
            it.errors,
            it.core_percent,
            it.resident_mb_first,
            it.resident_mb_last,
            it.resident_mb_max,
        );
    }
}
