//! `cargo xtask e2e-vllm`: the router in front of a real engine. Two vLLM replicas on the
//! processor, with a tiny model of random weights, by the recipe in `../shared/engines`. Not part
//! of `cargo xtask test`: it needs 6 GB of disk, 8 GB of memory and some minutes.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::http1::{free_address, is_up};
use crate::process::must;
use crate::server::Server;
use crate::{python, repo};

const REPLICAS: usize = 2;
/// What the engines ask for; clients have another key.
const ENGINE_KEY: &str = "engine-key-of-this-run";

/// One replica takes about 70 s to start, and two share the machine.
const START_LIMIT: Duration = Duration::from_secs(400);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where vLLM is, or is to be installed [default: target/vllm]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Cleave's binary; built when not given
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let recipe = repo::root().join("../shared/engines");
    ensure!(recipe.exists(), "the recipe is missing: {}", recipe.display());
    let folder = args.dir.clone().unwrap_or_else(|| repo::target_dir().join("vllm"));
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    if !folder.join("tiny/config.json").exists() {
        println!("installing vLLM into {}", folder.display());
        must(Command::new(recipe.join("install_vllm_cpu.sh")).arg(&folder))?;
    }
    let cleave = match &args.cleave {
        Some(binary) => binary.canonicalize()?,
        None => build()?,
    };
    let mut replicas = Vec::new();
    for nth in 0..REPLICAS {
        replicas.push(start(&recipe, &folder, nth)?);
    }
    for (server, address) in &mut replicas {
        server.wait_for(START_LIMIT, |_| is_up(*address, "/health").then_some(()))?;
        println!("vLLM is up at {address}");
    }
    let urls: Vec<String> = replicas.iter().map(|it| format!("http://{}", it.1)).collect();
    // `-s` shows the hit rates, which are the point.
    must(
        python::pytest(&python::tests().join("real_engine.py"), &cleave)?
            .arg("-s")
            .env("CLEAVE__API_KEY", ENGINE_KEY)
            .env("CLEAVE_E2E_REPLICAS", urls.join(",")),
    )
}

fn build() -> Result<PathBuf> {
    must(
        Command::new("cargo")
            .args(["build", "--workspace", "--bin", "cleave"])
            .current_dir(repo::root()),
    )?;
    Ok(repo::debug_binary("cleave"))
}

fn start(recipe: &Path, folder: &Path, nth: usize) -> Result<(Server, SocketAddr)> {
    let address = free_address()?;
    let mut command = Command::new(recipe.join("run_vllm_cpu.sh"));
    command
        .arg(folder)
        .arg(address.port().to_string())
        .arg(format!("ipc://{}", folder.join(format!("kv-{nth}")).display()))
        .args(["--api-key", ENGINE_KEY]);
    let server = Server::start(&format!("vllm-{nth}"), &mut command, folder)?;
    println!("vLLM {nth} is starting at {address}");
    Ok((server, address))
}
