//! `cargo xtask bench policies`: remakes the tables of policies in `docs/benchmarks.md`. Each cell
//! is one `cleave simulate` of a recorded or made-up workload at a load up to its knee. What is
//! printed is how every policy did, and then, in one line for each cell, whether one policy
//! (`priced`) is the best, is within noise of the best, or behind. It knows no figures of its own:
//! a cell is a line of flags, which can be run by hand.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::process::shown;
use crate::repo;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Cleave's binary, built with --release
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Where the development traces are
    #[arg(long, value_name = "FOLDER", default_value = "../shared/traces")]
    traces: PathBuf,
    /// Policies to compare, with commas between them, or all
    #[arg(long, default_value = "all")]
    policies: String,
    /// The policy that is held against the others in the closing table
    #[arg(long, default_value = "priced")]
    judge: String,
    /// Seeds of each cell, from 0 on
    #[arg(long, default_value_t = 5)]
    seeds: u32,
    /// Only cells whose name begins with this
    #[arg(long, default_value = "")]
    only: String,
}

/// One workload at several loads.
struct Workload {
    name: &'static str,
    /// Flags of `cleave simulate`; `@x` is the trace x of the folder.
    flags: &'static str,
    /// The flag that sets the load, and its values on eight replicas.
    load: (&'static str, &'static [f64]),
    /// Its values on 32 replicas.
    at_32: &'static [f64],
}

const CLAUDE_CODE: &str = "--trace @claude-code-sessions --share-tools --think-max 120s \
     --prompt-tokens-max 200000 --requests 4000 --kv-tokens 840000";
const RATE: &str = "--rate-scale";

const WORKLOADS: [Workload; 13] = [
    Workload {
        name: "conversation",
        flags: "--trace @mooncake-conversation --requests 5000",
        load: (RATE, &[1.5, 2.2, 2.8]),
        at_32: &[8.8, 11.2],
    },
    Workload {
        name: "synthetic",
        flags: "--trace @mooncake-synthetic",
        load: (RATE, &[1.5, 2.0, 2.6]),
        at_32: &[8.0, 10.4],
    },
    Workload {
        name: "tool agent",
        flags: "--trace @mooncake-toolagent-first1000",
        load: (RATE, &[1.5, 2.2, 3.0]),
        at_32: &[8.8, 12.0],
    },
    Workload {
        name: "Claude Code, sessions/s",
        flags: CLAUDE_CODE,
        load: ("--sessions-per-second", &[0.02, 0.03, 0.04]),
        at_32: &[0.12, 0.16],
    },
    Workload {
        name: "ServeGen over conversation",
        flags: "--compose --trace @servegen-mlarge-clients @mooncake-conversation --requests 4000",
        load: (RATE, &[0.02, 0.03, 0.04]),
        at_32: &[0.12],
    },
    Workload {
        name: "Azure code",
        flags: "--trace @azure2023-code",
        load: (RATE, &[4.0, 8.0, 10.0]),
        at_32: &[32.0],
    },
    Workload {
        name: "Azure conversation",
        flags: "--trace @azure2023-conv --requests 6000",
        load: (RATE, &[20.0, 30.0, 36.0]),
        at_32: &[],
    },
    Workload {
        name: "tau airline, sessions",
        flags: "--trace @tau-airline-gpt4o",
        load: ("--sessions-at-once", &[100.0, 400.0]),
        at_32: &[],
    },
    Workload {
        name: "b2b-saas",
        flags: "--synthetic b2b-saas --requests 6000",
        load: (RATE, &[1.0, 2.0]),
        at_32: &[],
    },
    Workload {
        name: "smg-600-prefixes",
        flags: "--synthetic smg-600-prefixes",
        load: (RATE, &[8.0]),
        at_32: &[],
    },
    Workload {
        name: "code-generation",
        flags: "--synthetic code-generation --requests 3000",
        load: (RATE, &[0.2, 0.4]),
        at_32: &[],
    },
    Workload {
        name: "multi-turn",
        flags: "--synthetic multi-turn --requests 4000",
        load: (RATE, &[200.0]),
        at_32: &[],
    },
    Workload {
        name: "heavy-tail",
        flags: "--synthetic heavy-tail --requests 8000",
        load: (RATE, &[8.0, 20.0]),
        at_32: &[],
    },
];

#[derive(Deserialize)]
struct PoliciesDocument {
    policies: Vec<Summary>,
}

