//! Sending spans: one connection for each batch, over HTTP/1.1 or gRPC, and a pause that doubles while the
//! collector does not take them. Nothing waits for this task but the end of the process, and that not for long.

use std::future::pending;
use std::io;
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tracing::{info, warn};

use super::otlp::envelope;
use super::settings::{TraceProtocol, TraceSettings};
use super::{Batch, Traces};

/// How often a batch is tried before it is dropped.
const TRIES_MAX: u32 = 5;
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// How long the end of the process waits for the last batch.
const LAST_WAIT_MAX: Duration = Duration::from_secs(2);
const ANSWER_BYTES_MAX: usize = 64 << 10;
const HTTP_PATH: &str = "/v1/traces";
const GRPC_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");

/// Why a batch was not taken.
#[derive(Debug, thiserror::Error)]
enum ExportError {
    #[error("no connection: {0}")]
    Connect(io::Error),
    #[error("no answer: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("an answer that cannot be read")]
    Answer,
    #[error("no answer in time")]
    Late,
    #[error("status {0}")]
    Status(StatusCode),
    #[error("gRPC status {0}")]
    Grpc(String),
}

impl ExportError {
    /// Tells whether it may be taken later, as OTLP has it.
    fn may_pass(&self) -> bool {
        match self {
            Self::Connect(_) | Self::Exchange(_) | Self::Answer | Self::Late => true,
            Self::Status(status) => matches!(status.as_u16(), 429 | 502 | 503 | 504),
            // Cancelled, deadline exceeded, resource exhausted, aborted, out of range, unavailable, data loss.
            Self::Grpc(code) => ["1", "4", "8", "10", "11", "14", "15"].contains(&code.as_str()),
        }
    }
}

impl Traces {
    /// Sends what is recorded, until it is dropped. Does nothing where traces are off.
    pub async fn run(&self) {
        let Some(settings) = &self.settings else { return pending().await };
        info!(endpoint = %settings.endpoint, sample = settings.sample, "traces are sent");
        let mut is_refusing = false;
        loop {
            tokio::select! {
                () = sleep(settings.interval) => {}
                () = self.filled.notified() => {}
            }
            let batch = self.take();
            if 0 < batch.spans {
                self.send(settings, batch, &mut is_refusing).await;
            }
        }
    }

    /// Sends what is left, for a moment.
    pub async fn finish(&self) {
        let (Some(settings), batch) = (&self.settings, self.take()) else { return };
        if batch.spans == 0 {
            return;
        }
        let body = Bytes::from(envelope(&settings.service_name, &batch.bytes));
        match timeout(LAST_WAIT_MAX, export(settings, body)).await {
            Ok(Ok(())) => _ = self.counters.sent.inc_by(batch.spans),
            Ok(Err(_)) | Err(_) => _ = self.counters.dropped_refused.inc_by(batch.spans),
        }
    }

    async fn send(&self, settings: &TraceSettings, batch: Batch, is_refusing: &mut bool) {
        let Batch { bytes, spans } = batch;
        let body = Bytes::from(envelope(&settings.service_name, &bytes));
        drop(bytes);
        let mut pause = PAUSE_MIN;
        for attempt in 1..=TRIES_MAX {
            let sent = timeout(settings.timeout, export(settings, body.clone())).await;
            match sent.unwrap_or(Err(ExportError::Late)) {
                Ok(()) => {
                    if std::mem::take(is_refusing) {
                        info!("traces are taken again");
                    }
                    self.counters.sent.inc_by(spans);
                    return;
                }
                Err(error) => {
                    if !std::mem::replace(is_refusing, true) {
                        warn!(%error, endpoint = %settings.endpoint, "traces are not taken");
                    }
                    if !error.may_pass() || attempt == TRIES_MAX {
                        break;
                    }
                }
            }
            sleep(pause).await;
            pause *= 2;
        }
        self.counters.dropped_refused.inc_by(spans);
    }
}

