//! `cleave assignment`: the holders of every key, for people to read: a bar for the key space, then
//! workloads and slices with their replicas. It asks a running router's admin port.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use crate::admin::AdminPort;

/// Cells of the bar.
const CELLS: usize = 64;
const SHADES: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Show which replicas may serve which workloads
///
/// The bar is the key space from its first key to its last, higher where there is more load.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    port: AdminPort,
    /// How many slices of each pool to list, the most loaded first
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    slices: usize,
}

#[derive(Debug, Deserialize)]
struct Assignments {
    pools: Vec<Pool>,
}

#[derive(Debug, Deserialize)]
struct Pool {
    name: String,
    generation: String,
    divided: bool,
    frozen: bool,
    drained: Vec<String>,
    /// Left out by an older router.
    #[serde(default)]
    pins: Vec<Pin>,
    overlap_expected: f64,
    balance: Balance,
    churn: Churn,
    spilled: u64,
    workloads: Vec<Workload>,
    slices: Vec<SliceLine>,
}

/// Which replicas a workload was given, by which token, and when.
#[derive(Debug, Deserialize)]
struct Pin {
    workload: String,
    name: Option<String>,
    replicas: Vec<String>,
    by: String,
    at: String,
}

#[derive(Debug, Deserialize)]
struct Balance {
    mean: f64,
    max: f64,
    imbalance: f64,
    imbalance_bound: f64,
    static_max: f64,
}

#[derive(Debug, Deserialize)]
struct Churn {
    removal: f64,
    addition: f64,
    choice: f64,
}

#[derive(Debug, Deserialize)]
#[expect(clippy::struct_field_names, reason = "these are the keys of the answer")]
struct Workload {
    workload: String,
    name: Option<String>,
    replicas: Vec<String>,
    #[serde(default)]
    zones: Vec<String>,
    mu_per_min: f64,
    pinned: bool,
    exclusive: bool,
}

#[derive(Debug, Deserialize)]
struct SliceLine {
    low: String,
    high: String,
    replicas: Vec<String>,
    mu_per_min: f64,
    why: String,
    since: u64,
    previous: Option<String>,
}

