//! Where an attack takes place: engines, a router as a process, and what the attack finds. Everything
//! that was started ends with it.

use std::fs;
use std::io::PipeReader;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;

use super::fake::Fake;
use super::plan::{Engine, Plan};
use super::vitals;
use crate::http1::free_address;
use crate::rig;
use crate::server::Server;

pub(super) struct Scene {
    /// The router's port for clients, and the one for operators.
    pub(super) address: SocketAddr,
    pub(super) admin: SocketAddr,
    pub(super) pid: u32,
    pub(super) fakes: Vec<Fake>,
    pub(super) mocks: Vec<AttackedMock>,
    pub(super) rng: Pcg64Mcg,
    /// How long the attack should last.
    pub(super) seconds: Duration,
    /// What did not hold.
    pub(super) misses: Vec<String>,
    binary: PathBuf,
    folder: PathBuf,
    config: String,
    router: Server,
    /// The reading end of the router's standard error, where nothing reads it.
    _unread: Option<PipeReader>,
}

/// A mock replica, which may die and be started again at its address.
pub(super) struct AttackedMock {
    pub(super) address: SocketAddr,
    arguments: &'static [&'static str],
    server: Option<Server>,
    starts: u32,
}

impl Scene {
    pub(super) fn start(
        plan: &Plan,
        binary: &Path,
        folder: &Path,
        seed: u64,
        seconds: Duration,
    ) -> Result<Self> {
        let (mut fakes, mut mocks, mut replicas) = (Vec::new(), Vec::new(), Vec::new());
        for engine in &plan.engines {
            match engine {
                Engine::Mock(arguments) => {
                    let address = free_address()?;
                    let mut mock = AttackedMock { address, arguments, server: None, starts: 0 };
                    mock.start(binary, folder)?;
                    replicas.push(address);
                    mocks.push(mock);
                }
                Engine::Fake(script) => {
                    let fake = Fake::start(script.clone())?;
                    replicas.push(fake.address);
                    fakes.push(fake);
                }
            }
        }
        let (address, admin) = (free_address()?, free_address()?);
        let state = folder.join("state");
        // What an earlier run has left would be believed.
        _ = fs::remove_dir_all(&state);
        fs::create_dir_all(&state)?;
        let config = plan.config(address, admin, &state.to_string_lossy(), &replicas);
        let command = rig::router(binary, folder, &config)?;
        let mut command = limited(command, plan.files_max);
        let (router, unread) = if plan.log_unread {
            let (router, reader) = Server::start_unread("router", &mut command, folder)?;
            (router, Some(reader))
        } else {
            (Server::start("router", &mut command, folder)?, None)
        };
        rig::wait_until_ready(admin, folder)?;
        let (binary, folder) = (binary.to_owned(), folder.to_owned());
        Ok(Self {
            address,
            admin,
            pid: router.pid(),
            fakes,
            mocks,
            rng: Pcg64Mcg::seed_from_u64(seed),
            seconds,
            misses: Vec::new(),
            binary,
            folder,
            config,
            router,
            _unread: unread,
        })
    }

    /// Starts another router with engines of its own, which shares nothing with this one.
    pub(super) fn beside(&self, plan: &Plan) -> Result<Self> {
        let folder = self.folder.join("beside");
        fs::create_dir_all(&folder)?;
        Self::start(plan, &self.binary, &folder, 0, self.seconds)
    }

    /// Notes what should hold and does not.
    pub(super) fn check(&mut self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.misses.push(otherwise());
        }
    }

    /// Tells whether the router's process lives, and is the one that was started.
    pub(super) fn is_alive(&mut self) -> bool {
        !self.router.has_ended()
    }

    /// Returns what the router has printed, where that goes to a file.
    pub(super) fn said(&self) -> Result<String> {
        self.router.said()
    }

    /// Forgets what was asked of the engines so far.
    pub(super) fn forget_asked(&self) {
        self.fakes.iter().for_each(Fake::forget);
    }

    /// Returns what has reached any of the fake engines.
    pub(super) fn asked(&self) -> Vec<super::fake::Asked> {
        self.fakes.iter().flat_map(Fake::asked).collect()
    }

    /// Replaces words in the router's file, which it reads again when it is told to.
    pub(super) fn rewrite(&mut self, from: &str, to: &str) -> Result<()> {
        anyhow::ensure!(self.config.contains(from), "the file has no `{from}`");
        self.config = self.config.replace(from, to);
        fs::write(self.folder.join("router.toml"), &self.config)?;
        rig::signal(self.pid, "HUP")
    }

    /// The router's file as it is.
    pub(super) fn config(&self) -> &str {
        &self.config
    }

    /// Starts mock replicas that have died.
    pub(super) fn revive(&mut self) -> Result<()> {
        let (binary, folder) = (&self.binary, &self.folder);
        for mock in &mut self.mocks {
            if mock.server.as_mut().is_none_or(Server::has_ended) {
                mock.start(binary, folder)?;
            }
        }
        Ok(())
    }

    /// Sets the faults of every mock replica.
    pub(super) fn set_faults(&self, faults: &str) -> Result<()> {
        for mock in &self.mocks {
            let (head, _) = crate::http1::post(mock.address, "/mock/faults", faults)?;
            anyhow::ensure!(head.is_success(), "faults refused: {}", head.first_line);
        }
        Ok(())
    }

    /// Waits until `holds`, at most for `limit`; tells whether it did.
    pub(super) fn wait(&self, limit: Duration, mut holds: impl FnMut(&Self) -> bool) -> bool {
        let until = Instant::now() + limit;
        loop {
            if holds(self) {
                return true;
            }
            if until < Instant::now() {
                return false;
            }
            thread::sleep(rig::POLL);
        }
    }

    /// Sums a counter that the engines' own pages show.
    pub(super) fn engines_counted(&self, name: &str) -> Result<u64> {
        let mut sum = 0;
        for mock in &self.mocks {
            sum += rig::counter(mock.address, name)?;
        }
        Ok(sum)
    }

    /// What a tenant was charged: tokens and requests.
    pub(super) fn charged(&self, tenant: &str) -> Result<(u64, u64)> {
        vitals::used(self.admin, tenant).context("the router does not say what was used")
    }
}

impl AttackedMock {
    fn start(&mut self, binary: &Path, folder: &Path) -> Result<()> {
        let name = format!("r{}-{}", self.address.port(), self.starts);
        self.starts += 1;
        // The one before must be gone: it has the port.
        self.server = None;
        let server = rig::start_mock(binary, folder, &name, self.address, self.arguments)?;
        self.server = Some(server);
        Ok(())
    }
}

/// Bounds how many files a program may open.
fn limited(command: Command, files_max: Option<u32>) -> Command {
    let Some(files_max) = files_max else { return command };
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("ulimit -n {files_max}; exec \"$0\" \"$@\"")]);
    shell.arg(command.get_program()).args(command.get_args());
    shell
}
