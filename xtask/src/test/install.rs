//! What the tests need beyond cargo, installed once and only when it is missing: Debian packages for
//! Python and for the fuzzers' runtime, the test runner, and the SDKs in a virtual environment.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::process::{must, works};
use crate::{python, repo};

/// The runner's version, pinned so that its output and behaviour change when we say so.
const NEXTEST: &str = "0.9.151";

struct Need {
    packages: &'static [&'static str],
    probe: &'static [&'static str],
}

const NEEDS: [Need; 2] = [
    Need {
        packages: &["python3", "python3-venv"],
        probe: &["python3", "-c", "import ensurepip, venv"],
    },
    // The fuzzers' runtime is C++.
    Need { packages: &["g++"], probe: &["c++", "--version"] },
];

pub(super) fn run() -> Result<()> {
    let missing: Vec<&str> =
        NEEDS.iter().filter(|it| !probe(it.probe)).flat_map(|it| it.packages).copied().collect();
    packages(&missing)?;
    if !works(Command::new("cargo").args(["nextest", "--version"])) {
        println!("installing cargo-nextest {NEXTEST}");
        must(Command::new("cargo").args([
            "install",
            "cargo-nextest",
            "--locked",
            "--version",
            NEXTEST,
        ]))?;
    }
    python::install(&repo::root().join(".venv"))?;
    println!("everything is installed");
    Ok(())
}

fn probe(words: &[&str]) -> bool {
    words.split_first().is_some_and(|(program, rest)| works(Command::new(program).args(rest)))
}

/// Installs Debian packages, or says how when we may not.
pub(crate) fn packages(names: &[&str]) -> Result<()> {
    if names.is_empty() {
        return Ok(());
    }
    let line = format!("apt-get install -y --no-install-recommends {}", names.join(" "));
    if !is_root()? {
        bail!("missing: {}; run: sudo {line}", names.join(", "));
    }
    println!("{line}");
    must(Command::new("apt-get").args(["update", "-qq"]))?;
    must(
        Command::new("apt-get")
            .args(["install", "-y", "-qq", "--no-install-recommends"])
            .args(names)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    )
}

fn is_root() -> Result<bool> {
    let status = fs::read_to_string("/proc/self/status").context("read our own status")?;
    let user = status.lines().find_map(|it| it.strip_prefix("Uid:")).unwrap_or_default();
    Ok(user.split_whitespace().nth(1) == Some("0"))
}
