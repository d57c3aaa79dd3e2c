//! KEDA's external scaler: how many replicas a pool should have, over gRPC. It has a port of its own, because KEDA sends no
//! bearer token, and says nothing but these numbers. A number that is not known is an error and never 0: KEDA leaves
//! things as they are then.
//!
//! gRPC is written out here over hyper: four calls with one short message each are less than a library for them.

mod messages;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Limited, StreamBody};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use prost::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, warn};

pub use messages::{
    GetMetricSpecResponse, GetMetricsRequest, GetMetricsResponse, IsActiveResponse, MetricSpec,
    MetricValue, ScaledObjectRef,
};

use super::server::AdminBindError;
use crate::proxy::{Pool, Router};

const SERVICE: &str = "/externalscaler.ExternalScaler/";
/// The metric's name; KEDA puts its own before it.
const METRIC: &str = "wanted_replicas";
/// Connections at once, and calls at once on one of them.
const CONNECTIONS_MAX: usize = 32;
const CALLS_MAX: u32 = 64;
const MESSAGE_BYTES_MAX: usize = 64 << 10;
const MESSAGE_LIMIT: Duration = Duration::from_secs(10);
/// How soon the other end is known to be gone.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How often a stream looks whether something changed.
const LOOK: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(50);

type KedaAnswer = Response<UnsyncBoxBody<Bytes, Infallible>>;

/// Why a call fails: a status of gRPC, and words for operators.
#[derive(Debug)]
struct Failure {
    status: u8,
    words: String,
}

const INVALID: u8 = 3;
const NOT_FOUND: u8 = 5;
const UNIMPLEMENTED: u8 = 12;
const UNAVAILABLE: u8 = 14;

/// A bound port that serves nothing yet.
#[derive(Debug)]
pub struct KedaServer {
    listener: TcpListener,
    router: Arc<Router>,
}

impl KedaServer {
    pub async fn bind(address: SocketAddr, router: Arc<Router>) -> Result<Self, AdminBindError> {
        let listener =
            TcpListener::bind(address).await.map_err(|error| AdminBindError { address, error })?;
        Ok(Self { listener, router })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let (tasks, seats) = (TaskTracker::new(), Arc::new(Semaphore::new(CONNECTIONS_MAX)));
        while let Some(accepted) = stop.run_until_cancelled(self.listener.accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    warn!(%error, "the port for KEDA cannot accept");
                    sleep(PAUSE).await;
                    continue;
                }
            };
            // One too many is closed at once; KEDA comes again.
            let Ok(seat) = Arc::clone(&seats).try_acquire_owned() else { continue };
            let (router, stop) = (Arc::clone(&self.router), stop.clone());
            tasks.spawn(async move {
                if let Some(Err(error)) = stop.run_until_cancelled(connection(stream, router)).await
                {
                    debug!(%error, "a connection of KEDA ended");
                }
                drop(seat);
            });
        }
        tasks.close();
        tasks.wait().await;
    }
}

async fn connection(stream: TcpStream, router: Arc<Router>) -> Result<(), hyper::Error> {
    let service = service_fn(move |request| {
        let router = Arc::clone(&router);
        async move { Ok::<_, Infallible>(answer(request, &router).await) }
    });
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.timer(TokioTimer::new()).max_concurrent_streams(CALLS_MAX);
    builder.keep_alive_interval(KEEPALIVE).keep_alive_timeout(KEEPALIVE);
    builder.serve_connection(TokioIo::new(stream), service).await
}

async fn answer(request: Request<Incoming>, router: &Arc<Router>) -> KedaAnswer {
    let called = timeout(MESSAGE_LIMIT, call(request, router)).await;
    let late = || failure(UNAVAILABLE, "the message did not come in time");
    called.unwrap_or_else(|_| Err(late())).unwrap_or_else(|it| refuse(&it))
}

