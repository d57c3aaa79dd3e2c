//! `cargo xtask same-bytes --against REV`: a move of code must not change a decision. A list of simulations
//! that reach every part of the brain is run with the program of another revision and with that of this
//! tree, and what they print is compared byte by byte. Unit tests cannot show this: they name what they
//! expect, and a decision that no test names can still change.

use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{Context as _, Result, ensure};

use crate::process::{must, shown};
use crate::repo;

/// Arguments of `cleave simulate`, each reaching parts that the others do not. Traces are the samples of the
/// repository, so that a fresh clone can run all of it.
const SIMULATIONS: &[&str] = &[
    // Every policy, ours and the peers'.
    "--synthetic multi-turn --requests 1500 --policy all --without hold,subsets --json",
    "--trace sim/data/mooncake-conversation.jsonl --rate-scale 20 --policy all --without hold,subsets --json",
    "--synthetic heavy-tail --requests 1500 --load 0.9 --policy all --without hold,subsets --json",
    // The line and the gate, apart and together, below and past the knee.
    "--synthetic heavy-tail --requests 3000 --load 0.8 --policy priced --json",
    "--synthetic heavy-tail --requests 3000 --load 1.6 --policy priced,session --json",
    "--scenario scenarios/agents-kv.toml --requests 600 --policy priced --gate --without hold --json",
    "--scenario scenarios/agents-kv.toml --requests 600 --kv-load 2 --policy priced --gate --json",
    "--synthetic code-generation --requests 400 --rate-scale 0.4 --policy priced --json",
    // Classes, tenants, deadlines.
    "--scenario scenarios/priority-mix.toml --requests 2500 --policy priced --seeds 1 --without hold,subsets --json",
    "--scenario scenarios/priority-mix.toml --requests 2500 --policy priced --seeds 1 --json",
    "--scenario scenarios/deadlines.toml --requests 2500 --policy priced --seeds 1 --json",
    "--scenario scenarios/two-tenants.toml --requests 2500 --policy priced --seeds 1 --json",
    "--scenario scenarios/tenants.toml --requests 2000 --policy priced,least_requests --seeds 1 --without hold,subsets --json",
    // Subsets, poison and other faults, mixed hardware.
    "--scenario scenarios/subsets.toml --requests 1500 --seeds 1 --without hold --json",
    "--scenario scenarios/subsets.toml --requests 1500 --seeds 1 --json",
    "--scenario scenarios/poison.toml --requests 2500 --policy priced,session --seeds 1 --json",
    "--scenario scenarios/faults.toml --requests 4000 --policy priced,session,least_requests --without hold,subsets --json",
    "--scenario scenarios/faults.toml --requests 4000 --policy priced --gate --json",
    "--scenario scenarios/mixed-hardware.toml --requests 2000 --policy priced,session --seeds 1 --without hold,subsets --json",
    // Several routers, with and without exchange.
    "--scenario scenarios/routers.toml --requests 2500 --without hold,subsets --json",
    "--scenario scenarios/routers.toml --requests 2500 --json",
    "--synthetic multi-turn --requests 1500 --routers 3 --policy priced,session --without hold,subsets --json",
    // Random worlds, each told by itself.
    "swarm --seed 1",
    "swarm --seed 2",
    "swarm --seed 3",
    "swarm --seed 4",
    "swarm --seed 5",
    "swarm --seed 100 --seeds 40",
];

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The revision whose decisions are to be kept
    #[arg(long, value_name = "REV")]
    against: String,
    /// Only simulations whose arguments contain this
    #[arg(long, default_value = "", value_name = "TEXT")]
    only: String,
}

/// What each simulation printed, as a number.
type Prints = BTreeMap<String, u64>;

pub(crate) fn run(args: &Args) -> Result<()> {
    let folder = repo::target_dir().join("same-bytes");
    let commit = commit_of(&args.against)?;
    let wanted: Vec<&str> =
        SIMULATIONS.iter().copied().filter(|it| it.contains(&args.only)).collect();
    ensure!(!wanted.is_empty(), "no simulation has `{}` among its arguments", args.only);

    let before = before(&folder, &commit, &wanted)?;
    println!("now: this tree");
    must(
        Command::new("cargo")
            .args(["build", "--workspace", "--bin", "cleave"])
            .current_dir(repo::root()),
    )?;
    let after = simulate(&repo::debug_binary("cleave"), &wanted)?;

    let mut differing = 0;
    for simulation in &wanted {
        let (old, new) = (before.get(*simulation), after.get(*simulation));
        let same = old.is_some() && old == new;
        differing += usize::from(!same);
        println!("{}  cleave simulate {simulation}", if same { "same" } else { "DIFFERS" });
    }
    println!("\n{} passed, {differing} failed", wanted.len() - differing);
    ensure!(differing == 0, "{differing} of {} simulations print other bytes", wanted.len());
    Ok(())
}