impl Args {
    #[expect(clippy::print_stdout, reason = "the table is what the command is for")]
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let page = runtime.block_on(self.port.client()?.read("/assignment"))?;
        let all: Assignments = serde_json::from_slice(&page).context("read the router's answer")?;
        for pool in &all.pools {
            print!("{}", table(pool, self.slices));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes one pool.
fn table(pool: &Pool, slices_max: usize) -> String {
    let mut out = String::new();
    write_pool(&mut out, pool, slices_max).expect("writing to a string does not fail");
    out
}

fn write_pool(out: &mut String, pool: &Pool, slices_max: usize) -> std::fmt::Result {
    let frozen = if pool.frozen { ", frozen" } else { "" };
    writeln!(out, "pool {} · generation {}{frozen}", pool.name, pool.generation)?;
    if !pool.drained.is_empty() {
        writeln!(out, "  draining: {}", pool.drained.join(", "))?;
    }
    for Pin { workload, name, replicas, by, at } in &pool.pins {
        let (name, replicas) = (named(name.as_ref(), workload), replicas.join(" "));
        writeln!(out, "  pinned by {by} at {at}: {name} to {replicas}")?;
    }
    if !pool.divided {
        writeln!(out, "  not divided: every workload may use every replica\n")?;
        return Ok(());
    }
    let Balance { mean, max, imbalance, imbalance_bound, static_max } = pool.balance;
    writeln!(out, "  |{}|", bar(&pool.slices))?;
    writeln!(
        out,
        "  load {:.0}% of capacity, most loaded {:.0}% ({:.1} points above the mean, at least {:.1} \
         possible; fixed parts: {:.0}%)",
        mean * 100.0,
        max * 100.0,
        imbalance * 100.0,
        imbalance_bound * 100.0,
        static_max * 100.0,
    )?;
    let Churn { removal, addition, choice } = pool.churn;
    writeln!(
        out,
        "  moved so far: {removal:.2} of all load off leaving replicas, {addition:.2} to new ones, \
         {choice:.2} by choice; {} requests spilled",
        pool.spilled,
    )?;
    writeln!(out, "  two small workloads share {:.1} replicas on average", pool.overlap_expected)?;
    for it in &pool.workloads {
        let name = named(it.name.as_ref(), &it.workload);
        let zones = match it.zones.len() {
            0 => String::new(),
            count => format!(" in {count} zones"),
        };
        let pinned = if it.pinned { " pinned" } else { "" };
        let exclusive = if it.exclusive { " exclusive" } else { "" };
        writeln!(
            out,
            "  workload {name:<16} {:>8.1} MU/min on {:>3} replicas{zones}{pinned}{exclusive}: {}",
            it.mu_per_min,
            it.replicas.len(),
            it.replicas.join(" "),
        )?;
    }
    let mut slices: Vec<&SliceLine> = pool.slices.iter().collect();
    slices.sort_by(|a, b| b.mu_per_min.total_cmp(&a.mu_per_min).then(a.low.cmp(&b.low)));
    for it in slices.iter().take(slices_max) {
        let previous = it.previous.as_ref().map_or_else(String::new, |it| format!(" from {it}"));
        writeln!(
            out,
            "  {}-{} {:>8.1} MU/min {} since {}{previous}: {}",
            it.low,
            it.high,
            it.mu_per_min,
            it.why,
            it.since,
            it.replicas.join(" "),
        )?;
    }
    let more = slices.len().saturating_sub(slices_max);
    if 0 < more {
        writeln!(out, "  and {more} slices more")?;
    }
    writeln!(out)
}

/// Names a workload by what people call it, if they do, and its digits.
fn named(name: Option<&String>, digits: &str) -> String {
    name.map_or_else(|| digits.to_owned(), |it| format!("{it} ({digits})"))
}

/// Draws the key space, as high as the load of each part.
fn bar(slices: &[SliceLine]) -> String {
    let mut loads = [0.0; CELLS];
    for it in slices {
        if let Ok((first, last)) = cells(it) {
            let count = f64::from(u32::try_from(last - first + 1).unwrap_or(1));
            loads[first..=last].iter_mut().for_each(|cell| *cell += it.mu_per_min / count);
        }
    }
    let most = loads.iter().copied().fold(f64::MIN_POSITIVE, f64::max);
    loads.iter().map(|it| SHADES[shade(it / most)]).collect()
}

/// Finds the cells that a slice covers.
fn cells(slice: &SliceLine) -> anyhow::Result<(usize, usize)> {
    let cell = |text: &str| -> anyhow::Result<usize> {
        let key = u64::from_str_radix(text, 16)?;
        Ok(usize::try_from(key >> (64 - CELLS.trailing_zeros()))?)
    };
    let (first, last) = (cell(&slice.low)?, cell(&slice.high)?);
    ensure!(first <= last && last < CELLS, "a slice ends before it begins");
    Ok((first, last))
}

/// Rounds a share up to a shade, so that what is there is seen.
fn shade(share: f64) -> usize {
    let steps = [0.0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875];
    steps.iter().filter(|it| **it < share).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(divided: bool) -> Pool {
        let slice = |low: &str, high: &str, mu_per_min, why: &str| SliceLine {
            low: low.to_owned(),
            high: high.to_owned(),
            replicas: vec!["http://a:1".to_owned()],
            mu_per_min,
            why: why.to_owned(),
            since: 3,
            previous: Some("http://b:1".to_owned()),
        };
        Pool {
            name: "chat".to_owned(),
            generation: "0.7".to_owned(),
            divided,
            frozen: true,
            drained: vec!["http://c:1".to_owned()],
            pins: vec![Pin {
                workload: "0123abcd".to_owned(),
                name: Some("acme × chat".to_owned()),
                replicas: vec!["http://a:1".to_owned(), "http://d:1".to_owned()],
                by: "alice".to_owned(),
                at: "2026-01-02T03:04:05Z".to_owned(),
            }],
            overlap_expected: 0.5,
            balance: Balance {
                mean: 0.5,
                max: 0.6,
                imbalance: 0.1,
                imbalance_bound: 0.02,
                static_max: 0.9,
            },
            churn: Churn { removal: 0.25, addition: 0.125, choice: 0.0 },
            spilled: 4,
            workloads: vec![Workload {
                workload: "0123abcd".to_owned(),
                name: Some("acme × chat".to_owned()),
                replicas: vec!["http://a:1".to_owned()],
                zones: vec!["rack-7".to_owned()],
                mu_per_min: 12.0,
                pinned: true,
                exclusive: false,
            }],
            slices: vec![
                slice("0000000000000000", "7fffffffffffffff", 1.0, "first"),
                slice("8000000000000000", "ffffffffffffffff", 8.0, "moved"),
            ],
        }
    }

    #[test]
    fn the_bar_is_higher_where_there_is_more_load() {
        let bar: Vec<char> = bar(&pool(true).slices).chars().collect();
        assert_eq!((bar.len(), bar[0], bar[31], bar[32], bar[63]), (64, '▁', '▁', '█', '█'));
    }

    #[test]
    fn a_pool_is_told_in_lines() {
        let text = table(&pool(true), 1);
        for part in ["pool chat · generation 0.7, frozen", "draining: http://c:1", "moved since 3"]
        {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(text.contains("acme × chat (0123abcd)") && text.contains("in 1 zones"), "{text}");
        assert!(text.contains("and 1 slices more") && text.contains("pinned"), "{text}");
        let whole = table(&pool(false), 1);
        assert!(whole.contains("not divided"));
        let pin = "pinned by alice at 2026-01-02T03:04:05Z: acme × chat (0123abcd) to http://a:1 http://d:1\n";
        assert!(text.contains(pin) && whole.contains(pin), "{text}");
    }
}
