//! `cargo xtask bench cluster`: what it costs that routers tell each other everything. The same load of long prompts goes to
//! one router, to several that do not talk, and to several that do; the difference between the last two is the exchange.
//! It needs only the binary that is measured, so that the built `xtask` runs on a machine without cargo:
//! `xtask bench cluster --binary PATH`.

mod fleet;
mod load;

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use super::meter;
use crate::repo;
use fleet::ClusterFleet;
use load::{PromptLoad, PromptPlan, PromptsSeen};

/// How long the load runs before anything is measured.
const SETTLE: Duration = Duration::from_secs(10);
/// Sockets of clients and replicas in this process and its children.
const FILES: u64 = 65_536;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary, built with --release
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,
    /// Routers that decide as one
    #[arg(long, default_value_t = 2)]
    routers: usize,
    /// Mock replicas behind them
    #[arg(long, default_value_t = 40)]
    replicas: usize,
    /// Requests a second, over all routers
    #[arg(long, default_value_t = 200)]
    rate: u32,
    /// How long each of the three runs is measured
    #[arg(long, default_value_t = 600)]
    seconds: u64,
    /// Tokens of each prompt
    #[arg(long, default_value_t = 10_000)]
    prompt_tokens: usize,
    /// Turns of a session, which share the beginning of their prompts; with 1 every prompt is new
    #[arg(long, default_value_t = 1)]
    turns: u32,
    /// How many times as fast as an H200 the replicas are
    #[arg(long, default_value_t = 20.0)]
    speed: f64,
    /// Time between two readings of memory
    #[arg(long, default_value_t = 5)]
    sample_seconds: u64,
    /// Folder for what the processes print
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What was seen of one arrangement of routers.
#[derive(Debug, Serialize)]
struct ClusterOutcome {
    name: &'static str,
    routers: usize,
    requests_per_second: f64,
    errors: u64,
    latency_ms_p50: f64,
    latency_ms_p99: f64,
    /// Processor time of all routers together, in seconds, and as a share of one core.
    cpu_seconds: f64,
    core_percent: f64,
    cpu_ms_per_request: f64,
    /// What routers told each other, of all of them together.
    exchange_mb_per_second: f64,
    /// Memory of each router over time, in megabytes.
    resident_mb: Vec<Vec<f64>>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    ensure!(1 < args.routers, "the exchange needs two routers or more");
    ensure!(0 < args.rate && 0 < args.seconds && 0 < args.turns, "nothing would be measured");
    rlimit::increase_nofile_limit(FILES)?;
    let built = args.binary.clone();
    let binary = built.unwrap_or_else(|| repo::target_dir().join("release/cleave"));
    ensure!(binary.exists(), "{} is not there: build it with --release", binary.display());
    let folder = args.folder.clone().unwrap_or_else(|| {
        std::env::temp_dir().join(format!("cleave-bench-cluster-{}", std::process::id()))
    });
    let mut outcomes = Vec::new();
    let arrangements =
        [("one alone", 1, false), ("apart", args.routers, false), ("together", args.routers, true)];
    for (name, routers, talk) in arrangements {
        let place = folder.join(name.replace(' ', "-"));
        fs::create_dir_all(&place).with_context(|| format!("create {}", place.display()))?;
        let outcome = measure(args, &binary, &place, (name, routers, talk))?;
        print(&outcome);
        outcomes.push(outcome);
    }
    print_difference(&outcomes);
    if let Some(file) = &args.json {
        fs::write(file, serde_json::to_vec_pretty(&outcomes)?)
            .with_context(|| format!("write {}", file.display()))?;
    }
    Ok(())
}

fn measure(
    args: &Args,
    binary: &Path,
    folder: &Path,
    (name, routers, talk): (&'static str, usize, bool),
) -> Result<ClusterOutcome> {
    let fleet = ClusterFleet::start(binary, folder, (args.replicas, args.speed), (routers, talk))?;
    let plan = PromptPlan {
        routers: fleet.addresses(),
        rate: args.rate,
        prompt_tokens: args.prompt_tokens,
        turns: args.turns,
    };
    let load = PromptLoad::start(plan)?;
    thread::sleep(SETTLE);
    let (began, told, cpu) = (Instant::now(), fleet.bytes_told()?, fleet.cpu_time()?);
    load.measure();
    let mut resident_mb: Vec<Vec<f64>> = vec![Vec::new(); routers];
    let until = began + Duration::from_secs(args.seconds);
    loop {
        for (samples, pid) in resident_mb.iter_mut().zip(fleet.pids()) {
            samples.push(meter::resident_mb(pid)?);
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        thread::sleep(left.min(Duration::from_secs(args.sample_seconds.max(1))));
    }
    let seconds = began.elapsed().as_secs_f64();
    let told = fleet.bytes_told()?.saturating_sub(told);
    let cpu_seconds = (fleet.cpu_time()?.saturating_sub(cpu)).as_secs_f64();
    let mut seen = load.stop();
    Ok(ClusterOutcome {
        name,
        routers,
        requests_per_second: f64::from(seen.answers) / seconds,
        errors: seen.errors.into(),
        latency_ms_p50: seen.latency_ms(50),
        latency_ms_p99: seen.latency_ms(99),
        cpu_seconds,
        core_percent: 100.0 * cpu_seconds / seconds,
        cpu_ms_per_request: 1e3 * cpu_seconds / f64::from(seen.answers.max(1)),
        exchange_mb_per_second: PromptsSeen::megabytes(told) / seconds,
        resident_mb,
    })
}

fn print(it: &ClusterOutcome) {
    println!(
        "{} ({} routers): {:.1} requests/s, {} errors, p50 {:.0} ms, p99 {:.0} ms\n  \
         processor {:.1} s, {:.1}% of a core, {:.3} ms for each request; exchange {:.3} MB/s",
        it.name,
        it.routers,
        it.requests_per_second,
        it.errors,
        it.latency_ms_p50,
        it.latency_ms_p99,
        it.cpu_seconds,
        it.core_percent,
        it.cpu_ms_per_request,
        it.exchange_mb_per_second
    );
    for (number, samples) in it.resident_mb.iter().enumerate() {
        let [first, middle, last] = [0, samples.len() / 2, samples.len().saturating_sub(1)]
            .map(|at| samples.get(at).copied().unwrap_or(0.0));
        println!(
            "  memory of router {}: {first:.1} MB at first, {middle:.1} in the middle, {last:.1} at last, {:.1} at most; \
             {:+.1} MB in the second half",
            number + 1,
            peak(samples),
            last - middle
        );
    }
}

fn peak(samples: &[f64]) -> f64 {
    samples.iter().copied().fold(0.0, f64::max)
}

/// Says what the exchange costs: routers that talk beside routers that do not, and beside one.
fn print_difference(outcomes: &[ClusterOutcome]) {
    let [alone, apart, together] = outcomes else { return };
    let most = |it: &ClusterOutcome| it.resident_mb.iter().map(|it| peak(it)).fold(0.0, f64::max);
    let more = together.cpu_ms_per_request - apart.cpu_ms_per_request;
    println!(
        "memory of the largest router: {:.1} MB together, {:.1} apart, {:.1} alone: {:+.1} MB above one alone\n\
         the exchange: {:.1}% of the routers' processor time ({more:.3} ms for each request), {:.3} MB/s",
        most(together),
        most(apart),
        most(alone),
        most(together) - most(alone),
        100.0 * more / together.cpu_ms_per_request.max(f64::MIN_POSITIVE),
        together.exchange_mb_per_second
    );
}