/// Finds what the other revision prints. It is kept in a file, because a series of moves is held against one
/// revision many times.
fn before(folder: &Path, commit: &str, wanted: &[&str]) -> Result<Prints> {
    let file = folder.join(format!("{commit}.json"));
    let mut known: Prints = match fs::read(&file) {
        Ok(text) => serde_json::from_slice(&text).context("read what was printed before")?,
        Err(_) => Prints::new(),
    };
    let missing: Vec<&str> = wanted.iter().copied().filter(|it| !known.contains_key(*it)).collect();
    if !missing.is_empty() {
        println!("before: {commit}");
        known.extend(simulate(&built(folder, commit)?, &missing)?);
        fs::write(&file, serde_json::to_vec_pretty(&known)?)?;
    }
    Ok(known)
}

/// Builds the program of another revision in a tree and a target folder of its own. In a shared folder cargo
/// would take one tree's crates for the other's: they have the same names, and it goes by times of files.
fn built(folder: &Path, commit: &str) -> Result<PathBuf> {
    let (tree, target) = (folder.join("tree"), folder.join("build"));
    fs::create_dir_all(folder)?;
    let git =
        |at: &Path, arguments: &[&str]| must(Command::new("git").args(arguments).current_dir(at));
    if tree.exists() {
        git(&tree, &["checkout", "--quiet", "--detach", commit])?;
    } else {
        // A tree that was deleted by hand is still on git's list.
        git(&repo::root(), &["worktree", "prune"])?;
        let at = tree.to_str().context("the target folder has an odd name")?;
        git(&repo::root(), &["worktree", "add", "--quiet", "--detach", at, commit])?;
    }
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--bin", "cleave", "--target-dir"]).arg(&target);
    must(cargo.current_dir(&tree))?;
    Ok(target.join("debug/cleave"))
}

fn commit_of(revision: &str) -> Result<String> {
    let mut git = Command::new("git");
    git.args(["rev-parse", "--verify", &format!("{revision}^{{commit}}")]);
    let said = git.current_dir(repo::root()).output().context("start git")?;
    ensure!(said.status.success(), "git knows no revision `{revision}`");
    Ok(String::from_utf8(said.stdout)?.trim().to_owned())
}

/// Runs all simulations with one program, as many at once as there are cores.
fn simulate(program: &Path, simulations: &[&str]) -> Result<Prints> {
    let next = AtomicUsize::new(0);
    let prints = Mutex::new(Vec::new());
    let cores = std::thread::available_parallelism().map_or(1, Into::into);
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                while let Some(simulation) = simulations.get(next.fetch_add(1, Relaxed)) {
                    let print = print_of(program, simulation);
                    prints.lock().expect("no thread panics").push((*simulation, print));
                }
            });
        }
    });
    let prints = prints.into_inner().expect("no thread panics");
    prints.into_iter().map(|(simulation, print)| Ok((simulation.to_owned(), print?))).collect()
}

/// Runs one simulation to its end and hashes what it printed. A random world that fails prints that too.
fn print_of(program: &Path, simulation: &str) -> Result<u64> {
    let mut command = Command::new(program);
    command.arg("simulate").args(simulation.split(' ')).current_dir(repo::root());
    let said = command.output().with_context(|| format!("start {}", shown(&command)))?;
    let swarm = simulation.starts_with("swarm");
    let errors = String::from_utf8_lossy(&said.stderr);
    ensure!(swarm || said.status.success(), "{} failed: {errors}", shown(&command));
    let mut hasher = DefaultHasher::new();
    (said.stdout, said.status.code()).hash(&mut hasher);
    Ok(hasher.finish())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_simulation_is_listed_once_and_reads_only_what_the_repository_has() {
        for (at, simulation) in SIMULATIONS.iter().enumerate() {
            assert!(!SIMULATIONS[..at].contains(simulation), "{simulation} stands twice");
            let files = simulation.split(' ').filter(|it| it.contains('/'));
            for file in files {
                assert!(repo::root().join(file).is_file(), "{file} is not there");
            }
        }
    }
}
