//! `cargo xtask bench policies`: remakes the tables of policies in `docs/benchmarks.md`. Each cell is one
//! `cleave simulate` over a recorded or made-up workload near its knee; what is printed is the share of
//! good requests and the 99th percentile of the first token, with intervals over seeds. It knows no
//! figures of its own: a cell is a line of flags, and anybody can run it by hand.

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
    /// Seeds of each cell, from 0 on
    #[arg(long, default_value_t = 5)]
    seeds: u32,
    /// Only cells whose name begins with this
    #[arg(long, default_value = "")]
    only: String,
}

/// A name, and the flags of `cleave simulate`; `@x` is the trace x of the folder.
type Cell = (&'static str, &'static str);

const CELLS: [Cell; 14] = [
    ("conversation × 2.8", "--trace @mooncake-conversation --rate-scale 2.8 --requests 5000"),
    ("synthetic × 2.6", "--trace @mooncake-synthetic --rate-scale 2.6"),
    ("tool agent × 3", "--trace @mooncake-toolagent-first1000 --rate-scale 3"),
    (
        "Claude Code 0.04/s",
        "--trace @claude-code-sessions --sessions-per-second 0.04 --share-tools --think-max 120s \
         --prompt-tokens-max 200000 --requests 4000 --kv-tokens 840000",
    ),
    (
        "Claude Code 0.07/s",
        "--trace @claude-code-sessions --sessions-per-second 0.07 --share-tools --think-max 120s \
         --prompt-tokens-max 200000 --requests 4000 --kv-tokens 840000",
    ),
    ("tau airline, 200 at once", "--trace @tau-airline-gpt4o --sessions-at-once 200"),
    ("Azure code × 8", "--trace @azure2023-code --rate-scale 8"),
    (
        "ServeGen over conversation × 0.04",
        "--compose --trace @servegen-mlarge-clients @mooncake-conversation --rate-scale 0.04 \
         --requests 4000",
    ),
    ("b2b-saas × 2", "--synthetic b2b-saas --rate-scale 2 --requests 6000"),
    ("smg-600-prefixes × 8", "--synthetic smg-600-prefixes --rate-scale 8"),
    ("heavy-tail × 8", "--synthetic heavy-tail --rate-scale 8 --requests 8000"),
    ("code-generation", "--synthetic code-generation --requests 3000"),
    (
        "32 replicas: conversation × 11.2",
        "--trace @mooncake-conversation --rate-scale 11.2 --replicas 32",
    ),
    (
        "32 replicas: synthetic × 10.4",
        "--trace @mooncake-synthetic --rate-scale 10.4 --replicas 32",
    ),
];

#[derive(Deserialize)]
struct Document {
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
    for (name, flags) in CELLS.iter().filter(|it| it.0.starts_with(&args.only)) {
        let document = simulate(args, flags)?;
        println!("\n{name}: `cleave simulate {}`\n", flags.replace('@', ""));
        println!("| policy | good, % | TTFT p99, s | TTFT mean, s |\n| --- | ---: | ---: | ---: |");
        for it in &document.policies {
            println!(
                "| `{}` | {} | {} | {} |",
                it.policy,
                show(it.good_share, 100.0),
                show(it.ttft_p99_s, 1.0),
                show(it.ttft_mean_s, 1.0)
            );
        }
    }
    Ok(())
}

fn simulate(args: &Args, flags: &str) -> Result<Document> {
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

fn show(it: Interval, times: f64) -> String {
    let mean = it.mean * times;
    match it.half_width {
        None => format!("{mean:.2}"),
        Some(half) => format!("{mean:.2} ± {:.2}", half * times),
    }
}
