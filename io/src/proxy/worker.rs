//! One thread of the data plane: its own runtime, its own client connections, its own connections to
//! replicas. A request never leaves the thread that accepted it, so nothing per request is shared
//! but the brain.

use std::future::{Future, pending};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_core::protocol::Api;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use rand::{Rng as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::debug;

use crate::replicas::IdleConnections;

use super::body::Body;
use super::exchange::exchange;
use super::panics::contained;
use super::rescue::ServeError;
use super::router::Router;

const SWEEP: Duration = Duration::from_secs(1);
/// How long a client that has just connected may take to ask, when the router drains.
const FRESH: Duration = Duration::from_secs(1);

/// What the thread's requests share.
pub(super) struct Worker {
    pub(super) router: Arc<Router>,
    pub(super) idle: IdleConnections,
    chance: Mutex<Pcg64Mcg>,
    tls: Option<TlsAcceptor>,
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
    pub(super) place: OwnedSemaphorePermit,
}

impl Worker {
    pub(super) fn new(
        router: Arc<Router>,
        tls: Option<TlsAcceptor>,
        ending: Ending,
        load: Arc<AtomicUsize>,
    ) -> Arc<Self> {
        let seed = uuid::Uuid::new_v4().as_u128();
        let chance = Mutex::new(Pcg64Mcg::from_seed(seed.to_le_bytes()));
        Arc::new(Self { router, idle: IdleConnections::default(), chance, tls, ending, load })
    }

    /// Serves connections until no more come and all have ended, or are cut.
    pub(super) async fn run(self: Arc<Self>, mut accepted: mpsc::Receiver<Accepted>) {
        let tasks = TaskTracker::new();
        let router = Arc::clone(&self.router);
        let worker = Arc::clone(&self);
        let sweeping = Arc::clone(&router).keep_up("sweeper", move || Arc::clone(&worker).sweep());
        let sweeper = tasks.spawn(sweeping);
        while contained(Box::pin(self.take_all(&mut accepted, &tasks))).await.is_err() {
            // Whatever it was, the thread has others to serve.
            router.metrics.on_panic("thread");
        }
        sweeper.abort();
        tasks.close();
        // What is left after that is dropped with the runtime, and hangs up on both sides.
        _ = self.ending.cut.run_until_cancelled(tasks.wait()).await;
    }

    /// Serves each connection in a task of its own until no more come.
    async fn take_all(
        self: &Arc<Self>,
        accepted: &mut mpsc::Receiver<Accepted>,
        tasks: &TaskTracker,
    ) {
        while let Some(Accepted { stream, place }) = accepted.recv().await {
            let worker = Arc::clone(self);
            let open = Open::new(self, place);
            tasks.spawn(Arc::clone(&self.router).run_once(async move {
                if let Err(error) = worker.connection(stream).await {
                    debug!(%error, "connection ended");
                }
                drop(open);
            }));
        }
    }

    /// Makes an id that nobody else has.
    pub(super) fn fresh_id(&self) -> String {
        let mut bytes = [0; 16];
        self.chance.lock().unwrap_or_else(PoisonError::into_inner).fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid().to_string()
    }

    async fn sweep(self: Arc<Self>) {
        loop {
            sleep(SWEEP).await;
            self.idle.sweep();
        }
    }

    async fn connection(self: Arc<Self>, stream: std::net::TcpStream) -> io::Result<()> {
        let stream = TcpStream::from_std(stream)?;
        stream.set_nodelay(true)?;
        match &self.tls {
            None => self.serve(stream).await,
            Some(tls) => {
                let handshake = timeout(self.router.settings.timeouts.header, tls.accept(stream));
                let stream =
                    handshake.await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                self.serve(stream).await
            }
        }
    }

    async fn serve<I>(self: &Arc<Self>, stream: I) -> io::Result<()>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        let header = self.router.settings.timeouts.header;
        builder.http1().timer(TokioTimer::new()).header_read_timeout(header);
        builder.http2().timer(TokioTimer::new()).keep_alive_interval(Duration::from_secs(30));
        let asked = AtomicBool::new(false);
        let service = service_fn(|request| {
            asked.store(true, Relaxed);
            answer(Arc::clone(self), request)
        });
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
    request: Request<Incoming>,
) -> impl Future<Output = Result<Response<Body>, io::Error>> {
    let router = Arc::clone(&worker.router);
    let exchange = contained(Box::pin(exchange(worker, request)));
    async move { Ok(exchange.await.unwrap_or_else(|_| failed(&router))) }
}

/// Answers 500 where the life of a request ends in a panic, which is a mistake of ours: the connection
/// and every other request go on.
fn failed(router: &Router) -> Response<Body> {
    router.metrics.on_panic("request");
    ServeError::Panicked.answer(Api::Other)
}

/// Counts one open connection for as long as it lives.
struct Open {
    worker: Arc<Worker>,
    _place: OwnedSemaphorePermit,
}

impl Open {
    fn new(worker: &Arc<Worker>, place: OwnedSemaphorePermit) -> Self {
        worker.router.metrics.connections.inc();
        Self { worker: Arc::clone(worker), _place: place }
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.worker.load.fetch_sub(1, Relaxed);
        self.worker.router.metrics.connections.dec();
    }
}
