//! Errors become answers here and nowhere else: a status, a body in the form of the API that was
//! asked, and a reason that machines can read.

use std::borrow::Cow;
use std::io;
use std::time::Duration;

use cleave_core::brain::Refusal;
use cleave_core::protocol::{Api, BadBody, BadPath, ErrorBody, ErrorKind, KeptField, Steered};
use http::{HeaderValue, Response, StatusCode, header};

use crate::replicas::{BodyError, SendError};

use super::body::Body;
use super::claim::UnknownClass;
use super::table::NoRoute;

/// How much of a client's own words an error repeats.
const ECHO_BYTES_MAX: usize = 256;
/// No message is longer, whatever it is about.
const MESSAGE_BYTES_MAX: usize = 4 << 10;

/// Why the router answers instead of a replica.
#[derive(Debug, thiserror::Error)]
pub(super) enum ServeError {
    #[error("{0}")]
    BadBody(#[from] BadBody),
    #[error("{0}")]
    BadPath(#[from] BadPath),
    #[error("{0}")]
    Steered(#[from] Steered),
    #[error(
        "tenants are kept apart in the caches of this model's engines (cache = \"per_tenant\"), and the \
         router cannot see to it for this path or this kind of body; use /v1/chat/completions, \
         /v1/completions, /v1/responses, /v1/messages or /v1/embeddings with JSON"
    )]
    NotApart,
    #[error("the request body is larger than {limit_bytes} bytes")]
    BodyTooLarge { limit_bytes: usize },
    #[error("the request body did not arrive in time")]
    BodyTimeout,
    #[error("the request body came too slowly")]
    BodyTooSlow,
    #[error("the request body broke off")]
    BodyBroken,
    #[error(
        "the router holds as many request bodies as it may, of this caller or in all; try again \
         shortly"
    )]
    BuffersFull,
    #[error("a request names one host")]
    NotOneHost,
    #[error("{method} is not supported here")]
    Method { method: http::Method, allow: String },
    #[error("this path is not served here; an operator can open it (paths.allow)")]
    ClosedPath,
    #[error("the model `{model}` does not exist; available: {available}")]
    UnknownModel { model: String, available: String },
    #[error(
        "several models are served here: name one in the JSON body as `model`; available: {available}"
    )]
    UnnamedModel { available: String },
    #[error(
        "replicas failed while they served this request or others like it ({scope}), so it is not \
         sent again for now"
    )]
    Quarantined { scope: &'static str },
    #[error("no object with the id `{id}` was found")]
    NotKept { field: Option<KeptField>, id: String },
    #[error("the API key is missing or unknown")]
    UnknownKey,
    #[error("the class in `x-cleave-class` does not exist; available: {available}")]
    UnknownClass { available: String },
    #[error("no replica can take the request now")]
    NoReplica { retry_after: Duration },
    #[error("{}", held_back(*.0))]
    HeldBack(Refusal),
    #[error("the router made a mistake; the request may be tried again")]
    Panicked,
    #[error(
        "the replica refuses the router's API key, or asks for one; only an operator can mend that \
         (api_key, or forward_credentials)"
    )]
    ReplicaUnauthorized,
    #[error("the replica sent a redirect to another address, which is not passed on")]
    Redirected,
    #[error("the request could not be served after {tries} tries: {}", failed(last))]
    Failed { tries: u32, last: SendError },
}

impl From<UnknownClass> for ServeError {
    fn from(it: UnknownClass) -> Self {
        Self::UnknownClass { available: it.available }
    }
}

impl ServeError {
    pub(super) fn no_route(why: NoRoute, model: Option<&str>) -> Self {
        match why {
            NoRoute::Unknown { available } => {
                Self::unknown_model(model.unwrap_or_default(), available)
            }
            NoRoute::Unnamed { available } => Self::UnnamedModel { available },
        }
    }

    pub(super) fn unknown_model(model: &str, available: String) -> Self {
        Self::UnknownModel { model: beginning(model, ECHO_BYTES_MAX).into_owned(), available }
    }

    /// Nothing is kept under this id, named by a field of the body or by the path.
    pub(super) fn not_kept(field: Option<KeptField>, id: &str) -> Self {
        Self::NotKept { field, id: beginning(id, ECHO_BYTES_MAX).into_owned() }
    }

