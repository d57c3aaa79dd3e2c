//! `cargo xtask e2e-kube`: the router against a real API server of Kubernetes. Pods are mock replicas of this machine, and
//! this program is their kubelet: it writes their statuses. A rolling update under load, an API server that is
//! killed, a leader that is, replicas that follow the work, what is denied or absent, ten thousand pods. Not part of
//! `cargo xtask test`: the API server is built from source in some minutes, by the recipe in `../shared/infra`.

mod alerts;
mod api_server;
mod controller;
mod fleet;
mod leader;
mod many;
mod mend;
mod rollout;
mod scale;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use crate::process::must;
use crate::{debian, repo, rig};
use api_server::ApiServer;
use fleet::PodFleet;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Where the API server is, or is to be built [default: target/kube]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Cleave's binary [default: the one tests build]
    #[arg(long, value_name = "FILE")]
    cleave: Option<PathBuf>,
    /// Seconds for which the API server is killed
    #[arg(long, default_value_t = 60)]
    away: u64,
    /// Pods of the large namespace
    #[arg(long, default_value_t = 10_000)]
    pods: u32,
    /// Clients that ask one request after the other
    #[arg(long, default_value_t = 16)]
    clients: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let binary = rig::binary(args.cleave.as_ref())?;
    let folder = args.dir.clone().unwrap_or_else(|| repo::target_dir().join("kube"));
    fs::create_dir_all(&folder).with_context(|| format!("create {}", folder.display()))?;
    let folder = folder.canonicalize()?;
    prepare(&folder)?;
    let mut api = ApiServer::start(&folder)?;
    println!("the API server is up at {}", api.url());
    apply_manifests(&api)?;
    alerts::run(&api, &binary, &folder)?;
    let mut fleet = PodFleet::start(&api, &binary, &folder)?;
    rollout::run(&api, &mut fleet, args.clients)?;
    rollout::without_api_server(
        &mut api,
        &mut fleet,
        args.clients,
        Duration::from_secs(args.away),
    )?;
    drop(fleet);
    leader::run(&api, &binary, &folder)?;
    scale::run(&api, &binary, &folder)?;
    many::run(&api, &binary, &folder, args.pods)
}

/// Installs and builds what is missing.
fn prepare(folder: &Path) -> Result<()> {
    let missing = |program: &str| !crate::process::works(Command::new("which").arg(program));
    let wanted = [("kubectl", "kubernetes-client"), ("etcd", "etcd-server"), ("curl", "curl")];
    let names: Vec<&str> = wanted.iter().filter(|it| missing(it.0)).map(|it| it.1).collect();
    debian::install(&names)?;
    if !folder.join("kube-apiserver").exists() {
        let recipe = repo::root().join("../shared/infra/kube_apiserver.sh");
        ensure!(recipe.exists(), "the recipe is missing: {}", recipe.display());
        println!("building the API server in {}, which takes some minutes", folder.display());
        must(Command::new(recipe).arg("build").arg(folder))?;
    }
    mend::mend(folder)
}

/// Applies the manifests as a user would, but for what this old API server does not know.
fn apply_manifests(api: &ApiServer) -> Result<()> {
    for namespace in ["llm", "many"] {
        must(&mut api.kubectl(&["create", "namespace", namespace]))?;
    }
    let manifests = repo::root().join("deploy/kubernetes");
    let overlay = manifests.join("overlays/one-router");
    must(api.kubectl(&["--namespace", "llm", "apply", "-k"]).arg(&overlay))?;
    let engines = manifests.join("engines/vllm.yaml");
    must(api.kubectl(&["--namespace", "llm", "apply", "-f"]).arg(engines))?;
    must(
        api.kubectl(&["--namespace", "many", "apply", "-f"]).arg(manifests.join("base/rbac.yaml")),
    )?;
    // The service account of a router that may do nothing.
    must(&mut api.kubectl(&["--namespace", "llm", "create", "serviceaccount", "powerless"]))
}
