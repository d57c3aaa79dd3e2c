//! One thread of the data plane: its own runtime, its own client connections, its own connections to
//! replicas. A request never leaves the thread that accepted it, so nothing per request is shared
//! but the brain.

use std::error::Error;
use std::future::{Future, pending};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use cleave_core::protocol::Api;
use futures_util::FutureExt as _;
use http::{Method, Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::{AbortHandle, try_id};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::replicas::IdleConnections;

use super::body::Body;
use super::chance::Chance;
use super::client::{Busy, Client};
use super::exchange::exchange;
use super::guard::{Guard, Socket};
use super::panics::contained;
use super::rescue::ServeError;
use super::router::Router;
use super::stuck::StuckAnswers;

const SWEEP: Duration = Duration::from_secs(1);
/// Between two pings on an HTTP/2 connection.
const KEEP_ALIVE: Duration = Duration::from_secs(30);
/// Requests on one HTTP/2 connection at once, the size of one's head, and requests that were taken back
/// before they were looked at.
const STREAMS_MAX: u32 = 200;
const HEAD_BYTES_MAX: u32 = 16 << 10;
const RESETS_MAX: usize = 20;
/// How long a client that has just connected may take to ask, when the router drains.
const FRESH: Duration = Duration::from_secs(1);

/// What the thread's requests share.
pub(super) struct Worker {
    pub(super) router: Arc<Router>,
    pub(super) idle: IdleConnections,
    /// The answers on their way to clients.
    pub(super) stuck_answers: StuckAnswers,
    tasks: TaskTracker,
    pub(super) chance: Chance,
    ending: Ending,
    /// Client connections this thread has open.
    load: Arc<AtomicUsize>,
}

/// How a thread is told to end.
#[derive(Clone, Debug, Default)]
pub(super) struct Ending {
    /// Connections should end when their request has.
    pub(super) drain: CancellationToken,
    /// What is still running is cut.
    pub(super) cut: CancellationToken,
}

/// A connection that was just accepted, with its place among all that may be open.
pub(super) struct Accepted {
    pub(super) stream: std::net::TcpStream,
    pub(super) client: Arc<Client>,
    pub(super) place: OwnedSemaphorePermit,
}

impl Worker {
    pub(super) fn new(router: Arc<Router>, ending: Ending, load: Arc<AtomicUsize>) -> Arc<Self> {
        let chance = Chance::new();
        let (idle, stuck_answers, tasks) = Default::default();
        Arc::new(Self { router, idle, stuck_answers, tasks, chance, ending, load })
    }

    /// Serves connections until no more come and all have ended, or are cut.
    pub(super) async fn run(self: Arc<Self>, mut accepted: mpsc::Receiver<Accepted>) {
        let (router, worker) = (Arc::clone(&self.router), Arc::clone(&self));
        let sweeping = Arc::clone(&router).keep_up("sweeper", move || Arc::clone(&worker).sweep());
        let sweeper = self.tasks.spawn(sweeping);
        while contained(Box::pin(self.take_all(&mut accepted))).await.is_err() {
            // Whatever it was, the thread has others to serve.
            router.metrics.on_panic("thread");
        }
        sweeper.abort();
        self.tasks.close();
        // What is left after that is dropped with the runtime, and hangs up on both sides.
        _ = self.ending.cut.run_until_cancelled(self.tasks.wait()).await;
    }

    /// Runs a task that may carry answers: of a connection, or of a stream on one.
    fn carry(self: &Arc<Self>, task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        let carried = Carried(Arc::clone(self));
        // An `async` block around the task would have room for it twice.
        let spawned = self.tasks.spawn(task.map(|()| drop(carried)));
        // It has not begun: it runs on this thread.
        self.stuck_answers.enter(spawned.abort_handle());
        spawned.abort_handle()
    }

    /// Counts why a connection was ended by the router, if it was.
    fn note_end(&self, error: &io::Error) {
        debug!(%error, "connection ended");
        let clients = &self.router.metrics.clients;
        match cause(error) {
            Some(io::ErrorKind::TimedOut) => _ = clients.unread.inc(),
            Some(io::ErrorKind::InvalidData) => _ = clients.flood.inc(),
            Some(_) | None => {}
        }
    }

    /// Serves each connection in a task of its own until no more come.
    async fn take_all(self: &Arc<Self>, accepted: &mut mpsc::Receiver<Accepted>) {
        while let Some(Accepted { stream, client, place }) = accepted.recv().await {
            let worker = Arc::clone(self);
            let open = OpenConnection::new(self, place);
            let served = Arc::clone(&client);
            let task = self.carry(Arc::clone(&self.router).run_once(async move {
                if let Err(error) = worker.connection(stream, served).await {
                    worker.note_end(&error);
                }
                drop(open);
            }));
            client.set_task(task);
        }
    }

    async fn sweep(self: Arc<Self>) {
        loop {
            let due = Instant::now() + SWEEP;
            sleep(SWEEP).await;
            self.router.metrics.on_lag("worker", due.elapsed());
            self.idle.sweep();
            let cancelled =
                self.stuck_answers.sweep(Instant::now(), &self.router.settings.client_limits());
            if 0 < cancelled {
                debug!(cancelled, "answers that their clients do not take");
                let cancelled = u64::try_from(cancelled).unwrap_or(0);
                self.router.metrics.clients.stuck.inc_by(cancelled);
            }
        }
    }

    async fn connection(
        self: &Arc<Self>,
        stream: std::net::TcpStream,
        client: Arc<Client>,
    ) -> io::Result<()> {
        let stream = TcpStream::from_std(stream)?;
        stream.set_nodelay(true)?;
        match self.router.acceptor() {
            None => self.serve(stream, client).await,
            Some(tls) => {
                let handshake = timeout(self.router.settings.timeouts.header, tls.accept(stream));
                let stream =
                    handshake.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                self.serve(stream, client).await
            }
        }
    }

    async fn serve<I>(self: &Arc<Self>, stream: I, client: Arc<Client>) -> io::Result<()>
    where
        I: Socket + Send + 'static,
    {
        let mut builder = auto::Builder::new(Streams(Arc::clone(self)));
        let header = self.router.settings.timeouts.header;
        builder.http1().timer(TokioTimer::new()).header_read_timeout(header);
        builder
            .http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .max_concurrent_streams(STREAMS_MAX)
            .max_header_list_size(HEAD_BYTES_MAX)
            .max_pending_accept_reset_streams(RESETS_MAX);
        let asked = AtomicBool::new(false);
        let service = service_fn(|request| {
            asked.store(true, Relaxed);
            answer(Arc::clone(self), Arc::clone(&client), request)
        });
        let stream = Guard::new(stream, self.router.settings.timeouts.write)
            .with_client(Arc::clone(&client));
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        // hyper minds the time a head takes, but not the time until it knows which protocol it is.
        let silence = async {
            sleep(header).await;
            if asked.load(Relaxed) {
                pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            ended = connection.as_mut() => ended.map_err(io::Error::other),
            () = self.ending.drain.cancelled() => {
                // Its request may be on the wire: closing now would lose it.
                if !asked.load(Relaxed)
                    && let Ok(ended) = timeout(FRESH, connection.as_mut()).await
                {
                    return ended.map_err(io::Error::other);
                }
                connection.as_mut().graceful_shutdown();
                connection.await.map_err(io::Error::other)
            }
            () = silence => Err(io::ErrorKind::TimedOut.into()),
        }
    }
}

/// Boxed, because the life of a request is a large future and hyper moves it about.
fn answer(
    worker: Arc<Worker>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, io::Error>> {
    let (router, busy) = (Arc::clone(&worker.router), Busy::new(&client, request.version()));
    let is_head = request.method() == Method::HEAD;
    let exchange = contained(Box::pin(exchange(worker, client, request)));
    async move {
        let answer = exchange.await.unwrap_or_else(|_| failed(&router));
        let answer = if is_head { Body::without_text(answer) } else { answer };
        Ok(Body::begin(answer, busy))
    }
}

/// Answers 500 where the life of a request ends in a panic, which is a mistake of ours: the connection
/// and every other request go on.
fn failed(router: &Router) -> Response<Body> {
    router.metrics.on_panic("request");
    ServeError::Panicked.answer(Api::Other)
}

/// Runs the streams of HTTP/2 connections, each as a task of its own.
#[derive(Clone)]
struct Streams(Arc<Worker>);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Streams {
    fn execute(&self, stream: F) {
        self.0.carry(stream);
    }
}

/// The task that holds it may carry answers.
struct Carried(Arc<Worker>);

impl Drop for Carried {
    fn drop(&mut self) {
        if let Some(carrier) = try_id() {
            self.0.stuck_answers.leave(carrier);
        }
    }
}

/// Finds the kind of the I/O error behind an error of hyper's.
fn cause(error: &io::Error) -> Option<io::ErrorKind> {
    let mut source: Option<&(dyn Error + 'static)> = error.source();
    while let Some(error) = source {
        if let Some(error) = error.downcast_ref::<io::Error>() {
            return Some(error.kind());
        }
        source = error.source();
    }
    None
}

/// Counts one open connection for as long as it lives.
struct OpenConnection {
    worker: Arc<Worker>,
    _place: OwnedSemaphorePermit,
}

impl OpenConnection {
    fn new(worker: &Arc<Worker>, place: OwnedSemaphorePermit) -> Self {
        worker.router.metrics.connections.inc();
        Self { worker: Arc::clone(worker), _place: place }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.worker.load.fetch_sub(1, Relaxed);
        self.worker.router.metrics.connections.dec();
    }
}
