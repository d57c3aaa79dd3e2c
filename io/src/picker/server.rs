//! The listener of the picker. A gateway keeps a few connections of HTTP/2 with many exchanges on each, so exchanges
//! are shared out over the threads rather than connections. A panic ends one exchange, with an error of gRPC's: then
//! the gateway does what its pool says of a picker that fails.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{Handle, Runtime};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::server::{Grpc, ServerStreamingService, StreamingService, UnaryService};
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;
use tracing::{debug, warn};

use super::call::Call;
use super::health;
use super::inbox::Inbox;
use super::messages::{HealthCheck, HealthStatus, ProcessingRequest, ProcessingResponse};
use crate::proxy::{Listener, Panicked, Picking, Router, contained};

/// Between two pings on a connection, and how long an answer to one may take.
const KEEP_ALIVE: Duration = Duration::from_secs(20);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Exchanges on one connection at once; a proxy with more opens another.
const STREAMS_MAX: u32 = 1_000;
/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// What a message has beside a body.
const MESSAGE_BYTES: usize = 1 << 20;

type Exchanged = Pin<Box<dyn Stream<Item = Result<ProcessingResponse, Status>> + Send>>;
type HealthUpdates = Pin<Box<dyn Stream<Item = Result<HealthStatus, Status>> + Send>>;

/// What tells a gateway where requests go.
#[derive(Debug)]
pub struct PickerServer {
    listener: Listener,
    picking: Arc<Picking>,
}

impl PickerServer {
    pub fn new(router: Arc<Router>, listener: Listener) -> Self {
        Self { listener, picking: Picking::new(router) }
    }

    /// Serves until `stop`, then lets exchanges finish, as long as the drain may take or until `hurry`. Unless the
    /// socket is `taken` by another process, it ends. Returns how many were cut.
    pub async fn run(
        self,
        stop: CancellationToken,
        hurry: CancellationToken,
        taken: CancellationToken,
    ) -> io::Result<usize> {
        let router = Arc::clone(self.picking.router());
        let threads = Threads::start(router.settings.threads.get())?;
        let (drain, tasks) = (CancellationToken::new(), TaskTracker::new());
        let connections = Connections {
            picking: Arc::clone(&self.picking),
            header: router.settings.timeouts.header,
            drain: drain.clone(),
        };
        let (accepting, all) = (stop.clone(), tasks.clone());
        let places = Arc::new(Semaphore::new(self.listener.connections_max));
        let listener = Arc::new(self.listener);
        let accept_on = Arc::clone(&listener);
        let accepted = threads.handle.spawn(async move {
            let accept = accept(accept_on, connections, all, places);
            _ = accepting.run_until_cancelled(accept).await;
        });
        stop.cancelled().await;
        router.start_draining();
        if !taken.is_cancelled() {
            listener.close();
        }
        drop(listener);
        _ = accepted.await;
        drain.cancel();
        tasks.close();
        let limit = router.settings.timeouts.drain;
        let in_time = timeout(limit, hurry.run_until_cancelled(tasks.wait())).await;
        let cut = if matches!(in_time, Ok(Some(()))) { 0 } else { router.in_flight() };
        drop(threads);
        router.flush();
        Ok(cut)
    }
}

/// The threads that carry exchanges. They are left to end by themselves: a runtime must not be waited for where
/// others wait.
struct Threads {
    handle: Handle,
    runtime: Option<Runtime>,
}

