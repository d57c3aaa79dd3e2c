//! The processes that are measured: mock replicas, and routers that talk or do not.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use crate::bench::meter;
use crate::http1;
use crate::rig::{self, POLL, START_LIMIT, TOKEN};
use crate::server::Server;

/// Replicas and routers. All end when it is dropped, the routers first.
pub(super) struct ClusterFleet {
    routers: Vec<BenchRouter>,
    _replicas: Vec<Server>,
}

struct BenchRouter {
    server: Server,
    address: SocketAddr,
    admin: SocketAddr,
}

/// What `/routers` says, as far as it matters here.
#[derive(Deserialize)]
struct ToldPage {
    peers: Vec<PeerBytes>,
}

#[derive(Deserialize)]
struct PeerBytes {
    state: String,
    bytes_told: u64,
}

impl ClusterFleet {
    pub(super) fn start(
        binary: &Path,
        folder: &Path,
        (replicas, speed): (usize, f64),
        (routers, talk): (usize, bool),
    ) -> Result<Self> {
        let speed = speed.to_string();
        let mut urls = Vec::new();
        let mut mocks = Vec::new();
        for number in 0..replicas {
            let address = http1::free_address()?;
            let (name, arguments) = (format!("replica{number}"), ["--speed", &speed]);
            mocks.push(rig::start_mock(binary, folder, &name, address, &arguments)?);
            urls.push(format!("\"http://{address}\""));
        }
        let ports: Vec<[SocketAddr; 3]> = (0..routers)
            .map(|_| Ok([http1::free_address()?, http1::free_address()?, http1::free_address()?]))
            .collect::<Result<_>>()?;
        let mut started = Vec::new();
        for (number, [address, admin, peer]) in ports.iter().enumerate() {
            let others: Vec<String> = ports.iter().map(|it| format!("\"{}\"", it[2])).collect();
            let cluster =
                format!("[cluster]\nlisten = \"{peer}\"\npeers = [{}]\n", others.join(", "));
            let config = format!(
                "listen = \"{address}\"\nadmin.listen = \"{admin}\"\nlog.access = false\nreplicas = [{}]\n{}",
                urls.join(", "),
                if talk { cluster } else { String::new() }
            );
            let file = folder.join(format!("router{number}.toml"));
            fs::write(&file, config).with_context(|| format!("write {}", file.display()))?;
            let mut command = Command::new(binary);
            command.args(["serve", "--config"]).arg(&file);
            let server = Server::start(&format!("router{number}"), &mut command, folder)?;
            started.push(BenchRouter { server, address: *address, admin: *admin });
        }
        let fleet = Self { routers: started, _replicas: mocks };
        for it in &fleet.routers {
            rig::wait_until_ready(it.admin, folder)?;
        }
        fleet.wait_until_all_talk(if talk { routers - 1 } else { 0 })?;
        Ok(fleet)
    }

    /// Waits until every router talks to as many others.
    fn wait_until_all_talk(&self, others: usize) -> Result<()> {
        let until = Instant::now() + START_LIMIT;
        loop {
            let pages: Vec<ToldPage> = self.pages()?;
            let talks = |it: &ToldPage| {
                it.peers.iter().filter(|it| it.state == "talking").count() == others
            };
            if pages.iter().all(talks) {
                return Ok(());
            }
            ensure!(Instant::now() < until, "the routers do not find each other");
            thread::sleep(POLL);
        }
    }

    fn pages(&self) -> Result<Vec<ToldPage>> {
        let page = |it: &BenchRouter| {
            let (head, body) = http1::get_as(TOKEN, it.admin, "/routers")?;
            ensure!(head.is_success(), "no list of routers: {}", head.first_line);
            Ok(serde_json::from_slice(&body)?)
        };
        self.routers.iter().map(page).collect()
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        self.routers.iter().map(|it| it.address).collect()
    }

    pub(super) fn pids(&self) -> Vec<u32> {
        self.routers.iter().map(|it| it.server.pid()).collect()
    }

    /// Adds up what routers have told each other.
    pub(super) fn bytes_told(&self) -> Result<u64> {
        let pages = self.pages()?;
        Ok(pages.iter().flat_map(|it| &it.peers).map(|it| it.bytes_told).sum())
    }

    /// Adds up the processor time of all routers.
    pub(super) fn cpu_time(&self) -> Result<Duration> {
        self.pids().into_iter().map(meter::cpu_time).sum()
    }
}
