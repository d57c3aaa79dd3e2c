//! The processes under test: eight mock replicas, a reference that is left alone, some routers with the network between
//! them, and an etcd that they share where one is installed.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::metered;
use super::shim::Shim;
use crate::http1::{self, free_address};
use crate::process::works;
use crate::rig::{self, POLL, START_LIMIT, TOKEN, is_running, signal};
use crate::server::Server;

pub(super) const REPLICAS: usize = 8;
/// All replicas say the same to the same prompt.
const SEED: &str = "7";

pub(super) struct RouterScene {
    /// The path that routers are started from.
    program: PathBuf,
    /// What is put there at the first upgrade.
    newer: Option<PathBuf>,
    folder: PathBuf,
    pub(super) routers: Vec<ClusterRouter>,
    /// By the router that dials and the one that is dialled.
    shims: Vec<Vec<Option<Shim>>>,
    pub(super) etcd: Option<EtcdServer>,
    pub(super) reference: SocketAddr,
    _replicas: Vec<Server>,
}

/// One router, over all the processes that have been it.
pub(super) struct ClusterRouter {
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    config: PathBuf,
    pid: u32,
    server: Option<Server>,
    starts: u32,
    /// Processes that have taken over since the last start.
    successors: usize,
}

pub(super) struct EtcdServer {
    address: SocketAddr,
    peers: SocketAddr,
    data: PathBuf,
    folder: PathBuf,
    server: Option<Server>,
}

/// What `/routers` says, as far as is looked at here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct RoutersPage {
    pub(super) leader: Option<String>,
    pub(super) leader_by: String,
    pub(super) state: String,
    pub(super) joining: bool,
    peers: Vec<PeerWork>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PeerWork {
    in_flight: usize,
}

#[derive(Deserialize)]
struct AssignmentPage {
    pools: Vec<AssignmentPool>,
}

#[derive(Deserialize)]
struct AssignmentPool {
    generation: String,
}

impl RouterScene {
    /// Starts all as `binary`, or the routers as the `older` one until they are upgraded.
    pub(super) fn start(
        (binary, older): (&Path, Option<&Path>),
        folder: &Path,
        count: usize,
        with_etcd: bool,
    ) -> Result<Self> {
        let program = older.map_or_else(|| binary.to_owned(), |_| folder.join("cleave"));
        if let Some(older) = older {
            fs::copy(older, &program).with_context(|| format!("copy {}", older.display()))?;
        }
        let mut replicas = Vec::new();
        let mut origins = Vec::new();
        for number in 0..REPLICAS {
            let address = free_address()?;
            let arguments = ["--seed", SEED, "--speed", "1", "--batched-tokens", "2048"];
            let name = format!("r{number}");
            replicas.push(rig::start_mock(binary, folder, &name, address, &arguments)?);
            origins.push(format!("\"http://{address}\""));
        }
        let reference = free_address()?;
        let arguments = ["--seed", SEED, "--speed", "inf", "--batched-tokens", "2048"];
        replicas.push(rig::start_mock(binary, folder, "reference", reference, &arguments)?);
        let etcd = with_etcd.then(|| EtcdServer::start(folder)).transpose()?;
        let listens: Vec<SocketAddr> =
            (0..count).map(|_| free_address()).collect::<Result<_, _>>()?;
        let shim = |dials: usize, dialled: usize| {
            (dials != dialled).then(|| Shim::start(listens[dialled])).transpose()
        };
        let shims: Vec<Vec<Option<Shim>>> = (0..count)
            .map(|dials| (0..count).map(|it| shim(dials, it)).collect::<Result<_, _>>())
            .collect::<Result<_, _>>()?;
        let mut scene = Self {
            program,
            newer: older.map(|_| binary.to_owned()),
            folder: folder.to_owned(),
            routers: Vec::new(),
            shims,
            etcd,
            reference,
            _replicas: replicas,
        };
        for (number, listen) in listens.iter().enumerate() {
            let router = scene.configure(number, *listen, &origins.join(", "))?;
            scene.routers.push(router);
            scene.start_router(number)?;
        }
        Ok(scene)
    }

