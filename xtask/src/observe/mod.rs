//! `cargo xtask observe`: a real Prometheus beside two routers that have every trouble there is a rule for. Every query of
//! every panel in `deploy/grafana` must give data, and every alert of `deploy/alerts.yml` must fire; what does not is
//! named. In the copy of the rules that Prometheus reads, waiting times are a second and ranges twenty, so that it takes
//! two minutes and not an hour. Not part of `cargo xtask test`: it depends on how fast the machine is.

mod boards;
mod load;
mod prometheus;
mod servers;
mod world;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::{repo, rig};
use prometheus::Prometheus;
use world::World;

/// How often alerts are looked at.
const LOOK: Duration = Duration::from_secs(1);
/// From when on prompts bring replicas down: others are served by then.
const POISON_AT: Duration = Duration::from_secs(10);
/// How often other replicas are drained, so that sessions move.
const DRAIN_EVERY: Duration = Duration::from_secs(4);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary [default: the one tests build]
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Seconds in which every alert must have fired
    #[arg(long, default_value_t = 180)]
    limit: u64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = rig::binary(args.cleave.as_ref())?;
    let folder = repo::target_dir().join("observe");
    // What an earlier run left would be seen as new.
    _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    let rules = fs::read_to_string(repo::root().join("deploy/alerts.yml"))?;
    let names = prometheus::alert_names(&rules);
    ensure!(!names.is_empty(), "deploy/alerts.yml has no alert");
    let world = World::start(&binary, &folder)?;
    let prometheus = Prometheus::start(&folder, &rules, &world.targets())?;
    let fired = watch(&world, &prometheus, &names, Duration::from_secs(args.limit))?;
    for (name, after) in &fired {
        println!("{name} fired after {:.0} s", after.as_secs_f64());
    }
    let (panels, empty) = boards::check(&prometheus)?;
    println!("{} of {panels} queries of panels give data", panels - empty.len());
    let silent: Vec<&String> = names.iter().filter(|it| !fired.contains_key(*it)).collect();
    ensure!(silent.is_empty() && empty.is_empty(), "{}", complaint(&silent, &empty));
    println!("{} of {} alerts fired", fired.len(), names.len());
    Ok(())
}

fn complaint(silent: &[&String], empty: &[String]) -> String {
    let silent = silent.iter().map(|it| format!("\nalert {it} did not fire"));
    let empty = empty.iter().map(|it| format!("\nno data: {it}"));
    silent.chain(empty).collect()
}

/// Plays the faults; returns when each alert fired first.
fn watch(
    world: &World,
    prometheus: &Prometheus,
    names: &[String],
    limit: Duration,
) -> Result<BTreeMap<String, Duration>> {
    let (began, mut fired) = (Instant::now(), BTreeMap::new());
    let (mut is_poisoned, mut drained_at, mut turn) = (false, Duration::ZERO, 0);
    while fired.len() < names.len() && began.elapsed() < limit {
        thread::sleep(LOOK);
        let now = began.elapsed();
        for name in prometheus.firing()? {
            fired.entry(name).or_insert(now);
        }
        if POISON_AT < now && !is_poisoned {
            is_poisoned = true;
            world.poison()?;
        }
        if drained_at + DRAIN_EVERY < now {
            (drained_at, turn) = (now, turn + 1);
            world.drain_one(turn)?;
        }
    }
    Ok(fired)
}