    /// Tells whether it means that no process listens at the replica.
    pub(super) fn is_replica_gone(&self) -> bool {
        if let Self::Failed { last: SendError::Connect(error), .. } = self {
            return error.kind() == io::ErrorKind::ConnectionRefused;
        }
        matches!(
            self,
            Self::HeldBack(Refusal::NotKept) | Self::Failed { last: SendError::Died(_), .. }
        )
    }

    pub(super) const fn body(error: BodyError, limit_bytes: usize) -> Self {
        match error {
            BodyError::Broken => Self::BodyBroken,
            BodyError::TooLarge => Self::BodyTooLarge { limit_bytes },
            BodyError::TimedOut => Self::BodyTimeout,
            BodyError::TooSlow => Self::BodyTooSlow,
        }
    }

    /// Reads a refusal that came with a failed try, or without any.
    pub(super) fn refused(refusal: Refusal, tries: u32, last: Option<SendError>) -> Self {
        match (refusal, last) {
            (Refusal::NoReplica { retry_after }, _) => Self::NoReplica { retry_after },
            (Refusal::Unauthorized, _) => Self::ReplicaUnauthorized,
            (Refusal::Quarantined { scope }, _) => Self::Quarantined { scope: scope.as_str() },
            (
                Refusal::Suspected { .. }
                | Refusal::LineFull { .. }
                | Refusal::DeadlineUnmeetable { .. }
                | Refusal::DeadlinePassed { .. }
                | Refusal::WaitedOut { .. }
                | Refusal::SessionsFull { .. }
                | Refusal::Restarted { .. }
                | Refusal::NotKept
                | Refusal::OverContract { .. },
                _,
            ) => Self::HeldBack(refusal),
            // Nothing took the request, so that a later one may be served.
            (
                Refusal::TriesSpent | Refusal::BudgetSpent,
                None | Some(SendError::Connect(_) | SendError::Tls(_) | SendError::ConnectTimeout),
            ) => Self::NoReplica { retry_after: Duration::from_secs(1) },
            (Refusal::TriesSpent | Refusal::BudgetSpent, Some(last)) => {
                Self::Failed { tries, last }
            }
        }
    }