impl Threads {
    fn start(count: usize) -> io::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(count).thread_name("picker").enable_all().build()?;
        Ok(Self { handle: runtime.handle().clone(), runtime: Some(runtime) })
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn accept(
    listener: Arc<Listener>,
    connections: Connections,
    tasks: TaskTracker,
    places: Arc<Semaphore>,
) {
    let listener = match listener.accepting() {
        Ok(listener) => listener,
        Err(error) => return warn!(%error, "cannot accept"),
    };
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, peer)) => {
                let connections = connections.clone();
                tasks.spawn(async move {
                    if let Err(error) = connections.serve(stream, peer.ip()).await {
                        debug!(%error, "connection ended");
                    }
                    drop(place);
                });
            }
            Err(error) => {
                warn!(%error, "cannot accept");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// What connections share.
#[derive(Clone)]
struct Connections {
    picking: Arc<Picking>,
    header: Duration,
    drain: CancellationToken,
}

impl Connections {
    async fn serve(&self, stream: TcpStream, peer: IpAddr) -> io::Result<()> {
        stream.set_nodelay(true)?;
        match self.picking.router().acceptor() {
            None => self.speak(stream, peer).await,
            Some(tls) => {
                let handshake = timeout(self.header, tls.accept(stream)).await;
                let stream = handshake.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
                self.speak(stream, peer).await
            }
        }
    }

    async fn speak<I>(&self, stream: I, peer: IpAddr) -> io::Result<()>
    where
        I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let service = service_fn(|request| {
            let picking = Arc::clone(&self.picking);
            async move { Ok::<_, Infallible>(answer(picking, request, peer).await) }
        });
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
            .max_concurrent_streams(STREAMS_MAX);
        let connection = builder.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            biased;
            served = connection.as_mut() => served,
            () = self.drain.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        served.map_err(io::Error::other)
    }
}

/// Answers one call.
async fn answer(picking: Arc<Picking>, request: Request<Incoming>, peer: IpAddr) -> Response<Body> {
    let bytes_max = picking.body_limits().0.saturating_add(MESSAGE_BYTES);
    match request.uri().path() {
        "/envoy.service.ext_proc.v3.ExternalProcessor/Process" => {
            let codec = ProstCodec::default();
            let mut grpc = Grpc::new(codec).max_decoding_message_size(bytes_max);
            grpc.streaming(Process { picking, peer }, request).await
        }
        "/grpc.health.v1.Health/Check" => {
            Grpc::new(ProstCodec::default()).unary(Health(picking), request).await
        }
        "/grpc.health.v1.Health/Watch" => {
            Grpc::new(ProstCodec::default()).server_streaming(Health(picking), request).await
        }
        _ => {
            Status::unimplemented("only external processing and health are served here").into_http()
        }
    }
}

struct Process {
    picking: Arc<Picking>,
    peer: IpAddr,
}

impl StreamingService<ProcessingRequest> for Process {
    type Response = ProcessingResponse;
    type ResponseStream = Exchanged;
    type Future = Ready<Result<tonic::Response<Exchanged>, Status>>;

    fn call(&mut self, request: tonic::Request<Streaming<ProcessingRequest>>) -> Self::Future {
        let inbox = Inbox::new(request.into_inner());
        let call = Call::new(Arc::clone(&self.picking), inbox, self.peer);
        ready(Ok(tonic::Response::new(exchanged(Arc::clone(self.picking.router()), call))))
    }
}

/// Runs an exchange as its messages are asked for. Dropping it drops the request.
fn exchanged(router: Arc<Router>, call: Call) -> Exchanged {
    let begun = Some((router, call));
    Box::pin(unfold(begun, |state| async move {
        let (router, mut call) = state?;
        let stepped = contained(Box::pin(async move {
            let message = call.step().await;
            (call, message)
        }));
        match stepped.await {
            Ok((call, Some(message))) => Some((Ok(message), Some((router, call)))),
            Ok((_, None)) => None,
            Err(Panicked) => {
                router.metrics.on_panic("stream");
                Some((Err(Status::internal("the router made a mistake")), None))
            }
        }
    }))
}

struct Health(Arc<Picking>);

impl UnaryService<HealthCheck> for Health {
    type Response = HealthStatus;
    type Future = Ready<Result<tonic::Response<HealthStatus>, Status>>;

    fn call(&mut self, request: tonic::Request<HealthCheck>) -> Self::Future {
        let found = health::check(self.0.router(), &request.get_ref().service);
        let found = found.ok_or_else(|| Status::not_found("no such service"));
        ready(found.map(tonic::Response::new))
    }
}

impl ServerStreamingService<HealthCheck> for Health {
    type Response = HealthStatus;
    type ResponseStream = HealthUpdates;
    type Future = Ready<Result<tonic::Response<HealthUpdates>, Status>>;

    fn call(&mut self, request: tonic::Request<HealthCheck>) -> Self::Future {
        let watch = health::watch(Arc::clone(self.0.router()), request.into_inner().service);
        ready(Ok(tonic::Response::new(Box::pin(watch))))
    }
}
