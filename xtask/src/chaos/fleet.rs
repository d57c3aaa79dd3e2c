//! The processes under test: eight mock replicas and a reference that is left alone, each a
//! process of its own, and a router in front of the eight. A replica that was killed comes back on
//! its old port, as one under an orchestrator does.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use crate::http1::{self, free_address};
use crate::rig::{self, POLL, START_LIMIT, TOKEN, is_running, signal};
use crate::server::Server;

pub(super) const REPLICAS: usize = 8;

/// All replicas say the same to the same prompt.
const SEED: &str = "7";

pub(super) struct Fleet {
    binary: PathBuf,
    folder: PathBuf,
    replicas: Vec<ChaosReplica>,
    pub(super) reference: SocketAddr,
    _reference: Server,
    pub(super) router: Router,
}

struct ChaosReplica {
    address: SocketAddr,
    server: Option<Server>,
    starts: u32,
}

/// The router, over all the processes that have been it.
pub(super) struct Router {
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    /// The process that serves now.
    pid: u32,
    first: Server,
    restarts: usize,
    /// What the processes before this one had counted.
    resumed_before: u64,
}

impl Fleet {
    pub(super) fn start(binary: &Path, folder: &Path) -> Result<Self> {
        let mut replicas = Vec::new();
        for number in 0..REPLICAS {
            let mut replica = ChaosReplica { address: free_address()?, server: None, starts: 0 };
            replica.start(binary, folder, number)?;
            replicas.push(replica);
        }
        let reference = free_address()?;
        let server = mock(binary, folder, "reference", reference, "inf")?;
        let origins: Vec<String> =
            replicas.iter().map(|it| format!("\"http://{}\"", it.address)).collect();
        let router = Router::start(binary, folder, &origins.join(", "))?;
        let (binary, folder) = (binary.to_owned(), folder.to_owned());
        Ok(Self { binary, folder, replicas, reference, _reference: server, router })
    }

    pub(super) fn address(&self, replica: usize) -> SocketAddr {
        self.replicas[replica].address
    }

    /// Sends a signal to a replica's process.
    pub(super) fn signal(&self, replica: usize, name: &str) -> Result<()> {
        let server = self.replicas[replica].server.as_ref().context("the replica is not there")?;
        signal(server.pid(), name)
    }

    /// Kills a replica; what it had in flight is lost without a word.
    pub(super) fn kill(&mut self, replica: usize) -> Result<()> {
        self.signal(replica, "KILL")?;
        self.replicas[replica].server = None;
        Ok(())
    }

    /// Starts a replica that is gone, with an empty cache.
    pub(super) fn revive(&mut self, replica: usize) -> Result<()> {
        let (binary, folder) = (&self.binary, &self.folder);
        self.replicas[replica].start(binary, folder, replica)
    }

    /// Tells whether a replica's process has ended by itself.
    pub(super) fn is_dead(&mut self, replica: usize) -> bool {
        self.replicas[replica].server.as_mut().is_none_or(Server::has_ended)
    }

    /// Replaces a replica's faults.
    pub(super) fn set_faults(&self, replica: usize, faults: &str) -> Result<()> {
        let answer = http1::post(self.address(replica), "/mock/faults", faults)?;
        ensure!(answer.0.is_success(), "faults refused: {}", String::from_utf8_lossy(&answer.1));
        Ok(())
    }
}

impl ChaosReplica {
    fn start(&mut self, binary: &Path, folder: &Path, number: usize) -> Result<()> {
        let name = format!("r{number}-{}", self.starts);
        self.starts += 1;
        // The one before must be gone: it has the port.
        self.server = None;
        self.server = Some(mock(binary, folder, &name, self.address, "1")?);
        Ok(())
    }
}

fn mock(
    binary: &Path,
    folder: &Path,
    name: &str,
    address: SocketAddr,
    speed: &str,
) -> Result<Server> {
    // A step that reads much of a long prompt holds up the next token of every other request.
    let arguments = ["--seed", SEED, "--speed", speed, "--batched-tokens", "2048"];
    rig::start_mock(binary, folder, name, address, &arguments)
}

impl Router {
    fn start(binary: &Path, folder: &Path, origins: &str) -> Result<Self> {
        let (address, admin) = (free_address()?, free_address()?);
        let config = format!(
            "listen = \"{address}\"\nadmin.listen = \"{admin}\"\nthreads = 2\nresume = true\n\
             replicas = [{origins}]\nhealth.interval = \"500ms\"\nlog.access = false\n\
             admin.token = \"{TOKEN}\"\n"
        );
        let mut command = rig::router(binary, folder, &config)?;
        let first = Server::start("router", &mut command, folder)?;
        rig::wait_until_ready(admin, folder)?;
        Ok(Self { address, admin, pid: first.pid(), first, restarts: 0, resumed_before: 0 })
    }

    /// Has a new process take over, and waits until it serves.
    pub(super) fn restart(&mut self) -> Result<()> {
        self.resumed_before = self.resumed()?;
        signal(self.pid, "USR2")?;
        self.restarts += 1;
        let until = Instant::now() + START_LIMIT;
        loop {
            let said = self.first.said()?;
            if let Some(pid) = successor(&said, self.restarts) {
                self.pid = pid;
                return Ok(());
            }
            ensure!(Instant::now() < until, "no successor:\n{said}");
            thread::sleep(POLL);
        }
    }

    /// Returns what all processes that have been the router have logged.
    pub(super) fn said(&self) -> Result<String> {
        self.first.said()
    }

    /// Counts the streams that went on elsewhere, over all processes that have been the router.
    pub(super) fn resumed(&self) -> Result<u64> {
        let now = rig::counter(self.admin, "cleave_streams_resumed_total")?;
        Ok(self.resumed_before + now)
    }
}

impl Drop for Router {
    /// Ends the process that serves now, which need not be the one that was started.
    fn drop(&mut self) {
        if self.restarts == 0 {
            return;
        }
        // It may have ended by itself.
        _ = signal(self.pid, "TERM");
        let until = Instant::now() + Duration::from_secs(5);
        while is_running(self.pid) && Instant::now() < until {
            thread::sleep(POLL);
        }
        if is_running(self.pid) {
            _ = signal(self.pid, "KILL");
        }
    }
}

/// Finds the process that was started at the `number`th restart.
fn successor(log: &str, number: usize) -> Option<u32> {
    let mut serving = log.lines().filter(|it| it.contains("successor serves"));
    let after = serving.nth(number - 1)?.split("pid=").nth(1)?;
    after.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}
