//! `cargo xtask bench processor`: the processor time that settings cost at a steady rate of requests, kernel's
//! part and all threads included. One router for each settings is up the whole time and they are asked in turn, round
//! after round, so that what else the machine does meets all of them alike; medians count.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::load::{self, BenchLoad, LoadPlan};
use super::meter;
use super::mock::BenchMock;
use super::proxies::announced;
use crate::repo;
use crate::server::Server;

const START_LIMIT: Duration = Duration::from_secs(60);
const WARM: Duration = Duration::from_secs(2);
const CONNECTIONS: u32 = 16;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary, built with --release
    #[arg(long, value_name = "FILE")]
    cleave: PathBuf,
    /// Measure with these settings beside the defaults: a file as `cleave serve --config` takes it, without pools
    #[arg(long, value_name = "FILE", required = true)]
    config: Vec<PathBuf>,
    /// Requests a second, of 1 KB each
    #[arg(long, default_value_t = 1000)]
    rate: u32,
    /// How long each is asked in a round
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    #[arg(long, default_value_t = 7)]
    rounds: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = repo::target_dir().join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let replica = BenchMock::start()?;
    let settings: Vec<Option<&Path>> =
        std::iter::once(None).chain(args.config.iter().map(|it| Some(it.as_path()))).collect();
    let mut routers = Vec::new();
    for (at, config) in settings.iter().enumerate() {
        let mut command = Command::new(&args.cleave);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"]);
        command.arg("--replica").arg(format!("http://{}", replica.address));
        command.args(config.iter().flat_map(|it| [Path::new("--config"), it]));
        let mut server = Server::start(&format!("processor-{at}"), &mut command, &folder)?;
        let address = server.wait_for(START_LIMIT, |lines| {
            announced(lines).filter(|&it| load::probe(it).unwrap_or(false))
        })?;
        routers.push((server, address));
    }
    let interval = Duration::from_secs(1) * CONNECTIONS / args.rate.max(1);
    let plan = LoadPlan {
        connections: CONNECTIONS,
        body_bytes: 1 << 10,
        streams: false,
        interval: Some(interval),
        spread: interval,
    };
    let mut shares = vec![Vec::new(); routers.len()];
    for _ in 0..args.rounds {
        for ((server, address), shares) in routers.iter().zip(&mut shares) {
            let load = BenchLoad::start(*address, plan);
            thread::sleep(WARM);
            let (cpu, began) = (meter::cpu_time(server.pid())?, Instant::now());
            load.measure();
            thread::sleep(Duration::from_secs(args.seconds));
            let used = meter::cpu_time(server.pid())?.saturating_sub(cpu);
            let elapsed = began.elapsed();
            let seen = load.stop();
            ensure!(seen.errors == 0, "{} requests failed", seen.errors);
            let came = f64::from(seen.answers) / elapsed.as_secs_f64() / f64::from(args.rate);
            ensure!(0.9 < came, "the load came to {:.0} % of its rate", came * 100.0);
            shares.push(used.as_secs_f64() * 100.0 / elapsed.as_secs_f64());
        }
    }
    print(&settings, &shares);
    Ok(())
}

/// Writes a row for each settings; what it adds is the median of the differences of each round.
fn print(settings: &[Option<&Path>], shares: &[Vec<f64>]) {
    println!("| settings | % of a core | more than the first, each round | in the median |");
    println!("| --- | ---: | --- | ---: |");
    let first = shares.first().cloned().unwrap_or_default();
    for (config, shares) in settings.iter().zip(shares) {
        let name = config.map_or("defaults".into(), |it| it.display().to_string());
        let more: Vec<f64> = shares.iter().zip(&first).map(|(it, first)| it - first).collect();
        let each: Vec<String> = more.iter().map(|it| format!("{it:+.2}")).collect();
        println!("| {name} | {:.2} | {} | {:+.2} |", median(shares), each.join(" "), median(&more));
    }
}

fn median(values: &[f64]) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_middle_one_in_any_order() {
        assert!((median(&[3.0, 1.0, 2.0]) - 2.0).abs() < 1e-9);
        assert!(median(&[]).abs() < 1e-9);
    }
}