#[derive(Deserialize)]
struct Summary {
    policy: String,
    good_share: Interval,
    ttft_p99_s: Interval,
    ttft_mean_s: Interval,
}

#[derive(Clone, Copy, Deserialize)]
struct Interval {
    mean: f64,
    half_width: Option<f64>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut verdicts = Vec::new();
    for workload in WORKLOADS.iter().filter(|it| it.name.starts_with(&args.only)) {
        let (flag, loads) = workload.load;
        let cells = loads.iter().map(|load| (8, load));
        for (replicas, load) in cells.chain(workload.at_32.iter().map(|load| (32, load))) {
            let flags = format!("{} {flag} {load} --replicas {replicas}", workload.flags);
            let document = simulate(args, &flags)?;
            print_all(&flags, &document);
            let name = format!("{} × {load}, {replicas} replicas", workload.name);
            verdicts.extend(verdict(&args.judge, &name, &document.policies));
        }
    }
    println!("\n| | good, % | best other | | TTFT p99, s | best other | |");
    println!("| --- | ---: | ---: | --- | ---: | ---: | --- |");
    for it in verdicts {
        println!("{it}");
    }
    Ok(())
}

fn simulate(args: &Args, flags: &str) -> Result<PoliciesDocument> {
    let cleave = args.cleave.clone().unwrap_or_else(|| repo::debug_binary("cleave"));
    let mut command = Command::new(cleave);
    command.arg("simulate").current_dir(repo::root());
    for flag in flags.split_whitespace() {
        match flag.strip_prefix('@') {
            Some(trace) => command.arg(args.traces.join(format!("{trace}.dev.jsonl.gz"))),
            None => command.arg(flag),
        };
    }
    command.args(["--policy", &args.policies, "--seeds", &args.seeds.to_string(), "--json"]);
    let output = command.output().with_context(|| format!("start {}", shown(&command)))?;
    ensure!(
        output.status.success(),
        "{}: {}",
        shown(&command),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}

fn print_all(flags: &str, document: &PoliciesDocument) {
    println!("\n`cleave simulate {}`\n", flags.replace('@', ""));
    println!("| policy | good, % | TTFT p99, s | TTFT mean, s |\n| --- | ---: | ---: | ---: |");
    for it in &document.policies {
        let good = show(it.good_share, 100.0);
        let (p99, mean) = (show(it.ttft_p99_s, 1.0), show(it.ttft_mean_s, 1.0));
        println!("| `{}` | {good} | {p99} | {mean} |", it.policy);
    }
}

/// Holds one policy against the best of the others in each measure, as a row of the closing table.
fn verdict(judged: &str, name: &str, all: &[Summary]) -> Option<String> {
    let own = all.iter().find(|it| it.policy == judged)?;
    let others = || all.iter().filter(|it| it.policy != judged);
    let good = others().max_by(|a, b| a.good_share.mean.total_cmp(&b.good_share.mean))?;
    // A policy that refuses or breaks most requests may have a short tail; only those that serve
    // are rivals.
    let serving = others().filter(|it| 0.9 * own.good_share.mean <= it.good_share.mean);
    let p99 = serving.min_by(|a, b| a.ttft_p99_s.mean.total_cmp(&b.ttft_p99_s.mean))?;
    Some(format!(
        "| {name} | {} | {} `{}` | {} | {} | {} `{}` | {} |",
        show(own.good_share, 100.0),
        show(good.good_share, 100.0),
        good.policy,
        standing(own.good_share.mean - good.good_share.mean, own.good_share, good.good_share),
        show(own.ttft_p99_s, 1.0),
        show(p99.ttft_p99_s, 1.0),
        p99.policy,
        standing(p99.ttft_p99_s.mean - own.ttft_p99_s.mean, own.ttft_p99_s, p99.ttft_p99_s),
    ))
}

/// Says which policy leads: by `ahead`, unless the intervals of the two overlap.
fn standing(ahead: f64, own: Interval, other: Interval) -> &'static str {
    let noise = own.half_width.unwrap_or(0.0) + other.half_width.unwrap_or(0.0);
    match ahead {
        _ if ahead.abs() <= noise => "=",
        _ if 0.0 < ahead => "ahead",
        _ => "behind",
    }
}

fn show(it: Interval, times: f64) -> String {
    let mean = it.mean * times;
    match it.half_width {
        None => format!("{mean:.2}"),
        Some(half) => format!("{mean:.2} ± {:.2}", half * times),
    }
}
