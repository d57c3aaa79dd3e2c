//! `cargo xtask bench overhead`: what a proxy costs between a client and a replica. Every proxy sees
//! the same load in front of the same fast replica in the same run. A cell during which the hypervisor
//! or other processes took some of the machine is run again: its figures would be about them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::figures::Figures;
use super::load::{BenchLoad, LoadPlan};
use super::meter::{self, Lost, MachineTime};
use super::mock::{BenchMock, STREAM_CHUNKS};
use super::proxies::{LOAD_CORE, PEERS, Proxy, Running};
use super::table;
use crate::process::{must, works};
use crate::{debian, repo};

const STOLEN_PERCENT_MAX: f64 = 3.0;
const FOREIGN_PERCENT_MAX: f64 = 5.0;
const TRIES_MAX: u32 = 8;
const REQUEST_CONNECTIONS: u32 = 16;
const STREAM_CONNECTIONS: u32 = 32;
const CHUNK_PACE: Duration = Duration::from_millis(5);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary, built with --release
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Folder with a virtual environment per peer (smg, sglang-router, vllm-router)
    #[arg(long, value_name = "DIR")]
    peers: Option<PathBuf>,
    /// Install the peers that are missing in their folder
    #[arg(long)]
    install_peers: bool,
    /// Runs per cell, of which the median counts
    #[arg(long, default_value_t = 3)]
    repeats: u32,
    /// One short run per cell: shows that everything works, measures nothing
    #[arg(long)]
    quick: bool,
    /// Only cells whose name contains this
    #[arg(long, value_name = "TEXT", default_value = "")]
    cells: String,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// One kind of load.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) name: String,
    pub(super) plan: LoadPlan,
    pace: Duration,
}

/// What one proxy showed in one cell.
#[derive(Debug)]
pub(super) struct OverheadOutcome {
    pub(super) proxy: &'static str,
    pub(super) cell: String,
    pub(super) streams: bool,
    pub(super) saturated: bool,
    pub(super) figures: Figures,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = repo::target_dir().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let proxies = proxies(args)?;
    // Threads inherit the core of the thread that starts them, so this comes before the first
    // thread.
    let own = std::process::id().to_string();
    let pinned = works(Command::new("taskset").args(["--pid", "--cpu-list", LOAD_CORE, &own]));
    ensure!(pinned, "cannot pin the load to core {LOAD_CORE}: two cores are needed");
    let mock = BenchMock::start()?;
    let cells: Vec<Cell> = cells().into_iter().filter(|it| it.name.contains(&args.cells)).collect();
    let mut runs = Vec::new();
    for repeat in 0..if args.quick { 1 } else { args.repeats } {
        for proxy in &proxies {
            println!("run {}: {}", repeat + 1, proxy.name());
            let running = proxy.start(mock.address, &folder)?;
            for cell in &cells {
                let figures = settled(&mock, &running, cell, args.quick)?;
                runs.extend(figures.map(|it| (proxy.name(), cell.name.clone(), it)));
            }
        }
    }
    let outcomes = outcomes(&proxies, &cells, &runs);
    table::print(&outcomes);
    if let Some(file) = &args.json {
        table::write_json(file, &outcomes)?;
    }
    Ok(())
}