    fn configure(&self, number: usize, listen: SocketAddr, origins: &str) -> Result<ClusterRouter> {
        let (address, admin) = (free_address()?, free_address()?);
        let peers: Vec<String> =
            self.shims[number].iter().flatten().map(|it| format!("\"{}\"", it.address)).collect();
        let state = self.folder.join(format!("state-{number}"));
        _ = fs::remove_dir_all(&state);
        let store = self.etcd.as_ref().map_or(String::new(), |it| {
            format!("store = \"etcd\"\netcd.endpoints = [\"http://{}\"]\n", it.address)
        });
        // The address that a router tells of itself leads nowhere: others reach it through the network between them.
        let text = format!(
            "listen = \"{address}\"\nadmin.listen = \"{admin}\"\nthreads = 1\nresume = true\n\
             replicas = [{origins}]\nhealth.interval = \"500ms\"\nlog.access = false\n\
             admin.token = \"{TOKEN}\"\n{}\
             [subsets]\nstate_dir = \"{}\"\n\
             [cluster]\nlisten = \"{listen}\"\nadvertise = \"router-{number}.invalid:7400\"\n\
             secret = \"0123456789abcdef\"\npeers = [{}]\n{store}{}",
            metered::SETTINGS,
            state.display(),
            peers.join(", "),
            metered::section()
        );
        let config = self.folder.join(format!("router-{number}.toml"));
        fs::write(&config, text).with_context(|| format!("write {}", config.display()))?;
        let (pid, server, starts, successors) = (0, None, 0, 0);
        Ok(ClusterRouter { address, admin, config, pid, server, starts, successors })
    }

    /// Starts a router that is not there, and waits until it takes requests.
    pub(super) fn start_router(&mut self, number: usize) -> Result<()> {
        let router = &mut self.routers[number];
        let mut command = Command::new(&self.program);
        command.args(["serve", "--config"]).arg(&router.config);
        let name = format!("router-{number}-{}", router.starts);
        router.starts += 1;
        router.successors = 0;
        let server = Server::start(&name, &mut command, &self.folder)?;
        router.pid = server.pid();
        router.server = Some(server);
        rig::wait_until_ready(router.admin, &self.folder)
    }

    /// Cuts a router off from all others, or lets it talk to them again.
    pub(super) fn set_cut(&self, number: usize, is_cut: bool) {
        let shims = self.shims.iter().enumerate().flat_map(|(dials, all)| {
            all.iter().enumerate().map(move |(dialled, it)| (dials, dialled, it))
        });
        for (dials, dialled, shim) in shims {
            let Some(shim) = shim.as_ref().filter(|_| dials == number || dialled == number) else {
                continue;
            };
            if is_cut {
                shim.cut();
            } else {
                shim.heal();
            }
        }
    }

    /// Puts the newer binary where routers are started from, if they are of an older one; tells whether it did.
    pub(super) fn renew(&mut self) -> Result<bool> {
        let Some(newer) = self.newer.take() else { return Ok(false) };
        let beside = self.folder.join("cleave.new");
        fs::copy(&newer, &beside).with_context(|| format!("copy {}", newer.display()))?;
        // One that runs cannot be written to, but another file can take its name.
        fs::rename(&beside, &self.program)?;
        Ok(true)
    }

    /// How long it takes until no router believes that another one has something in flight; none within the limit.
    pub(super) fn empty_after(&self, limit: Duration) -> Option<Duration> {
        let began = Instant::now();
        let is_empty = |it: &ClusterRouter| {
            let page: Option<RoutersPage> = read(it.admin, "/routers");
            page.is_some_and(|it| it.peers.iter().all(|it| it.in_flight == 0))
        };
        while began.elapsed() < limit {
            if self.routers.iter().all(is_empty) {
                return Some(began.elapsed());
            }
            thread::sleep(POLL);
        }
        None
    }

    /// Bytes that routers told each other.
    pub(super) fn bytes_told(&self) -> u64 {
        self.shims.iter().flatten().flatten().map(Shim::bytes).sum()
    }

    /// How long it takes until all routers go by one plan and one leader, from now on; none within the limit.
    pub(super) fn agree_after(&self, limit: Duration) -> Option<Duration> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if self.agrees() {
                return Some(began.elapsed());
            }
            thread::sleep(POLL);
        }
        None
    }

    fn agrees(&self) -> bool {
        let words: Option<Vec<String>> = self.routers.iter().map(view).collect();
        words.is_some_and(|it| it.windows(2).all(|pair| pair[0] == pair[1]))
    }
}