    /// The status, and the reason for machines.
    const fn verdict(&self) -> (StatusCode, &'static str) {
        match self {
            Self::BadBody(_) => (StatusCode::BAD_REQUEST, "invalid_body"),
            Self::BadPath(_) => (StatusCode::BAD_REQUEST, "invalid_path"),
            Self::Steered(_) => (StatusCode::BAD_REQUEST, "engine_field"),
            Self::NotApart => (StatusCode::FORBIDDEN, "cannot_isolate"),
            Self::ReplicaUnauthorized => (StatusCode::BAD_GATEWAY, "replica_unauthorized"),
            Self::Redirected => (StatusCode::BAD_GATEWAY, "replica_redirected"),
            Self::BodyBroken => (StatusCode::BAD_REQUEST, "body_broken"),
            Self::NotOneHost => (StatusCode::BAD_REQUEST, "not_one_host"),
            Self::UnnamedModel { .. } => (StatusCode::BAD_REQUEST, "model_missing"),
            Self::UnknownModel { .. } => (StatusCode::NOT_FOUND, "model_not_found"),
            Self::ClosedPath => (StatusCode::NOT_FOUND, "path_not_served"),
            Self::Method { .. } => (StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed"),
            Self::BodyTimeout => (StatusCode::REQUEST_TIMEOUT, "body_timeout"),
            Self::BodyTooSlow => (StatusCode::REQUEST_TIMEOUT, "body_too_slow"),
            Self::BodyTooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "body_too_large"),
            Self::BuffersFull => (StatusCode::SERVICE_UNAVAILABLE, "buffers_full"),
            Self::NotKept { field: Some(KeptField::PreviousResponse), .. } => {
                (StatusCode::NOT_FOUND, "previous_response_not_found")
            }
            Self::NotKept { .. } => (StatusCode::NOT_FOUND, "id_not_found"),
            Self::UnknownKey => (StatusCode::UNAUTHORIZED, "unknown_key"),
            Self::UnknownClass { .. } => (StatusCode::BAD_REQUEST, "unknown_class"),
            Self::NoReplica { .. } => (StatusCode::SERVICE_UNAVAILABLE, "no_replica"),
            Self::HeldBack(refusal) => (status_of(*refusal), refusal.as_str()),
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, "router_failed"),
            Self::Quarantined { .. } => (StatusCode::UNPROCESSABLE_ENTITY, "quarantined"),
            Self::Failed { last: SendError::NoAnswer | SendError::GivenUp, .. } => {
                (StatusCode::GATEWAY_TIMEOUT, "replica_timeout")
            }
            Self::Failed { last: SendError::Exhausted(_), .. } => {
                (StatusCode::SERVICE_UNAVAILABLE, "router_full")
            }
            Self::Failed { .. } => (StatusCode::BAD_GATEWAY, "replica_failed"),
        }
    }

    /// The reason for machines.
    pub(super) const fn code(&self) -> &'static str {
        self.verdict().1
    }

    const fn kind(&self) -> ErrorKind {
        match self.verdict().0 {
            StatusCode::UNAUTHORIZED => ErrorKind::Unauthorized,
            StatusCode::FORBIDDEN => ErrorKind::Forbidden,
            StatusCode::TOO_MANY_REQUESTS => ErrorKind::RateLimited,
            StatusCode::NOT_FOUND => ErrorKind::NotFound,
            StatusCode::PAYLOAD_TOO_LARGE => ErrorKind::TooLarge,
            StatusCode::SERVICE_UNAVAILABLE => ErrorKind::Unavailable,
            StatusCode::GATEWAY_TIMEOUT => ErrorKind::Timeout,
            StatusCode::BAD_GATEWAY | StatusCode::INTERNAL_SERVER_ERROR => ErrorKind::Internal,
            _ => ErrorKind::InvalidRequest,
        }
    }

    /// The field at fault, where there is one.
    const fn param(&self) -> Option<&'static str> {
        if let Self::BadBody(bad) = self {
            bad.param()
        } else if let Self::Steered(steered) = self {
            Some(steered.field)
        } else if let Self::NotKept { field: Some(field), .. } = self {
            Some(field.as_str())
        } else if let Self::UnknownModel { .. } | Self::UnnamedModel { .. } = self {
            Some("model")
        } else {
            None
        }
    }

    const fn retry_after(&self) -> Option<Duration> {
        if let Self::NoReplica { retry_after } = self {
            Some(*retry_after)
        } else if let Self::HeldBack(refusal) = self {
            refusal.retry_after()
        } else if let Self::BuffersFull = self {
            Some(Duration::from_secs(1))
        } else {
            None
        }
    }

    /// Writes the answer.
    pub(super) fn answer(&self, api: Api) -> Response<Body> {
        let message = self.to_string();
        let message = beginning(&message, MESSAGE_BYTES_MAX);
        let (status, code) = self.verdict();
        let (kind, param) = (self.kind(), self.param());
        let text = ErrorBody { kind, message: &message, code, param }.answer(api);
        let mut answer = json(status, text.into());
        if let Some(wait) = self.retry_after() {
            // Rounded up: coming too early is answered no better.
            let seconds = wait.as_secs() + u64::from(0 < wait.subsec_nanos());
            answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Self::Method { allow, .. } = self
            && let Ok(allow) = HeaderValue::try_from(allow)
        {
            answer.headers_mut().insert(header::ALLOW, allow);
        }
        answer
    }
}

/// Cuts a text off after `bytes_max` bytes, and shows that it did.
fn beginning(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return text.into();
    }
    let end = (0..=bytes_max).rev().find(|it| text.is_char_boundary(*it)).unwrap_or(0);
    format!("{}\u{2026}", &text[..end]).into()
}

