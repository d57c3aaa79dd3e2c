//! What the tests need beyond cargo, installed once and only when it is missing: Debian packages for
//! Python, for the fuzzers' runtime and etcd, cargo's tools, and the SDKs in a virtual environment.

use std::process::Command;

use anyhow::Result;

use crate::process::{must, works};
use crate::{debian, python, repo};

/// Programs from crates.io, pinned so that their output and behaviour change when we say so; cargo
/// calls each by the name after `cargo-`.
const TOOLS: [(&str, &str); 2] = [("nextest", "0.9.151"), ("deny", "0.20.2")];

struct Need {
    packages: &'static [&'static str],
    probe: &'static [&'static str],
}

const NEEDS: [Need; 3] = [
    Need {
        packages: &["python3", "python3-venv"],
        probe: &["python3", "-c", "import ensurepip, venv"],
    },
    // The fuzzers' runtime is C++.
    Need { packages: &["g++"], probe: &["c++", "--version"] },
    // Routers that share a store; every test starts its own on loopback. `etcdctl` is in the second.
    Need {
        packages: &["etcd-server", "etcd-client"],
        probe: &["sh", "-c", "etcd --version && etcdctl version"],
    },
];

pub(super) fn run() -> Result<()> {
    let missing: Vec<&str> =
        NEEDS.iter().filter(|it| !probe(it.probe)).flat_map(|it| it.packages).copied().collect();
    debian::install(&missing)?;
    for (name, version) in TOOLS {
        if !works(Command::new("cargo").args([name, "--version"])) {
            let name = format!("cargo-{name}");
            println!("installing {name} {version}");
            let install = ["install", &name, "--locked", "--version", version];
            must(Command::new("cargo").args(install))?;
        }
    }
    python::install(&repo::root().join(".venv"))?;
    println!("everything is installed");
    Ok(())
}

fn probe(words: &[&str]) -> bool {
    words.split_first().is_some_and(|(program, rest)| works(Command::new(program).args(rest)))
}