/// The plan and the leader that a router goes by, in words; none while it misses others.
fn view(router: &ClusterRouter) -> Option<String> {
    let plan: AssignmentPage = read(router.admin, "/assignment")?;
    let page: RoutersPage = read(router.admin, "/routers")?;
    let leader = page.leader.filter(|_| page.state == "whole" && !page.joining)?;
    let generations: Vec<String> = plan.pools.into_iter().map(|it| it.generation).collect();
    Some(format!("{} {leader} {}", generations.join(" "), page.leader_by))
}

pub(super) fn read<T: serde::de::DeserializeOwned>(admin: SocketAddr, path: &str) -> Option<T> {
    let (head, body) = http1::get_as(TOKEN, admin, path).ok()?;
    head.is_success().then(|| serde_json::from_slice(&body).ok()).flatten()
}

impl ClusterRouter {
    /// Sends a signal to the process that serves now.
    pub(super) fn signal(&self, name: &str) -> Result<()> {
        signal(self.pid, name)
    }

    /// Kills it; what it had in flight is lost without a word.
    pub(super) fn kill(&mut self) -> Result<()> {
        self.signal("KILL")?;
        self.wait_for_end();
        self.server = None;
        Ok(())
    }

    /// Has it drain and end.
    pub(super) fn stop(&mut self) -> Result<()> {
        self.signal("TERM")?;
        self.wait_for_end();
        self.server = None;
        Ok(())
    }

    /// Has a new process take over, and waits until it serves.
    pub(super) fn hand_over(&mut self) -> Result<()> {
        self.signal("USR2")?;
        self.successors += 1;
        let server = self.server.as_ref().context("the router is not there")?;
        let until = Instant::now() + START_LIMIT;
        loop {
            let said = server.said()?;
            let mut serving = said.lines().filter(|it| it.contains("successor serves"));
            let line = serving.nth(self.successors - 1).and_then(|it| it.split("pid=").nth(1));
            let pid = line.and_then(|it| it.split(|it: char| !it.is_ascii_digit()).next());
            if let Some(pid) = pid.and_then(|it| it.parse().ok()) {
                self.pid = pid;
                return Ok(());
            }
            ensure!(Instant::now() < until, "no successor:\n{said}");
            thread::sleep(POLL);
        }
    }

    fn wait_for_end(&mut self) {
        let until = Instant::now() + START_LIMIT;
        // A process that this one started stays until it is waited for.
        let has_ended = |it: &mut Self| match &mut it.server {
            Some(server) if server.pid() == it.pid => server.has_ended(),
            Some(_) | None => !is_running(it.pid),
        };
        while !has_ended(self) && Instant::now() < until {
            thread::sleep(POLL);
        }
    }
}

impl Drop for ClusterRouter {
    /// Ends the process that serves now, which need not be the one that was started.
    fn drop(&mut self) {
        if 0 < self.successors && is_running(self.pid) {
            _ = signal(self.pid, "CONT");
            _ = self.stop();
            if is_running(self.pid) {
                _ = signal(self.pid, "KILL");
            }
        }
    }
}

impl EtcdServer {
    /// Tells whether an etcd is installed.
    pub(super) fn is_installed() -> bool {
        works(Command::new("etcd").arg("--version"))
    }

    fn start(folder: &Path) -> Result<Self> {
        let (address, peers, data) = (free_address()?, free_address()?, folder.join("etcd"));
        _ = fs::remove_dir_all(&data);
        let mut it = Self { address, peers, data, folder: folder.to_owned(), server: None };
        it.revive()?;
        Ok(it)
    }

    pub(super) fn revive(&mut self) -> Result<()> {
        let (url, peer) = (format!("http://{}", self.address), format!("http://{}", self.peers));
        let mut command = Command::new("etcd");
        command.args(["--name", "one", "--data-dir"]).arg(&self.data);
        command.args(["--listen-client-urls", &url, "--advertise-client-urls", &url]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("one={peer}")]);
        self.server = Some(Server::start("etcd", &mut command, &self.folder)?);
        let until = Instant::now() + START_LIMIT;
        while !http1::is_up(self.address, "/health") {
            ensure!(Instant::now() < until, "etcd does not come up, see {}", self.folder.display());
            thread::sleep(POLL);
        }
        Ok(())
    }

    pub(super) fn kill(&mut self) -> Result<()> {
        if let Some(server) = &self.server {
            signal(server.pid(), "KILL")?;
        }
        self.server = None;
        Ok(())
    }

    /// Forgets everything; it must not run.
    pub(super) fn wipe(&self) -> Result<()> {
        fs::remove_dir_all(&self.data).with_context(|| format!("remove {}", self.data.display()))
    }
}
