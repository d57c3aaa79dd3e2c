//! Asking a replica whether it lives, what it serves and how loaded it is. On a connection of its own:
//! a probe must tell whether new connections get through.

use std::future::poll_fn;
use std::io;
use std::time::Duration;

use bytes::Bytes;
use cleave_core::domain::{Moment, ProcessAge, Report};
use cleave_core::protocol::{Model, read_birth, read_models, read_report, token_requests};
use http::{Method, StatusCode};
use http_body_util::Empty;
use tokio::time::timeout;

use super::access::Target;
use super::connection::{Connection, OutgoingBody, Payload, SendError};
use super::settings::ProbeSettings;
use super::trouble::Trouble;

/// A list of models longer than this is not one; of a page of metrics this much is read.
const ANSWER_BYTES_MAX: usize = 1 << 20;

/// Where engines keep their metrics: all but one of them, and TensorRT-LLM's own server.
const METRICS_PATHS: [&str; 2] = ["/metrics", "/prometheus/metrics"];

/// What a probe found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    Passed,
    Failed,
    /// Nothing listens there.
    Refused,
    TimedOut,
    /// It could not be asked, because the router's own resources ran out.
    Nothing,
}

/// What came of asking for models.
#[derive(Clone, Debug)]
pub enum Listed {
    Models(Vec<Model>),
    /// It does not take the key it was given, or wants one.
    Unauthorized,
    /// It does not say.
    Silent,
}

/// What came of asking for a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    Came,
    /// The replica does not take such a request, which says nothing of its engine.
    Unable,
    Failed,
    /// Nothing listens there, or it hangs up.
    Refused,
    Missed,
}

/// Asks for the replica's health, and says what is wrong with it if anything is.
pub async fn probe(at: Target<'_>, settings: &ProbeSettings) -> (Finding, Option<Trouble>) {
    let answered = get(at, &settings.path, settings.timeout).await;
    let trouble = Trouble::of(&settings.path, &answered);
    let finding = match answered {
        Ok((status, _)) if status.is_success() => Finding::Passed,
        Err(SendError::NoAnswer | SendError::ConnectTimeout) => Finding::TimedOut,
        Err(SendError::Connect(error)) if is_refusal(&error) => Finding::Refused,
        Err(SendError::Exhausted(_)) => Finding::Nothing,
        Ok(_) | Err(_) => Finding::Failed,
    };
    (finding, trouble)
}

/// Asks the replica for one token of `model`, end to end: the engine itself must work for it. Nothing
/// of it is booked or counted, because no client asked for it. Says why where it cannot be connected to.
pub async fn ask_token(at: Target<'_>, model: &str, limit: Duration) -> (Token, Option<Trouble>) {
    timeout(limit, ask_each(at, model, limit)).await.unwrap_or((Token::Missed, None))
}

async fn ask_each(at: Target<'_>, model: &str, limit: Duration) -> (Token, Option<Trouble>) {
    for (path, body) in token_requests(model) {
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {}\r\n{}content-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            at.origin.authority(),
            at.access.line(),
            body.len(),
        );
        let payload = Payload::whole(body.into());
        let answered = exchange(at, &Method::POST, &head, &payload, limit).await;
        let trouble = answered.as_ref().err().and_then(Trouble::of_try);
        let token = match answered {
            Ok((status, _)) if status.is_success() => Token::Came,
            // It may know the other path; a full queue is no illness either.
            Ok((status, _)) if status.is_client_error() => continue,
            Ok((StatusCode::SERVICE_UNAVAILABLE, _)) | Err(SendError::Exhausted(_)) => {
                Token::Unable
            }
            Err(SendError::NoAnswer | SendError::ConnectTimeout) => Token::Missed,
            // A process that dies still takes connections for a moment, and drops them.
            Err(SendError::Lost(_)) => Token::Refused,
            Err(SendError::Connect(error)) if is_refusal(&error) => Token::Refused,
            Ok(_) | Err(_) => Token::Failed,
        };
        return (token, trouble);
    }
    (Token::Unable, None)
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::ConnectionRefused
}

/// Asks what the replica serves.
pub async fn ask_models(at: Target<'_>, limit: Duration) -> Listed {
    match get(at, "/v1/models", limit).await {
        Ok((StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN, _)) => Listed::Unauthorized,
        Ok((status, body)) if status.is_success() => {
            read_models(&body).map_or(Listed::Silent, Listed::Models)
        }
        Ok(_) | Err(_) => Listed::Silent,
    }
}

/// Asks how loaded the engine is and since when it runs; `None` when it does not say. `now` is when it is asked, so that a
/// report is never thought newer than it is.
pub async fn ask_report(
    at: Target<'_>,
    limit: Duration,
    now: Moment,
) -> Option<(Report, Option<ProcessAge>)> {
    for path in METRICS_PATHS {
        let (status, body) = get(at, path, limit).await.ok()?;
        if status.is_success()
            && let Some(report) = read_report(&body, now)
        {
            return Some((report, read_birth(&body)));
        }
    }
    None
}

async fn get(
    at: Target<'_>,
    path: &str,
    limit: Duration,
) -> Result<(StatusCode, Vec<u8>), SendError> {
    timeout(limit, get_unbounded(at, path, limit)).await.unwrap_or(Err(SendError::NoAnswer))
}

async fn get_unbounded(
    at: Target<'_>,
    path: &str,
    limit: Duration,
) -> Result<(StatusCode, Vec<u8>), SendError> {
    let (authority, key) = (at.origin.authority(), at.access.line());
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: {authority}\r\n{key}connection: close\r\n\r\n");
    exchange(at, &Method::GET, &head, &Payload::default(), limit).await
}

async fn exchange(
    at: Target<'_>,
    method: &Method,
    head: &str,
    payload: &Payload,
    limit: Duration,
) -> Result<(StatusCode, Vec<u8>), SendError> {
    let connection = Connection::open(at, limit).await?;
    let outgoing: OutgoingBody<'_, Empty<Bytes>> = OutgoingBody::Held(payload);
    let mut answer = connection.exchange(method, [head.as_bytes(), b""], outgoing, limit).await?;
    let mut body = Vec::new();
    while let Some(piece) = poll_fn(|cx| answer.body.poll_piece(cx)).await {
        body.extend_from_slice(&piece.map_err(SendError::Lost)?);
        if ANSWER_BYTES_MAX < body.len() {
            break;
        }
    }
    Ok((answer.status, body))
}
