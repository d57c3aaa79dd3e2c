//! Sending: a request goes to one replica after another, as far as the brain allows, until one answers. A body
//! that is held can be sent again; one that passes through can go elsewhere only until a connection stands.

use std::io::ErrorKind::ConnectionRefused;
use std::sync::Arc;

use cleave_core::brain::{Failure, Outcome};
use cleave_core::domain::Usage;
use http::StatusCode;
use http::uri::PathAndQuery;
use hyper::body::Incoming;
use tracing::debug;

use crate::replicas::{
    Access, Answer, Connection, OutgoingBody, Payload, SendError, Target, Trouble, Upload,
};

use super::headers::{PREVIOUS_REPLICA, TRACEPARENT};
use super::pool::Member;
use super::rescue::ServeError;
use super::visit::Visit;
use super::worker::Worker;

/// Sends a request whose body is held to one replica after another, as far as the brain allows.
pub(super) async fn try_each(
    worker: &Worker,
    visit: &mut Visit,
    mut member: Arc<Member>,
    head: &[u8],
    payload: &Payload,
) -> Result<Answer, ServeError> {
    loop {
        let waiting = member.wait();
        let sent = tokio::select! {
            biased;
            sent = send(worker, visit, &member, head, payload) => sent,
            () = visit.cancelled(&member) => Err(SendError::GivenUp),
        };
        drop(waiting);
        let (failure, tried) = match sent {
            Ok(answer) => match failure_of(answer.status) {
                None => return Ok(answer),
                Some(failure) => (failure, Ok(answer)),
            },
            Err(error) => (failure_to_send(&member, &error), Err(error)),
        };
        let reason = tried.as_ref().map_or_else(ToString::to_string, |it| it.status.to_string());
        debug!(replica = %member.origin, reason, "try failed");
        member = match (visit.place_again(failure).await, tried) {
            (Ok(next), _) => next,
            // The replica's own words say more than ours would.
            (Err(_), Ok(answer)) => return Ok(answer),
            (Err(refusal), Err(last)) => {
                return Err(ServeError::refused(refusal, visit.tries(), Some(last)));
            }
        };
    }
}

/// Reads what it means that there is no answer, and notes why where the replica cannot be connected to.
fn failure_to_send(member: &Member, error: &SendError) -> Failure {
    if let Some(it) = Trouble::of_try(error) {
        member.note_trouble(&it);
    }
    match error {
        SendError::Connect(_)
        | SendError::Tls(_)
        | SendError::ConnectTimeout
        | SendError::Body(_) => Failure::Unreachable,
        SendError::NoAnswer => Failure::Late,
        SendError::Lost(_) | SendError::BrokenOff(_) | SendError::BadAnswer(_) => Failure::Lost,
        SendError::Died(_) => Failure::Died,
        SendError::Exhausted(_) => Failure::Ours,
        SendError::GivenUp => Failure::Hung,
    }
}

/// Reads whether an answer means that another replica may do better.
pub(super) const fn failure_of(status: StatusCode) -> Option<Failure> {
    match status.as_u16() {
        429 => Some(Failure::Busy),
        500 | 502 | 503 | 504 => Some(Failure::Status),
        _ => None,
    }
}

async fn send(
    worker: &Worker,
    visit: &Visit,
    member: &Member,
    head: &[u8],
    payload: &Payload,
) -> Result<Answer, SendError> {
    let timeouts = &worker.router.settings.timeouts;
    let access = member.access();
    let target = Target { origin: &member.origin, access: &access };
    let start = request_line(visit, member, &access);
    let outgoing = || OutgoingBody::<Incoming>::Held(payload);
    let head = [start.as_bytes(), head];
    let mut lost = None;
    if let Some(kept) = worker.idle.take(member.id) {
        match kept.exchange(&visit.asked.method, head, outgoing(), timeouts.first_byte).await {
            // The replica closed it just as we wrote, which says nothing of the replica...
            Err(SendError::Lost(error)) => lost = Some(error),
            answered => return answered,
        }
    }
    let fresh = match (Connection::open(target, timeouts.connect).await, lost) {
        // ...unless it is gone: then it had the request when it went.
        (Err(SendError::Connect(error)), Some(lost)) if error.kind() == ConnectionRefused => {
            return Err(SendError::Died(lost));
        }
        (opened, _) => opened?,
    };
    member.on_connected();
    fresh.exchange(&visit.asked.method, head, outgoing(), timeouts.first_byte).await
}

/// Sends a request whose body passes through: it can go elsewhere only until a connection stands.
pub(super) async fn pass(
    worker: &Worker,
    visit: &mut Visit,
    mut member: Arc<Member>,
    head: &[u8],
    body: Upload<Incoming>,
    chunked: bool,
) -> Result<Answer, ServeError> {
    let timeouts = &worker.router.settings.timeouts;
    let (connection, access) = loop {
        let access = member.access();
        let target = Target { origin: &member.origin, access: &access };
        match Connection::open(target, timeouts.connect).await {
            Ok(connection) => {
                member.on_connected();
                break (connection, access);
            }
            Err(last) => {
                let placed = visit.place_again(failure_to_send(&member, &last)).await;
                let tries = visit.tries();
                member = placed.map_err(|it| ServeError::refused(it, tries, Some(last)))?;
            }
        }
    };
    let start = request_line(visit, &member, &access);
    let head = [start.as_bytes(), head];
    let limit_bytes = worker.router.settings.limits.body_bytes_max;
    let outgoing = OutgoingBody::Passing { body, chunked, limit: timeouts.body };
    let exchanged = tokio::select! {
        biased;
        it = connection.exchange(&visit.asked.method, head, outgoing, timeouts.first_byte) => it,
        () = visit.cancelled(&member) => Err(SendError::GivenUp),
    };
    match exchanged {
        Ok(answer) => Ok(answer),
        Err(SendError::Body(error)) => Err(ServeError::body(error, limit_bytes)),
        Err(last) => {
            visit.close(Outcome::Cut, Usage::default());
            Err(ServeError::Failed { tries: visit.tries(), last })
        }
    }
}

/// Writes the request line and what only this replica is told: its host, its key, where the session was.
fn request_line(visit: &Visit, member: &Member, access: &Access) -> String {
    let path = visit.asked.uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let (authority, key) = (member.origin.authority(), access.line());
    let method = visit.asked.method.as_str();
    let mut line = [method, " ", path, " HTTP/1.1\r\nhost: ", authority, "\r\n", key].concat();
    if let Some(parent) = visit.traceparent() {
        line.extend([TRACEPARENT.as_str(), ": ", parent.as_str(), "\r\n"]);
    }
    if let Some(previous) = &visit.placing.previous {
        line.extend([PREVIOUS_REPLICA.as_str(), ": ", previous.as_str(), "\r\n"]);
    }
    line
}
