//! What the tests need beyond cargo, installed once and only when it is missing: Debian packages for
//! Python and for the fuzzers' runtime, the test runner, and the SDKs in a virtual environment.

use std::process::Command;

use anyhow::Result;

use crate::process::{must, works};
use crate::{debian, python, repo};

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
    debian::install(&missing)?;
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
