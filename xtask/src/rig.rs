//! Cleave's own processes, as chaos and attacks start them: mock replicas and a router, each with a
//! file for what it prints. What is done to them, and what is expected of them, is the caller's.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};

use crate::http1;
use crate::process::works;
use crate::repo;
use crate::server::Server;

pub(crate) const START_LIMIT: Duration = Duration::from_secs(30);
/// The token for the admin port, where a router asks for one. With it a client sees the decisions about
/// its requests whole.
pub(crate) const TOKEN: &str = "operator";
pub(crate) const POLL: Duration = Duration::from_millis(20);

/// Finds Cleave's binary: the one that was named, or the one tests build.
pub(crate) fn binary(named: Option<&PathBuf>) -> Result<PathBuf> {
    let binary = named.cloned().unwrap_or_else(|| repo::debug_binary("cleave"));
    if !binary.exists() {
        bail!("{} is not there: build it first, or name another with --cleave", binary.display());
    }
    Ok(binary)
}

/// Starts a mock replica of the model `m` and waits until it listens.
pub(crate) fn start_mock(
    binary: &Path,
    folder: &Path,
    name: &str,
    address: SocketAddr,
    arguments: &[&str],
) -> Result<Server> {
    let port = address.port().to_string();
    // The name a client sees stays the same over restarts.
    let shown = name.split('-').next().unwrap_or(name);
    let mut command = Command::new(binary);
    command.args(["mock-replica", "--port", &port, "--model", "m", "--name", shown]);
    command.args(arguments);
    let mut server = Server::start(name, &mut command, folder)?;
    server
        .wait_for(START_LIMIT, |it| it.iter().any(|it| it.contains("listening")).then_some(()))?;
    Ok(server)
}

/// Writes a router's file and gives the command that serves it.
pub(crate) fn router(binary: &Path, folder: &Path, config: &str) -> Result<Command> {
    let file = folder.join("router.toml");
    fs::write(&file, config)?;
    let mut command = Command::new(binary);
    command.args(["serve", "--config"]).arg(&file);
    Ok(command)
}

/// Waits until a router takes requests.
pub(crate) fn wait_until_ready(admin: SocketAddr, folder: &Path) -> Result<()> {
    let until = Instant::now() + START_LIMIT;
    while !http1::is_up(admin, "/readyz") {
        let folder = folder.display();
        ensure!(Instant::now() < until, "the router does not come up, see {folder}");
        thread::sleep(POLL);
    }
    Ok(())
}

/// Sums a counter of a router over all its labels.
pub(crate) fn counter(admin: SocketAddr, name: &str) -> Result<u64> {
    let (head, body) = http1::get_as(TOKEN, admin, "/metrics")?;
    ensure!(head.is_success(), "no metrics: {}", head.first_line);
    let page = String::from_utf8_lossy(&body);
    let lines = page.lines().filter(|it| it.split(['{', ' ']).next() == Some(name));
    Ok(lines.filter_map(|it| it.rsplit(' ').next()?.parse::<u64>().ok()).sum())
}

pub(crate) fn is_running(pid: u32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

pub(crate) fn signal(pid: u32, name: &str) -> Result<()> {
    if works(Command::new("kill").args([&format!("-{name}"), &pid.to_string()])) {
        return Ok(());
    }
    bail!("cannot send {name} to {pid}")
}