/// Carries out one call.
async fn call(request: Request<Incoming>, router: &Arc<Router>) -> Result<KedaAnswer, Failure> {
    let (head, body) = request.into_parts();
    let method = head.uri.path().strip_prefix(SERVICE).unwrap_or_default();
    if !["IsActive", "StreamIsActive", "GetMetricSpec", "GetMetrics"].contains(&method) {
        let words = format!("{} is not served here", head.uri.path());
        return Err(failure(UNIMPLEMENTED, words));
    }
    let body = Limited::new(body, MESSAGE_BYTES_MAX).collect().await;
    let body = body.map_err(|error| failure(INVALID, error.to_string()))?.to_bytes();
    let message = unframe(&body)?;
    if method == "GetMetrics" {
        let asked: GetMetricsRequest = read(message)?;
        let of = asked.scaled_object_ref.unwrap_or_default();
        let name = if asked.metric_name.is_empty() { METRIC.to_owned() } else { asked.metric_name };
        return Ok(one(&metrics(name, wanted(&*find(router, &of)?)?)));
    }
    let of: ScaledObjectRef = read(message)?;
    let pool = find(router, &of)?;
    match method {
        "GetMetricSpec" => Ok(one(&spec())),
        "StreamIsActive" => Ok(streamed(pool)),
        _ => Ok(one(&IsActiveResponse { result: 0 < wanted(&pool)? })),
    }
}

/// One replica for each that is wanted.
fn spec() -> GetMetricSpecResponse {
    let spec =
        MetricSpec { metric_name: METRIC.to_owned(), target_size: 1, target_size_float: 1.0 };
    GetMetricSpecResponse { metric_specs: vec![spec] }
}

fn metrics(metric_name: String, wanted: usize) -> GetMetricsResponse {
    let whole = u32::try_from(wanted).unwrap_or(u32::MAX);
    let (metric_value, metric_value_float) = (i64::from(whole), f64::from(whole));
    let value = MetricValue { metric_name, metric_value, metric_value_float };
    GetMetricsResponse { metric_values: vec![value] }
}

/// Finds the pool that a trigger names, or the only one that is scaled.
fn find(router: &Router, of: &ScaledObjectRef) -> Result<Arc<Pool>, Failure> {
    let pools = router.pools();
    let scaled: Vec<&Arc<Pool>> = pools.iter().filter(|it| it.scaling().is_some()).collect();
    let found = match (of.scaler_metadata.get("pool"), &scaled[..]) {
        (Some(name), _) => scaled.iter().find(|it| it.name == *name).copied(),
        (None, [only]) => Some(*only),
        (None, _) => None,
    };
    found.cloned().ok_or_else(|| {
        let names: Vec<&str> = scaled.iter().map(|it| it.name.as_str()).collect();
        let words = format!(
            "name one of the scaled pools in the trigger's metadata as `pool`: {}",
            names.join(", ")
        );
        failure(NOT_FOUND, words)
    })
}

fn wanted(pool: &Pool) -> Result<usize, Failure> {
    let words = "it is not known yet how many replicas are wanted";
    pool.scale.wanted().ok_or_else(|| failure(UNAVAILABLE, words))
}

/// Tells whether replicas are wanted, at once and at each change, until KEDA hangs up or the pool is not scaled any more.
fn streamed(pool: Arc<Pool>) -> KedaAnswer {
    let told = stream::unfold((pool, None::<bool>), async |(pool, told)| {
        loop {
            pool.scaling()?;
            let now = pool.scale.wanted().map(|it| 0 < it);
            if now.is_some() && now != told {
                let message = IsActiveResponse { result: now.unwrap_or_default() };
                return Some((Ok(Frame::data(frame(&message))), (pool, now)));
            }
            sleep(LOOK).await;
        }
    });
    respond(StreamBody::new(told).boxed_unsync())
}