/// Lists the proxies that take part, after installing what may be installed.
fn proxies(args: &Args) -> Result<Vec<Proxy>> {
    let missing: Vec<&str> = ["nginx", "haproxy"]
        .into_iter()
        .filter(|it| !Path::new("/usr/sbin").join(it).exists())
        .map(|it| if it == "nginx" { "nginx-light" } else { it })
        .collect();
    debian::install(&missing)?;
    let mut proxies = vec![Proxy::Direct, Proxy::Nginx, Proxy::Haproxy];
    let built = repo::target_dir().join("release/cleave");
    match &args.cleave {
        Some(binary) => proxies.push(Proxy::Cleave(binary.clone())),
        None if built.exists() => proxies.push(Proxy::Cleave(built)),
        None => println!("cleave is left out: build it with --release, or name it with --cleave"),
    }
    let folder = args.peers.clone().unwrap_or_else(|| repo::target_dir().join("peers"));
    for peer in &PEERS {
        let venv = folder.join(peer.name);
        if args.install_peers
            && !works(Command::new(venv.join("bin/pip")).args(["show", peer.name]))
        {
            must(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
            must(Command::new(venv.join("bin/pip")).args(["install", "--quiet", peer.package]))?;
        }
        if venv.exists() {
            proxies.push(Proxy::Peer(peer, venv));
        }
    }
    Ok(proxies)
}

fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for (size, bytes, low_ms) in [
        ("1 KB", 1 << 10, 160),
        ("8 KB", 8 << 10, 160),
        ("64 KB", 64 << 10, 160),
        ("1 MB", 1 << 20, 800),
    ] {
        let plan = LoadPlan {
            connections: REQUEST_CONNECTIONS,
            body_bytes: bytes,
            streams: false,
            interval: None,
            spread: Duration::ZERO,
        };
        let interval = Duration::from_millis(low_ms);
        let low = LoadPlan { interval: Some(interval), spread: interval, ..plan };
        cells.push(Cell { name: format!("{size} saturated"), plan, pace: Duration::ZERO });
        cells.push(Cell { name: format!("{size} low rate"), plan: low, pace: Duration::ZERO });
    }
    let plan = LoadPlan {
        connections: STREAM_CONNECTIONS,
        body_bytes: 1 << 10,
        streams: true,
        interval: None,
        spread: Duration::ZERO,
    };
    let paced = LoadPlan { spread: CHUNK_PACE * STREAM_CHUNKS, ..plan };
    cells.push(Cell { name: "streams saturated".to_owned(), plan, pace: Duration::ZERO });
    cells.push(Cell { name: "streams paced".to_owned(), plan: paced, pace: CHUNK_PACE });
    cells
}

/// Runs a cell until the machine was ours while it ran; gives up after some tries.
fn settled(
    mock: &BenchMock,
    running: &Running,
    cell: &Cell,
    quick: bool,
) -> Result<Option<Figures>> {
    for _ in 0..TRIES_MAX {
        let (figures, lost) = once(mock, running, cell, quick)?;
        let ours = lost.stolen_percent <= STOLEN_PERCENT_MAX
            && lost.foreign_percent <= FOREIGN_PERCENT_MAX;
        if quick || ours {
            return Ok(Some(figures));
        }
        println!(
            "  {}, once more: {:.1}% of the machine's time was stolen, others used {:.1}%",
            cell.name, lost.stolen_percent, lost.foreign_percent
        );
    }
    println!("  {}: left out, the machine was never ours", cell.name);
    Ok(None)
}

fn once(mock: &BenchMock, running: &Running, cell: &Cell, quick: bool) -> Result<(Figures, Lost)> {
    mock.pace(cell.pace);
    let load = BenchLoad::start(running.address, cell.plan);
    let (warm, time) = if quick { (200, 1200) } else { (500, 4000) };
    thread::sleep(Duration::from_millis(warm) + cell.plan.spread);
    let cpu = || running.pid().map_or(Ok(Duration::ZERO), meter::cpu_time);
    let (machine, cpu_before, began) = (MachineTime::now()?, cpu()?, Instant::now());
    load.measure();
    thread::sleep(Duration::from_millis(time));
    let resident_mb = running.pid().map_or(Ok(0.0), meter::resident_mb)?;
    let (elapsed, cpu_after) = (began.elapsed(), cpu()?);
    // Before the load's threads end, and their time with them.
    let lost = MachineTime::now()?.lost_since(machine);
    let seen = load.stop();
    let cpu = cpu_after.saturating_sub(cpu_before);
    Ok((Figures::of(seen, cpu, resident_mb, elapsed), lost))
}

fn outcomes(
    proxies: &[Proxy],
    cells: &[Cell],
    runs: &[(&'static str, String, Figures)],
) -> Vec<OverheadOutcome> {
    let mut outcomes = Vec::new();
    for cell in cells {
        for proxy in proxies {
            let own = runs.iter().filter(|it| it.0 == proxy.name() && it.1 == cell.name);
            let figures: Vec<Figures> = own.map(|it| it.2).collect();
            if figures.is_empty() {
                continue;
            }
            outcomes.push(OverheadOutcome {
                proxy: proxy.name(),
                cell: cell.name.clone(),
                streams: cell.plan.streams,
                saturated: cell.plan.interval.is_none() && cell.pace.is_zero(),
                figures: Figures::median(&figures),
            });
        }
    }
    outcomes
}
