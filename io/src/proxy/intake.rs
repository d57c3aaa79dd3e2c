//! What a request is, before anything is decided: its sender, its session, and its body, read whole
//! where routing must look into it. Every byte held is counted against a limit.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cleave_core::protocol::{ApiPath, SessionId};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::replicas::{Upload, UploadLimits};

use super::buffers::{Full, Share};
use super::callers::{Caller, Owner};
use super::client::Stage;
use super::headers::{REQUEST_ID, SESSION_ID, may_be_json, values_of};
use super::rescue::ServeError;
use super::router::Router;

const REQUEST_ID_BYTES_MAX: usize = 128;
/// Twice the bytes of a head that is not charged.
const HEAD_BYTES_FREE: usize = 4 << 10;
/// What is allotted at least to a body that comes in several pieces.
const ALLOTTED_BYTES_MIN: usize = 64 << 10;

/// A body as it came in.
pub(super) enum Intake {
    /// Held whole.
    Held(Bytes),
    /// Not looked into: passed on as it comes.
    Passing(Upload<Incoming>),
    Nothing,
}

/// What of a body can be looked at.
#[derive(Clone, Copy)]
pub(super) enum BodyView<'a> {
    Held(&'a Bytes),
    /// There is one that is not looked into.
    Passing,
    Nothing,
}

impl<'a> BodyView<'a> {
    pub(super) const fn held(self) -> Option<&'a Bytes> {
        match self {
            Self::Held(body) => Some(body),
            Self::Passing | Self::Nothing => None,
        }
    }
}

impl Intake {
    pub(super) const fn view(&self) -> BodyView<'_> {
        match self {
            Self::Held(body) => BodyView::Held(body),
            Self::Passing(_) => BodyView::Passing,
            Self::Nothing => BodyView::Nothing,
        }
    }

    /// Says how far the request is: one that passes is not yet read.
    pub(super) const fn stage(&self) -> Stage {
        match self {
            Self::Held(_) | Self::Nothing => Stage::Waiting,
            Self::Passing(_) => Stage::None,
        }
    }
}

/// Keeps the client's request id if it can be echoed and logged, else makes one.
pub(super) fn request_id(headers: &HeaderMap, fresh: impl FnOnce() -> String) -> HeaderValue {
    let given = headers.get(REQUEST_ID).filter(|it| {
        let bytes = it.as_bytes();
        (1..=REQUEST_ID_BYTES_MAX).contains(&bytes.len()) && bytes.iter().all(u8::is_ascii_graphic)
    });
    given.cloned().unwrap_or_else(|| {
        HeaderValue::try_from(fresh()).expect("an id of our own is a valid header")
    })
}

/// Finds the session that a header names, `x-session-id` before all others.
pub(super) fn session(headers: &HeaderMap, names: &[HeaderName]) -> Option<SessionId> {
    let own = headers.get(SESSION_ID).filter(|it| !it.is_empty());
    let first = own.or_else(|| values_of(headers, names).find(|it| !it.is_empty()));
    first.map(|it| SessionId::bounded(it.as_bytes()))
}

/// Finds the workload that a header names, if one may.
pub(super) fn workload<'a>(router: &Router, headers: &'a HeaderMap) -> Option<&'a str> {
    let header = router.settings.workload_header.as_ref()?;
    headers.get(header)?.to_str().ok()
}

/// Tells whether routing must look into a body: its label says that it is JSON, or a server at this path
/// reads it as JSON whatever it says.
pub(super) fn must_read(path: ApiPath, method: &Method, headers: &HeaderMap) -> bool {
    path.takes_json() || (*method != Method::GET && may_be_json(headers))
}

/// Opens the account of a request. A head that is larger than most is charged like a body, with what it
/// takes beside it: on HTTP/2 a connection may bring two hundred of them at once.
pub(super) fn open(
    router: &Router,
    owner: Owner,
    headers: &HeaderMap,
) -> Result<(Arc<Caller>, Share), ServeError> {
    let caller = router.callers.find(owner);
    let mut share = router.buffers.open(&caller);
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let charged = (2 * bytes).saturating_sub(HEAD_BYTES_FREE);
    share.try_grow(charged).map_err(|Full| ServeError::BuffersFull)?;
    Ok((caller, share))
}

/// Takes in the body, whole if it must be read.
pub(super) async fn take_body(
    router: &Router,
    share: &mut Share,
    reads: bool,
    body: Incoming,
) -> Result<Intake, ServeError> {
    let limits = router.settings.upload_limits();
    let limit_bytes = limits.bytes_max;
    let is_empty = body.is_end_stream();
    let upload = Upload::new(body, limits);
    let known = upload.length();
    if known.is_some_and(|it| limit_bytes < it) {
        return Err(ServeError::BodyTooLarge { limit_bytes });
    }
    if known == Some(0) || is_empty {
        return Ok(Intake::Nothing);
    }
    if !reads {
        return Ok(Intake::Passing(upload));
    }
    read(upload, share, known.unwrap_or(limit_bytes), &limits).await
}

async fn read(
    mut upload: Upload<Incoming>,
    share: &mut Share,
    bytes_max: usize,
    limits: &UploadLimits,
) -> Result<Intake, ServeError> {
    let head_bytes = share.bytes();
    let mut held = Bytes::new();
    let mut joined: Option<BytesMut> = None;
    // Over all pieces together: a body does not wait for room again and again.
    let mut wait_left = limits.piece;
    while let Some(piece) =
        upload.next().await.map_err(|it| ServeError::body(it, limits.bytes_max))?
    {
        let length = joined.as_ref().map_or(held.len(), BytesMut::len) + piece.len();
        share
            .grow(head_bytes + length, &mut wait_left)
            .await
            .map_err(|Full| ServeError::BuffersFull)?;
        if held.is_empty() && joined.is_none() {
            // Most bodies come in one piece, which is kept as it is.
            held = piece;
            continue;
        }
        if joined.as_ref().is_none_or(|it| it.capacity() < length) {
            // What is announced need not come: twice what came is allotted, and no more.
            let wanted = length.saturating_mul(2).max(ALLOTTED_BYTES_MIN).min(bytes_max);
            let mut larger = BytesMut::with_capacity(wanted.max(length));
            larger.extend_from_slice(joined.as_deref().unwrap_or(&held));
            joined = Some(larger);
        }
        if let Some(joined) = &mut joined {
            joined.extend_from_slice(&piece);
        }
    }
    let body = joined.map_or(held, BytesMut::freeze);
    Ok(Intake::Held(body))
}
