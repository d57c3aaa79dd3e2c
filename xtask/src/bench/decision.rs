//! `cargo xtask bench decision`: what it costs to decide where a request goes, for several sizes of fleet
//! and prompt. Times are medians on this machine; instructions are counted under callgrind, where it is
//! installed, as the difference between two runs, so that setting up does not count. Hashing the prompt
//! is shown apart: it happens before the lock, and it is what it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::process::works;
use crate::repo::root;

const REPLICAS: [u32; 3] = [8, 64, 512];
const TOKENS: [u32; 4] = [1_000, 10_000, 100_000, 200_000];
/// The cell that must hold: replicas, tokens of the prompt, nanoseconds at most.
const BAR: (u32, u32, u64) = (64, 10_000, 8_000);
/// Decisions in the shorter of two counted runs.
const COUNTED: u64 = 128;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Count instructions too, which takes some minutes
    #[arg(long)]
    instructions: bool,
}

/// One line of what cargo says while it builds.
#[derive(Deserialize)]
struct Built {
    executable: Option<PathBuf>,
}

/// Half of all decisions take no longer, and 99 of a hundred.
struct Times {
    p50_ns: u64,
    p99_ns: u64,
}

pub(super) fn run(args: &Args) -> Result<()> {
    let program = build()?;
    let counts = args.instructions && works(Command::new("valgrind").arg("--version"));
    println!("| tokens | hash | replicas | decide p50 | p99 | instructions |");
    println!("| ---: | ---: | ---: | ---: | ---: | ---: |");
    let mut at_bar = None;
    for tokens in TOKENS {
        let hash = times(&program, &["hash", &tokens.to_string()])?;
        for replicas in REPLICAS {
            let size = [replicas.to_string(), tokens.to_string()];
            let decide = times(&program, &["time", &size[0], &size[1]])?;
            let counted = if counts { count(&program, &size)?.to_string() } else { "-".to_owned() };
            let [hash, p50, p99] = [hash.p50_ns, decide.p50_ns, decide.p99_ns].map(us);
            println!("| {tokens} | {hash} | {replicas} | {p50} | {p99} | {counted} |");
            if (replicas, tokens) == (BAR.0, BAR.1) {
                at_bar = Some(decide.p50_ns);
            }
        }
    }
    let (replicas, tokens, ns_max) = BAR;
    let ns = at_bar.context("the sizes include that of the bar")?;
    ensure!(
        ns <= ns_max,
        "{} at {replicas} replicas and {tokens} tokens; the bar is {}",
        us(ns),
        us(ns_max)
    );
    Ok(())
}

/// Builds the program that decides, as it is released.
fn build() -> Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.current_dir(root()).args(["bench", "-p", "cleave-core", "--bench", "decision"]);
    let out = cargo.args(["--no-run", "--message-format=json"]).output().context("start cargo")?;
    ensure!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    let lines = String::from_utf8(out.stdout)?;
    let built = lines.lines().filter_map(|it| serde_json::from_str::<Built>(it).ok());
    built.filter_map(|it| it.executable).next_back().context("cargo names what it built")
}

fn times(program: &Path, arguments: &[&str]) -> Result<Times> {
    let out = Command::new(program).args(arguments).output()?;
    ensure!(out.status.success(), "{arguments:?} failed");
    let text = String::from_utf8(out.stdout)?;
    let (p50, p99) = text.trim().split_once(' ').context("two numbers")?;
    Ok(Times { p50_ns: p50.parse()?, p99_ns: p99.parse()? })
}

/// Counts the instructions of one decision, arrival to end.
fn count(program: &Path, size: &[String; 2]) -> Result<u64> {
    let run = |decisions: u64| -> Result<u64> {
        let mut valgrind = Command::new("valgrind");
        valgrind.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]);
        valgrind.arg(program).arg("count").args(size).arg(decisions.to_string());
        let out = valgrind.output().context("start valgrind")?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        let line = said.lines().find(|it| it.contains("Collected :")).context("a count")?;
        Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
    };
    Ok((run(2 * COUNTED)? - run(COUNTED)?) / COUNTED)
}

/// Writes nanoseconds as microseconds.
fn us(ns: u64) -> String {
    format!("{}.{} µs", ns / 1000, ns % 1000 / 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_written_as_microseconds() {
        assert_eq!((us(950), us(20_049)), ("0.9 µs".to_owned(), "20.0 µs".to_owned()));
    }
}
