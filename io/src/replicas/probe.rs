//! Asking a replica whether it lives, what it serves and how loaded it is. On a connection of its own:
//! a probe must tell whether new connections get through.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use cleave_core::domain::{Moment, Report};
use cleave_core::protocol::{Model, read_models, read_report};
use http::{Method, StatusCode};
use http_body_util::Empty;
use tokio::time::timeout;

use super::connection::{Connection, Outgoing, Payload, SendError};
use super::settings::{Origin, ProbeSettings};

/// A list of models longer than this is not one; of a page of metrics this much is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where engines keep their metrics: all but one of them, and TensorRT-LLM's own server.
const METRICS_PATHS: [&str; 2] = ["/metrics", "/prometheus/metrics"];

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    Passed,
    Failed,
    TimedOut,
}

/// Asks for the replica's health.
pub async fn probe(origin: &Origin, settings: &ProbeSettings) -> Finding {
    match get(origin, &settings.path, settings.timeout).await {
        Ok((status, _)) if status.is_success() => Finding::Passed,
        Err(SendError::NoAnswer | SendError::ConnectTimeout) => Finding::TimedOut,
        Ok(_) | Err(_) => Finding::Failed,
    }
}

/// Asks what the replica serves; `None` when it does not say.
pub async fn ask_models(origin: &Origin, limit: Duration) -> Option<Vec<Model>> {
    let (status, body) = get(origin, "/v1/models", limit).await.ok()?;
    if status.is_success() { read_models(&body) } else { None }
}

/// Asks how loaded the engine is; `None` when it does not say. `now` is when it is asked, so that a
/// report is never thought newer than it is.
pub async fn ask_report(origin: &Origin, limit: Duration, now: Moment) -> Option<Report> {
    for path in METRICS_PATHS {
        let (status, body) = get(origin, path, limit).await.ok()?;
        if status.is_success()
            && let Some(report) = read_report(&body, now)
        {
            return Some(report);
        }
    }
    None
}

async fn get(
    origin: &Origin,
    path: &str,
    limit: Duration,
) -> Result<(StatusCode, Vec<u8>), SendError> {
    timeout(limit, get_unbounded(origin, path, limit)).await.unwrap_or(Err(SendError::NoAnswer))
}

async fn get_unbounded(
    origin: &Origin,
    path: &str,
    limit: Duration,
) -> Result<(StatusCode, Vec<u8>), SendError> {
    let connection = Connection::open(origin, limit).await?;
    let authority = origin.authority();
    let head = format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\nconnection: close\r\n\r\n");
    let payload = Payload::default();
    let outgoing: Outgoing<'_, Empty<Bytes>> = Outgoing::Held(&payload);
    let mut answer =
        connection.exchange(&Method::GET, [head.as_bytes(), b""], outgoing, limit).await?;
    let mut body = Vec::new();
    while let Some(piece) = poll_fn(|cx| answer.body.poll_piece(cx)).await {
        body.extend_from_slice(&piece.map_err(SendError::Lost)?);
        if ANSWER_BYTES_MAX < body.len() {
            break;
        }
    }
    Ok((answer.status, body))
}
