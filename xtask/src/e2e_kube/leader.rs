//! Three routers that share a Lease and a `ConfigMap` of the real API server, with the rights of the manifests. Their
//! leader is killed without a word: another one leads in time, and the order it was given is still known.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::api_server::ApiServer;
use crate::http1::{self, free_address};
use crate::process::must;
use crate::repo;
use crate::rig::{self, POLL, signal};
use crate::server::Server;

const ROUTERS: usize = 3;
/// A leader that dies is followed within this time.
const FOLLOWED_MAX: Duration = Duration::from_secs(15);
const START_LIMIT: Duration = Duration::from_secs(60);

struct KubeRouter {
    admin: SocketAddr,
    server: Server,
}

#[derive(Deserialize)]
struct LeaderPage {
    own: String,
    leads: bool,
    leader: Option<String>,
    leader_by: String,
}

impl KubeRouter {
    fn page(&self) -> Result<LeaderPage> {
        let (_, body) = http1::get_as("", self.admin, "/routers")?;
        Ok(serde_json::from_slice(&body)?)
    }

    fn is_drained(&self, replica: SocketAddr) -> Result<bool> {
        let (_, body) = http1::get_as("", self.admin, "/status")?;
        let page: super::fleet::StatusPage = serde_json::from_slice(&body)?;
        let mut replicas = page.pools.iter().flat_map(|it| &it.replicas);
        let url = format!("http://{replica}");
        Ok(replicas.any(|it| it.url == url && it.state.starts_with("drain")))
    }
}

pub(super) fn run(api: &ApiServer, binary: &Path, folder: &Path) -> Result<()> {
    let rights = repo::root().join("deploy/kubernetes/overlays/three-routers/rbac.yaml");
    must(api.kubectl(&["--namespace", "llm", "apply", "-f"]).arg(rights))?;
    let replicas = [free_address()?, free_address()?];
    let mut mocks = Vec::new();
    for (number, address) in replicas.iter().enumerate() {
        mocks.push(rig::start_mock(binary, folder, &format!("shared{number}"), *address, &[])?);
    }
    let mut routers = start(api, binary, folder, &replicas)?;
    let took = led_by_store(&routers, START_LIMIT)?;
    println!("three routers have one leader by the Lease after {:.1} s", took.as_secs_f64());

    let order = format!("/drain/{}", replicas[1]);
    let (head, _) = http1::post(routers[0].admin, &order, "{}")?;
    ensure!(head.is_success(), "{order}: {}", head.first_line);
    until("all know the order", START_LIMIT, || {
        routers.iter().map(|it| it.is_drained(replicas[1])).try_fold(true, |all, it| Ok(all & it?))
    })?;

    let pages = routers.iter().map(KubeRouter::page).collect::<Result<Vec<_>>>()?;
    let leads = pages.iter().position(|it| it.leads).context("one leads")?;
    let dead = routers.remove(leads);
    signal(dead.server.pid(), "KILL")?;
    let took = led_by_store(&routers, FOLLOWED_MAX)?;
    println!("its leader was killed; another one led after {:.1} s", took.as_secs_f64());
    for it in &routers {
        ensure!(it.is_drained(replicas[1])?, "the order was lost with the leader");
    }
    Ok(())
}

fn start(
    api: &ApiServer,
    binary: &Path,
    folder: &Path,
    replicas: &[SocketAddr],
) -> Result<Vec<KubeRouter>> {
    let account = api.kubeconfig_of("llm", "cleave")?;
    let meetings = [free_address()?, free_address()?, free_address()?];
    let urls: Vec<String> = replicas.iter().map(|it| format!("\"http://{it}\"")).collect();
    let mut routers = Vec::new();
    for number in 0..ROUTERS {
        let own = folder.join(format!("leader{number}"));
        fs::create_dir_all(&own).with_context(|| format!("create {}", own.display()))?;
        let (address, admin) = (free_address()?, free_address()?);
        let others = meetings.iter().enumerate().filter(|(at, _)| *at != number);
        let peers: Vec<String> = others.map(|(_, it)| format!("\"{it}\"")).collect();
        let config = format!(
            "listen = \"{address}\"\nadmin.listen = \"{admin}\"\nthreads = 1\n\
             log.access = false\n[cluster]\nlisten = \"{}\"\npeers = [{}]\nstore = \"kubernetes\"\n\
             kubernetes.kubeconfig = \"{}\"\n[[pools]]\nname = \"chat\"\nreplicas = [{}]\n",
            meetings[number],
            peers.join(", "),
            account.display(),
            urls.join(", ")
        );
        let mut command = rig::router(binary, &own, &config)?;
        routers.push(KubeRouter { admin, server: Server::start("router", &mut command, &own)? });
        rig::wait_until_ready(admin, &own)?;
    }
    Ok(routers)
}

/// Waits until all have the same leader, which is one of them, by the store; returns how long that took.
fn led_by_store(routers: &[KubeRouter], limit: Duration) -> Result<Duration> {
    until("one leads, by the store", limit, || {
        let pages = routers.iter().map(KubeRouter::page).collect::<Result<Vec<_>>>()?;
        let leader = pages.iter().find(|it| it.leads).map(|it| it.own.clone());
        let agrees = |it: &LeaderPage| it.leader == leader && it.leader_by == "store";
        Ok(leader.is_some() && pages.iter().all(agrees))
    })
}

fn until(what: &str, limit: Duration, holds: impl Fn() -> Result<bool>) -> Result<Duration> {
    let began = Instant::now();
    while !holds()? {
        ensure!(began.elapsed() < limit, "not within {} s: {what}", limit.as_secs());
        thread::sleep(POLL);
    }
    Ok(began.elapsed())
}
