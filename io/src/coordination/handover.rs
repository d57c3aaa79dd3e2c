//! What a process hands to its successor at SIGUSR2, so that a restart forgets nothing: all that another router would be
//! told when it joins, in the same frames. The successor asks for it over a socket in the state folder once it knows its
//! replicas, so that it is as new as can be. What the old process has in flight then counts in the books of the new one
//! for as long as it should take, as that of a router that was lost.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use cleave_core::cluster::{FRAME_BYTES_MAX, Hello, Link, LinkEvent, VERSION, VERSION_MIN};
use cleave_core::domain::RouterId;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{UnixListener, UnixStream};
use tokio::time::timeout;
use tracing::{info, warn};
use uuid::Uuid;

use crate::proxy::Router;

/// How long the successor waits for it.
const TAKE_MAX: Duration = Duration::from_secs(5);

/// Names the socket of the process with this number.
fn socket_of(folder: &Path, process: u32) -> PathBuf {
    folder.join(format!("handover-{process}.sock"))
}

/// Removes the socket at the end.
struct HandoverSocket(PathBuf);

impl Drop for HandoverSocket {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}

/// Hands everything to the successor when it asks, until dropped. Where there is no folder for a socket, it begins with
/// nothing.
pub async fn hand_over(router: &Router) {
    if let Some(folder) = router.state_dir()
        && let Err(error) = serve(router, folder).await
    {
        warn!(%error, "nothing is handed to the successor");
    }
}

async fn serve(router: &Router, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let socket = HandoverSocket(socket_of(folder, std::process::id()));
    _ = std::fs::remove_file(&socket.0);
    let listener = UnixListener::bind(&socket.0)?;
    // Other users of the machine learn nothing of sessions and tenants.
    std::fs::set_permissions(&socket.0, Permissions::from_mode(0o600))?;
    loop {
        let (stream, _) = listener.accept().await?;
        if let Err(error) = tell(router, stream).await {
            warn!(%error, "the successor did not take what it was handed");
        }
    }
}

async fn tell(router: &Router, mut stream: UnixStream) -> io::Result<()> {
    for frame in frames(router) {
        stream.write_u32_le(u32::try_from(frame.len()).unwrap_or(u32::MAX)).await?;
        stream.write_all(&frame).await?;
    }
    stream.shutdown().await
}

/// Writes everything as another router would be told it.
fn frames(router: &Router) -> Vec<Vec<u8>> {
    let now = router.now();
    let mut link = Link::new(now, hello());
    link.tell_whole(&router.whole());
    std::iter::from_fn(|| link.take(now)).collect()
}

/// Introduces a process to its successor only: no other router knows it by this id.
fn hello() -> Hello {
    let (id, _) = Uuid::new_v4().as_u64_pair();
    let (version, version_min, address) = (VERSION, VERSION_MIN, String::new());
    Hello { version, version_min, router: RouterId(id), address }
}

/// Takes what the process before this one hands over, if it does.
pub async fn take_over(router: &Router) {
    let Some(folder) = router.state_dir() else { return };
    let path = socket_of(folder, std::os::unix::process::parent_id());
    let Ok(stream) = UnixStream::connect(&path).await else { return };
    match timeout(TAKE_MAX, take(router, stream)).await {
        Ok(Ok(bytes)) => info!(bytes, "took over what the process before knew"),
        Ok(Err(error)) => warn!(%error, "the process before handed over nothing of use"),
        Err(_) => warn!("the process before did not hand over in time"),
    }
}

async fn take(router: &Router, mut stream: UnixStream) -> io::Result<u64> {
    let mut link = Link::new(router.now(), hello());
    let mut events = Vec::new();
    loop {
        let length = match stream.read_u32_le().await {
            Ok(length) => usize::try_from(length).unwrap_or(usize::MAX),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        };
        if FRAME_BYTES_MAX < length {
            return Err(io::Error::other("a frame is too long"));
        }
        let mut frame = vec![0; length];
        stream.read_exact(&mut frame).await?;
        link.on_frame(router.now(), &frame, &mut events).map_err(io::Error::other)?;
    }
    let Some(from) = link.peer().map(|it| it.router) else { return Ok(0) };
    for event in events {
        if let LinkEvent::Heard { pool, news, is_whole } = event {
            router.on_heard(from, pool, news, is_whole);
        }
    }
    // It drains and tells no more.
    for pool in router.pools().iter() {
        pool.on_parted(from, true);
    }
    Ok(link.totals().bytes_heard)
}