async fn export(settings: &TraceSettings, body: Bytes) -> Result<(), ExportError> {
    let host = settings.endpoint.host().unwrap_or_default();
    let is_secure = settings.tls.is_some();
    let port = settings.endpoint.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let stream = TcpStream::connect((bare, port)).await.map_err(ExportError::Connect)?;
    let Some(tls) = &settings.tls else { return exchange(settings, stream, body).await };
    let tls = tls.current();
    let name = tls.server_name(host).ok_or_else(|| io::ErrorKind::InvalidInput.into());
    let protocol: &[u8] = match settings.protocol {
        TraceProtocol::Http => b"http/1.1",
        TraceProtocol::Grpc => b"h2",
    };
    let connector = tls.connector_for(protocol);
    let secure = connector.connect(name.map_err(ExportError::Connect)?, stream).await;
    exchange(settings, secure.map_err(ExportError::Connect)?, body).await
}

async fn exchange(
    settings: &TraceSettings,
    stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    body: Bytes,
) -> Result<(), ExportError> {
    let stream = TokioIo::new(stream);
    match settings.protocol {
        TraceProtocol::Http => {
            let (mut sender, connection) = http1::handshake(stream).await?;
            let ask = async {
                let answer = sender.send_request(http_request(settings, body)).await?;
                let status = answer.status();
                read(answer.into_body()).await?;
                if status.is_success() { Ok(()) } else { Err(ExportError::Status(status)) }
            };
            beside(connection, ask).await
        }
        TraceProtocol::Grpc => {
            let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream).await?;
            let ask = async {
                let (parts, body) =
                    sender.send_request(grpc_request(settings, &body)).await?.into_parts();
                if !parts.status.is_success() {
                    return Err(ExportError::Status(parts.status));
                }
                let trailers = read(body).await?;
                let status = trailers.as_ref().and_then(|it| it.get(GRPC_STATUS));
                let status = status.or_else(|| parts.headers.get(GRPC_STATUS));
                match status.map(HeaderValue::as_bytes) {
                    Some(b"0") => Ok(()),
                    other => Err(ExportError::Grpc(
                        String::from_utf8_lossy(other.unwrap_or(b"missing")).into_owned(),
                    )),
                }
            };
            beside(connection, ask).await
        }
    }
}

/// Asks while the connection is driven.
async fn beside<C: Future>(
    connection: C,
    ask: impl Future<Output = Result<(), ExportError>>,
) -> Result<(), ExportError> {
    let drive = async {
        // Whatever ends it, the one that asks is told.
        _ = connection.await;
        pending::<()>().await;
    };
    tokio::select! {
        asked = ask => asked,
        () = drive => Err(ExportError::Answer),
    }
}

/// Reads an answer to its end; returns its trailers.
async fn read(body: Incoming) -> Result<Option<HeaderMap>, ExportError> {
    let read = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    read.map(|it| it.trailers().cloned()).map_err(|_| ExportError::Answer)
}

fn http_request(settings: &TraceSettings, body: Bytes) -> Request<Full<Bytes>> {
    let base = settings.endpoint.path().trim_end_matches('/');
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = format!("{base}{HTTP_PATH}").parse().unwrap_or_default();
    *request.headers_mut() = settings.headers.clone();
    let kind = HeaderValue::from_static("application/x-protobuf");
    request.headers_mut().insert(header::CONTENT_TYPE, kind);
    if let Some(host) = settings.endpoint.authority() {
        let host = HeaderValue::try_from(host.as_str());
        request.headers_mut().extend(host.ok().map(|it| (header::HOST, it)));
    }
    request
}

fn grpc_request(settings: &TraceSettings, body: &Bytes) -> Request<Full<Bytes>> {
    let mut framed = Vec::with_capacity(body.len() + 5);
    // Not compressed.
    framed.put_u8(0);
    framed.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
    framed.extend_from_slice(body);
    let mut request = Request::new(Full::new(Bytes::from(framed)));
    *request.method_mut() = Method::POST;
    let uri = Uri::builder()
        .scheme(settings.endpoint.scheme_str().unwrap_or("http"))
        .authority(settings.endpoint.authority().map_or("", |it| it.as_str()))
        .path_and_query(GRPC_PATH);
    *request.uri_mut() = uri.build().unwrap_or_default();
    *request.headers_mut() = settings.headers.clone();
    let kind = HeaderValue::from_static("application/grpc");
    request.headers_mut().insert(header::CONTENT_TYPE, kind);
    request.headers_mut().insert(header::TE, HeaderValue::from_static("trailers"));
    request
}
