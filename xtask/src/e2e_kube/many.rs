//! A namespace with thousands of pods: how long until a router knows them all, and what it keeps of them.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::api_server::ApiServer;
use super::fleet::{REPLICAS, StatusPage, pod_json, status_json};
use crate::http1::{self, free_address};
use crate::rig::{self, POLL, TOKEN};
use crate::server::Server;

const LIMIT: Duration = Duration::from_secs(120);

pub(super) fn run(api: &ApiServer, binary: &Path, folder: &Path, pods: u32) -> Result<()> {
    let mut mocks = Vec::new();
    for number in 0..REPLICAS {
        let address = free_address()?;
        let name = format!("m{number}");
        mocks
            .push((address, rig::start_mock(binary, folder, &name, address, &["--speed", "inf"])?));
    }
    let began = Instant::now();
    let path = |rest: &str| format!("/api/v1/namespaces/many/pods{rest}");
    // Those beyond the mocks are not ready, as pods are that load their model.
    let numbers = || 0..usize::try_from(pods).unwrap_or(usize::MAX);
    let port = |number: usize| mocks.get(number).map_or(8000, |it| it.0.port());
    api.call_all(numbers().map(|it| {
        let app = if it < REPLICAS { "few" } else { "many" };
        let pod = pod_json(&format!("p{it}"), app, port(it));
        ("POST", path(""), pod.replace("\"labels\":{", "\"labels\":{\"all\":\"yes\","))
    }))?;
    api.call_all(numbers().map(|it| {
        let ip = if it < REPLICAS {
            "127.0.0.1".to_owned()
        } else {
            format!("10.{}.{}.1", it / 250, it % 250)
        };
        ("PATCH", path(&format!("/p{it}/status")), status_json(&ip, it < REPLICAS))
    }))?;
    println!("{pods} pods were made in {:.0?}", began.elapsed());
    let account = api.kubeconfig_of("many", "cleave")?;
    for (what, selector) in
        [("8 of them match", "app=few"), ("all of them match, 8 are ready", "all=yes")]
    {
        let (took, rss) = start(binary, folder, &account, selector)?;
        println!(
            "{pods} pods, {what}: {took:.2?} from the start to 8 replicas up, {} MB of memory",
            rss / 1000
        );
    }
    Ok(())
}

/// Starts a router; returns how long it took until all replicas are up, and its memory in KB some seconds later.
fn start(binary: &Path, folder: &Path, account: &Path, selector: &str) -> Result<(Duration, u64)> {
    let (address, admin) = (free_address()?, free_address()?);
    let config = format!(
        "listen = \"{address}\"\nadmin.listen = \"{admin}\"\nadmin.token = \"{TOKEN}\"\nthreads = 2\n\
         [[pools]]\nname = \"chat\"\ndiscover = \"kubernetes\"\n\
         kubernetes = {{ selector = \"{selector}\", kubeconfigs = [\"{}\"] }}\n",
        account.display()
    );
    let began = Instant::now();
    let router = Server::start("many", &mut rig::router(binary, folder, &config)?, folder)?;
    let up = || {
        let (_, body) = http1::get_as(TOKEN, admin, "/status").ok()?;
        let page: StatusPage = serde_json::from_slice(&body).ok()?;
        Some(page.pools.first()?.replicas.iter().filter(|it| it.state == "up").count())
    };
    while up() != Some(REPLICAS) {
        ensure!(began.elapsed() < LIMIT, "not all replicas come up; see {}", folder.display());
        thread::sleep(POLL);
    }
    let took = began.elapsed();
    thread::sleep(Duration::from_secs(3));
    let status = fs::read_to_string(format!("/proc/{}/status", router.pid()))?;
    let line = status.lines().find_map(|it| it.strip_prefix("VmRSS:")).context("it has memory")?;
    Ok((took, line.trim().trim_end_matches(" kB").parse()?))
}
