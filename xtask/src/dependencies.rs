//! `cargo xtask test --only dependencies`: what is built into Cleave. cargo-deny checks licences,
//! sources and crates in two versions by `deny.toml`, off the network, and advisories where their
//! database can be fetched; where it cannot, the output says that they were not checked. The number of
//! crates in the binary is counted here, because cargo-deny has no budget.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use crate::process::{must, works};
use crate::repo;

/// How many crates of others are linked into the release binary, at most. A change that needs another
/// one says so here, and why in its commit.
const CRATES_MAX: usize = 191;

pub(crate) fn run() -> Result<()> {
    must(&mut deny(&["check", "bans", "licenses", "sources"]))?;
    if works(&mut deny(&["fetch", "db"])) {
        must(&mut deny(&["check", "--disable-fetch", "advisories"]))?;
    } else {
        println!("advisories: NOT CHECKED, their database cannot be fetched from here");
    }
    let crates = linked()?;
    println!("{} crates of others in the binary, at most {CRATES_MAX}", crates.len());
    ensure!(
        crates.len() <= CRATES_MAX,
        "there are more crates in the binary than CRATES_MAX in {} allows",
        file!()
    );
    Ok(())
}

fn deny(arguments: &[&str]) -> Command {
    let mut command = Command::new("cargo");
    command.args(["deny", "--locked"]).args(arguments).current_dir(repo::root());
    command
}

/// Lists the crates of others that are linked into the binary.
pub(crate) fn linked() -> Result<BTreeSet<String>> {
    let output = Command::new("cargo")
        .args(["tree", "--locked", "--package", "cleave", "--edges", "normal,no-proc-macro"])
        .args(["--prefix", "none", "--no-dedupe", "--format", "{p}"])
        .current_dir(repo::root())
        .output()
        .context("start cargo tree")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "cargo tree ended with {}: {errors}", output.status);
    Ok(foreign(&String::from_utf8_lossy(&output.stdout)))
}

/// Reads lines of `name vVERSION (FOLDER)`; those with a folder are our own.
fn foreign(tree: &str) -> BTreeSet<String> {
    let lines = tree.lines().map(str::trim).filter(|it| !it.is_empty() && !it.contains("(/"));
    lines.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_of_others_are_counted_once_for_each_version() {
        let tree = "cleave v0.1.0 (/x/cleave)\n\nsyn v2.0.1\nsyn v3.0.0\nsyn v2.0.1\n";
        assert_eq!(foreign(tree).into_iter().collect::<Vec<_>>(), ["syn v2.0.1", "syn v3.0.0"]);
    }
}
