//! `cargo xtask bench planner`: how long a round of the auto-sharder takes for fleets of 100 and
//! 1,000 replicas. Where valgrind is installed the instructions of a round are counted too: they do
//! not depend on other users of the machine.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::repo;

const COUNTED_ROUNDS: u64 = 4;

pub(crate) fn run() -> Result<()> {
    let built = Command::new("cargo")
        .args(["build", "--release", "--package", "cleave-core", "--example", "planner"])
        .status()
        .context("run cargo")?;
    ensure!(built.success(), "the example `planner` does not build");
    let program = repo::target_dir().join("release/examples/planner");
    for replicas in ["100", "1000"] {
        let status = Command::new(&program).arg(replicas).status()?;
        ensure!(status.success(), "the example `planner` failed");
        let counts =
            (instructions(&program, replicas, 0), instructions(&program, replicas, COUNTED_ROUNDS));
        if let (Some(before), Some(after)) = counts {
            let per_round = after.saturating_sub(before) / COUNTED_ROUNDS;
            println!("instructions of a round: {per_round}");
        }
    }
    Ok(())
}

/// Counts the instructions of a run, if there is a valgrind to ask.
fn instructions(program: &Path, replicas: &str, rounds: u64) -> Option<u64> {
    let output = Command::new("valgrind")
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args([replicas, &rounds.to_string(), "1"])
        .output()
        .ok()?;
    read_count(&String::from_utf8_lossy(&output.stderr))
}

/// Reads `==1== I refs: 1,234` off valgrind's last words.
fn read_count(text: &str) -> Option<u64> {
    let line = text.lines().find(|it| it.contains(" I ") && it.contains("refs:"))?;
    line.rsplit(':').next()?.trim().replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_is_read_off_what_valgrind_says() {
        assert_eq!(read_count("==7== \n==7== I   refs:      21,500,123\n"), Some(21_500_123));
        assert_eq!(read_count("valgrind: no such program"), None);
    }
}
