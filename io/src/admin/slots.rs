//! The connections of the admin port: no more than there are seats, so that they cannot use up the files
//! that clients need. A newcomer always gets one: of those that have asked for nothing the oldest loses
//! its own, and where all have asked, the one whose request is longest ago. Heads, requests and writes
//! have their time, so that nothing stands still for ever; a reader of `/events` takes a seat.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use axum::Router as Routes;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::AbortHandle;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

use crate::proxy::{Guard, Socket};

/// Connections at once.
pub const SLOTS_MAX: usize = 64;
/// For a head to come, and so also how long a connection may lie idle.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
/// For a client to take anything of what it is sent.
const WRITE_LIMIT: Duration = Duration::from_secs(10);
/// After accepting failed: trying at once would spin.
const PAUSE: Duration = Duration::from_millis(50);

/// Where connections are served, the oldest first.
#[derive(Debug, Default)]
pub(super) struct ConnectionSlots {
    taken: Vec<ConnectionSlot>,
    /// Requests up to now, of all connections.
    asked: Arc<AtomicU64>,
}

#[derive(Debug)]
struct ConnectionSlot {
    /// The number of its last request; 0 before any.
    last: Arc<AtomicU64>,
    task: AbortHandle,
}

impl ConnectionSlots {
    /// Serves until `stop`, and then until all connections have ended.
    pub(super) async fn serve(
        mut self,
        listener: TcpListener,
        app: Routes,
        acceptor: impl Fn() -> Option<TlsAcceptor>,
        stop: CancellationToken,
    ) {
        let tasks = TaskTracker::new();
        while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
            match accepted {
                Ok((stream, _)) => self.slot((stream, acceptor()), &app, &stop, &tasks),
                Err(error) => {
                    warn!(%error, "the admin port cannot accept");
                    sleep(PAUSE).await;
                }
            }
        }
        drop(listener);
        tasks.close();
        tasks.wait().await;
    }

    fn slot(
        &mut self,
        (stream, tls): (TcpStream, Option<TlsAcceptor>),
        app: &Routes,
        stop: &CancellationToken,
        tasks: &TaskTracker,
    ) {
        self.taken.retain(|it| !it.task.is_finished());
        if SLOTS_MAX <= self.taken.len() {
            let last = |it: &(usize, &ConnectionSlot)| it.1.last.load(Relaxed);
            if let Some((at, _)) = self.taken.iter().enumerate().min_by_key(last) {
                self.taken.remove(at).task.abort();
            }
        }
        let (last, asked) = (Arc::new(AtomicU64::new(0)), Arc::clone(&self.asked));
        let (app, stop, seen) = (app.clone(), stop.clone(), Arc::clone(&last));
        let task = tasks.spawn(async move {
            let note = || seen.store(asked.fetch_add(1, Relaxed) + 1, Relaxed);
            if let Err(error) = accepted(stream, tls, app, note, stop).await {
                debug!(%error, "admin connection ended");
            }
        });
        self.taken.push(ConnectionSlot { last, task: task.abort_handle() });
    }
}

/// Serves one connection, under TLS where there is a certificate.
async fn accepted(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    app: Routes,
    note: impl Fn(),
    stop: CancellationToken,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let Some(tls) = tls else { return connection(stream, app, note, stop).await };
    let shaken = timeout(HEAD_LIMIT, tls.accept(stream)).await;
    connection(shaken.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??, app, note, stop)
        .await
}

/// Serves one connection; `note` is called at each request.
async fn connection<S: Socket + Send + 'static>(
    stream: S,
    app: Routes,
    note: impl Fn(),
    stop: CancellationToken,
) -> io::Result<()> {
    let app = TowerToHyperService::new(app);
    let service = service_fn(|request: Request<Incoming>| {
        note();
        let answer = app.call(request);
        async { Ok::<_, Infallible>(answer.await.unwrap_or_else(|never| match never {})) }
    });
    let stream = TokioIo::new(Guard::new(stream, WRITE_LIMIT));
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT);
    let mut connection = std::pin::pin!(builder.serve_connection(stream, service));
    tokio::select! {
        biased;
        ended = connection.as_mut() => ended.map_err(io::Error::other),
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await.map_err(io::Error::other)
        }
    }
}
