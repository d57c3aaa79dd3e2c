//! A restart without a gap: the new process gets the listening socket as its standard input and
//! serves, the old one drains. One socket has one backlog, so no connection is lost between the two; a
//! second socket on the same port (`SO_REUSEPORT`) would lose those that wait at the old one when it
//! closes. Standard input is the one descriptor that can be handed on without unsafe code.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use anyhow::{Context as _, bail};
use cleave_io::config;

const FLAG: &str = "--take-over";
/// How long the successor may take until it serves.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Takes the listener that the process before us has left.
pub(crate) fn take_listener() -> io::Result<OwnedFd> {
    io::stdin().as_fd().try_clone_to_owned()
}

/// Starts this program anew, from the path it was started by: an upgrade is there under the same name.
/// Returns the successor's id when it serves.
pub(crate) async fn start(listener: OwnedFd) -> anyhow::Result<u32> {
    tokio::task::spawn_blocking(|| start_and_wait(listener)).await?
}

fn start_and_wait(listener: OwnedFd) -> anyhow::Result<u32> {
    let mut arguments = std::env::args_os();
    let program = arguments.next().context("it is not known how this program was started")?;
    let mut child = Command::new(program)
        .args(arguments.filter(|it| it != FLAG))
        .arg(FLAG)
        .stdin(Stdio::from(listener))
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start")?;
    match first_line(&mut child) {
        Ok(line) => {
            // The reader of our output is told that it serves, and where, as at our own start.
            _ = io::stdout().write_all(line.as_bytes());
            Ok(child.id())
        }
        Err(error) => {
            // It may have ended by itself.
            _ = child.kill();
            _ = child.wait();
            Err(error)
        }
    }
}

/// Waits for the line that says where it listens.
fn first_line(child: &mut Child) -> anyhow::Result<String> {
    let out = child.stdout.take().context("its output is not ours")?;
    let (said, line) = mpsc::sync_channel(1);
    std::thread::spawn(move || {
        let mut line = String::new();
        _ = BufReader::new(out).read_line(&mut line);
        _ = said.send(line);
    });
    let line = line.recv_timeout(START_LIMIT).context("it does not come up")?;
    if line.is_empty() {
        bail!("it ended at its start; its log says why");
    }
    Ok(line)
}

/// Tells systemd, where it supervises us, that this process serves and is the one to watch. Without an
/// answer, because it gives none.
pub(crate) fn tell_supervisor() {
    let pid = std::process::id();
    let found = config::environment().find(|it| it.0 == "NOTIFY_SOCKET");
    let Some((_, path)) = found else { return };
    let address = match path.strip_prefix('@') {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| {
        UnixDatagram::unbound()?
            .send_to_addr(format!("READY=1\nMAINPID={pid}").as_bytes(), &address)
    });
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot tell the supervisor");
    }
}