/// A request that asked for too much is told 429, one that came at a bad time 503, one with no time
/// left 504.
const fn status_of(refusal: Refusal) -> StatusCode {
    match refusal {
        Refusal::LineFull { .. } | Refusal::OverContract { .. } => StatusCode::TOO_MANY_REQUESTS,
        Refusal::DeadlineUnmeetable { .. } | Refusal::DeadlinePassed { .. } => {
            StatusCode::GATEWAY_TIMEOUT
        }
        Refusal::Suspected { .. }
        | Refusal::WaitedOut { .. }
        | Refusal::SessionsFull { .. }
        | Refusal::Restarted { .. }
        | Refusal::NoReplica { .. }
        | Refusal::TriesSpent
        | Refusal::BudgetSpent => StatusCode::SERVICE_UNAVAILABLE,
        Refusal::Quarantined { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        Refusal::NotKept => StatusCode::NOT_FOUND,
        Refusal::Unauthorized => StatusCode::BAD_GATEWAY,
    }
}

/// Says to people why a request was not served for lack of capacity.
fn held_back(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::LineFull { .. } => "too many requests wait already",
        Refusal::DeadlineUnmeetable { .. } => "the request cannot be served within its deadline",
        Refusal::DeadlinePassed { .. } => "the deadline passed while the request waited",
        Refusal::WaitedOut { .. } => "the request waited as long as its class may",
        Refusal::SessionsFull { .. } => "no new session can begin now: the memory for them is full",
        Refusal::Restarted { .. } => {
            "the router lost track of this request by a mistake of its own; try again shortly"
        }
        Refusal::OverContract { limit: "tokens", .. } => "the tokens per minute are used up",
        Refusal::OverContract { limit: "requests", .. } => "the requests per minute are used up",
        Refusal::OverContract { .. } => "the model units per minute are used up",
        Refusal::NotKept => "the replica that kept what the request names is gone",
        Refusal::Unauthorized => "no replica takes the router's API key",
        Refusal::Suspected { .. } => {
            "a replica failed while it served this request, and another copy of it is being tried"
        }
        Refusal::Quarantined { .. } => "replicas failed while they served requests like this one",
        Refusal::NoReplica { .. } | Refusal::TriesSpent | Refusal::BudgetSpent => {
            "no replica can take the request now"
        }
    }
}

/// Says to clients what failed, without the operating system's words: those are for the log.
const fn failed(last: &SendError) -> &'static str {
    match last {
        SendError::Connect(_) | SendError::Tls(_) => "no connection",
        SendError::ConnectTimeout => "no connection in time",
        SendError::Exhausted(_) => "the router is full",
        SendError::Lost(_) | SendError::Died(_) => "the connection was lost",
        SendError::NoAnswer => "no answer in time",
        SendError::GivenUp => "the replica hangs",
        SendError::BrokenOff(_) => "the answer broke off",
        SendError::BadAnswer(_) => "the answer is not HTTP",
        SendError::Body(_) => "the request body broke off",
    }
}

/// An answer of the router's own.
pub(super) fn json(status: StatusCode, body: bytes::Bytes) -> Response<Body> {
    let mut answer = Response::new(Body::text(body));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static("application/json");
    answer.headers_mut().insert(header::CONTENT_TYPE, kind);
    answer
}

/// The event that tells a client, in its own stream, that the rest will not come.
pub(super) fn cut_event(api: Api, mid_event: bool) -> String {
    let message = "the replica stopped in the middle of its answer";
    let error = ErrorBody { kind: ErrorKind::Internal, message, code: "replica_lost", param: None };
    error.event(api, mid_event)
}

/// The same where the router itself is to blame.
pub(super) fn panicked_event(api: Api, mid_event: bool) -> String {
    let message = &ServeError::Panicked.to_string();
    let code = ServeError::Panicked.verdict().1;
    ErrorBody { kind: ErrorKind::Internal, message, code, param: None }.event(api, mid_event)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    /// Finds the codes that stand between two marks of a source file: what is quoted and looks like one.
    fn codes_between<'a>(source: &'a str, from: &str, to: &str) -> Vec<&'a str> {
        let start = source.find(from).expect("the mark is there");
        let end = start + source[start..].find(to).expect("the other mark is there");
        let is_code =
            |it: &&str| !it.is_empty() && it.bytes().all(|it| matches!(it, b'a'..=b'z' | b'_'));
        source[start..end].split('"').skip(1).step_by(2).filter(is_code).collect()
    }

    #[test]
    fn the_guide_lists_every_code_and_no_other() {
        let own = include_str!("rescue.rs");
        let brain = include_str!("../../../core/src/brain/event.rs");
        let mut codes: BTreeSet<&str> =
            codes_between(own, "const fn verdict", "const fn kind").into_iter().collect();
        codes.extend(codes_between(own, "fn cut_event", "fn panicked_event"));
        codes.extend(codes_between(brain, "pub const fn as_str", "#[cfg(test)]"));
        let guide = include_str!("../../../docs/guide/errors.md");
        let listed = guide.lines().filter_map(|it| it.strip_prefix("| `")?.split('`').next());
        assert_eq!(codes, listed.collect());
        assert!(30 < codes.len(), "{codes:?}");
    }
}