/// Answers with one message.
fn one(message: &impl Message) -> KedaAnswer {
    let frames = [Frame::data(frame(message)), Frame::trailers(status(0, ""))];
    let frames = frames.map(Ok::<_, Infallible>);
    respond(StreamBody::new(stream::iter(frames)).boxed_unsync())
}

/// Answers with a failure, which has no message.
fn refuse(it: &Failure) -> KedaAnswer {
    let frames = [Ok::<_, Infallible>(Frame::trailers(status(it.status, &it.words)))];
    respond(StreamBody::new(stream::iter(frames)).boxed_unsync())
}

fn respond(body: UnsyncBoxBody<Bytes, Infallible>) -> KedaAnswer {
    let mut answer = Response::new(body);
    let kind = HeaderValue::from_static("application/grpc");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

fn status(status: u8, words: &str) -> HeaderMap {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(u16::from(status)));
    // Words that are no header value are left out; the number says enough.
    if let Ok(words) = HeaderValue::from_str(words)
        && !words.is_empty()
    {
        trailers.insert("grpc-message", words);
    }
    trailers
}

fn failure(status: u8, words: impl Into<String>) -> Failure {
    Failure { status, words: words.into() }
}

/// Puts a message in a frame of gRPC: not compressed, its length, its bytes.
fn frame(message: &impl Message) -> Bytes {
    let mut bytes = BytesMut::with_capacity(message.encoded_len() + 5);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(message.encoded_len()).unwrap_or(u32::MAX));
    bytes.put_slice(&message.encode_to_vec());
    bytes.freeze()
}

/// Takes the message out of the one frame of a call.
fn unframe(body: &[u8]) -> Result<&[u8], Failure> {
    let Some((&[flag, a, b, c, d], message)) = body.split_first_chunk::<5>() else {
        return Err(failure(INVALID, "there is no message"));
    };
    if flag != 0 {
        return Err(failure(UNIMPLEMENTED, "compressed messages are not read"));
    }
    let length = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
    message.get(..length).ok_or_else(|| failure(INVALID, "the message is cut short"))
}

fn read<M: Message + Default>(bytes: &[u8]) -> Result<M, Failure> {
    M::decode(bytes).map_err(|error| failure(INVALID, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_goes_through_its_frame() {
        let metadata = [("pool".to_owned(), "chat".to_owned())].into();
        let of = ScaledObjectRef {
            name: "vllm".to_owned(),
            namespace: "llm".to_owned(),
            scaler_metadata: metadata,
        };
        let framed = frame(&of);
        assert_eq!(read::<ScaledObjectRef>(unframe(&framed).unwrap()).unwrap(), of);
    }

    #[test]
    fn frames_that_are_none_are_refused_and_break_nothing() {
        for (bytes, status) in [
            (&b""[..], INVALID),
            (b"\0\0\0\0", INVALID),
            (b"\0\0\0\0\x05abc", INVALID),
            (b"\x01\0\0\0\0", UNIMPLEMENTED),
            (b"\0\xff\xff\xff\xffabc", INVALID),
        ] {
            assert_eq!(unframe(bytes).unwrap_err().status, status, "{bytes:?}");
        }
        assert_eq!(read::<ScaledObjectRef>(&[0xff; 9]).unwrap_err().status, INVALID);
    }

    #[test]
    fn the_numbers_are_those_of_the_published_messages() {
        let spec = spec().encode_to_vec();
        assert_eq!(spec[..2], [0x0a, 28], "metricSpecs = 1");
        assert_eq!(spec[2..4], [0x0a, 15], "metricName = 1");
        assert_eq!(spec[19..22], [0x10, 1, 0x19], "targetSize = 2, targetSizeFloat = 3");
        let value = metrics("m".to_owned(), 3).encode_to_vec();
        assert_eq!(value[..7], [0x0a, 14, 0x0a, 1, b'm', 0x10, 3]);
        assert_eq!(value[7..], [0x19, 0, 0, 0, 0, 0, 0, 8, 0x40], "3 as a double");
    }
}
