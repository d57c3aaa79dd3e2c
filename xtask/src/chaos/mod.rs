//! `cargo xtask chaos`: a router and eight mock replicas as real processes, a steady load whose every
//! character is checked, and faults from a seed. Prints what clients noticed, and fails when they
//! noticed more than they may. With `--routers` several routers are tormented instead (`routers/`).

pub(crate) mod client;
mod fleet;
mod report;
mod routers;
mod script;

use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::watch::Watch;
use crate::{repo, rig};
use client::ChaosLoad;
use fleet::{Fleet, REPLICAS};
use report::Run;

/// How long the load runs before the first fault and after the last.
const MARGIN: Duration = Duration::from_secs(3);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary [default: the one tests build]
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Decides the order of faults, their victims and the load
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often every kind of fault strikes; once takes about two minutes
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Clients that ask one request after the other
    #[arg(long, default_value_t = 16)]
    clients: u32,
    /// Torment this many routers that decide as one, and leave the replicas alone
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(2..=16))]
    routers: Option<u8>,
    /// With --routers: an older binary that the routers are of until they are upgraded in turn
    #[arg(long, value_name = "FILE", requires = "routers")]
    older: Option<PathBuf>,
    /// Write all figures to this file
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    if let Some(count) = args.routers {
        return routers::run(&routers::Wanted {
            routers: count.into(),
            cleave: args.cleave.clone(),
            seed: args.seed,
            rounds: args.rounds,
            clients: args.clients,
            json: args.json.clone(),
            older: args.older.clone(),
        });
    }
    let binary = rig::binary(args.cleave.as_ref())?;
    let folder = repo::target_dir().join("chaos");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let mut fleet = Fleet::start(&binary, &folder)?;
    let watch = Watch::start(fleet.router.admin);
    let load = ChaosLoad::start(fleet.router.address, fleet.reference, args.clients, args.seed);
    println!("seed {}: {REPLICAS} replicas, {} clients", args.seed, args.clients);
    thread::sleep(MARGIN);
    let began = Instant::now();
    let faults = script::run(&mut fleet, args.seed, args.rounds)?;
    thread::sleep(MARGIN);
    let records = load.stop();
    let resumed = fleet.router.resumed()?;
    let changes = watch.stop();
    let urls: Vec<String> =
        (0..REPLICAS).map(|it| format!("http://{}", fleet.address(it))).collect();
    let run = Run {
        seed: args.seed,
        seconds: began.elapsed().as_secs(),
        records: &records,
        faults: &faults,
        changes: &changes,
        urls: &urls,
        resumed,
        log: &fleet.router.said()?,
    };
    let report = run.report();
    report.print();
    if let Some(file) = &args.json {
        let text = serde_json::to_string_pretty(&report)?;
        fs::write(file, text).with_context(|| format!("write {}", file.display()))?;
    }
    match report.missed().as_slice() {
        [] => Ok(()),
        missed => bail!("missed: {}", missed.join("; ")),
    }
}
