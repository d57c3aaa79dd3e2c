//! What a request is, before anything is decided: who sends it, which session it belongs to, and its
//! body, read whole where routing must look into it. Every byte held is counted against a limit.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cleave_core::protocol::{Route, SessionId};
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::headers::{REQUEST_ID, SESSION_ID, may_be_json};
use super::rescue::ServeError;
use super::router::{BUFFER_UNIT_BYTES, Router};

const REQUEST_ID_BYTES_MAX: usize = 128;

/// A body as it came in.
pub(super) enum Intake {
    /// Held whole, with its share of the common limit.
    Held {
        body: Bytes,
        share: OwnedSemaphorePermit,
    },
    /// Not looked into: passed on as it comes.
    Passing(Incoming),
    Nothing,
}

impl Intake {
    pub(super) fn held(&self) -> Option<Bytes> {
        match self {
            Self::Held { body, .. } => Some(body.clone()),
            Self::Passing(_) | Self::Nothing => None,
        }
    }

    /// Counts the bytes that are held for the request.
    pub(super) fn held_bytes(&self) -> usize {
        match self {
            Self::Held { body, .. } => body.len(),
            Self::Passing(_) | Self::Nothing => 0,
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
    std::iter::once(&SESSION_ID)
        .chain(names)
        .filter_map(|it| headers.get(it))
        .find(|it| !it.is_empty())
        .map(|it| SessionId::bounded(it.as_bytes()))
}

/// Tells whether routing must look into a body: its label says that it is JSON, or a server at this path
/// reads it as JSON whatever it says.
pub(super) fn must_read(route: Route, method: &Method, headers: &HeaderMap) -> bool {
    route.takes_json() || (*method != Method::GET && may_be_json(headers))
}

/// Takes in the body, whole if it must be read.
pub(super) async fn take_body(
    router: &Router,
    reads: bool,
    body: Incoming,
) -> Result<Intake, ServeError> {
    let limit_bytes = router.settings.limits.body_bytes_max;
    let known = body.size_hint().exact().map(|it| usize::try_from(it).unwrap_or(usize::MAX));
    if known.is_some_and(|it| limit_bytes < it) {
        return Err(ServeError::BodyTooLarge { limit_bytes });
    }
    if known == Some(0) || body.is_end_stream() {
        return Ok(Intake::Nothing);
    }
    if !reads {
        return Ok(Intake::Passing(body));
    }
    let share = reserve(router, known.unwrap_or(BUFFER_UNIT_BYTES)).await?;
    read(router, body, share, known.unwrap_or(0)).await
}

/// Waits until there is room for a body whose length is known.
async fn reserve(router: &Router, bytes: usize) -> Result<OwnedSemaphorePermit, ServeError> {
    let room = Arc::clone(&router.buffers).acquire_many_owned(units(bytes));
    match timeout(router.settings.timeouts.body, room).await {
        Ok(Ok(share)) => Ok(share),
        Ok(Err(_)) | Err(_) => Err(ServeError::BuffersFull),
    }
}

async fn read(
    router: &Router,
    mut body: Incoming,
    mut share: OwnedSemaphorePermit,
    capacity: usize,
) -> Result<Intake, ServeError> {
    let limit_bytes = router.settings.limits.body_bytes_max;
    let mut held = Bytes::new();
    let mut joined: Option<BytesMut> = None;
    while let Some(frame) = next_frame(router, &mut body).await? {
        let Ok(piece) = frame.into_data() else { continue };
        let length = joined.as_ref().map_or(held.len(), BytesMut::len) + piece.len();
        if limit_bytes < length {
            return Err(ServeError::BodyTooLarge { limit_bytes });
        }
        grow(&router.buffers, &mut share, length)?;
        if held.is_empty() && joined.is_none() {
            // Most bodies come in one piece, which is kept as it is.
            held = piece;
        } else {
            let joined = joined.get_or_insert_with(|| {
                let mut joined = BytesMut::with_capacity(capacity.max(2 * length));
                joined.extend_from_slice(&std::mem::take(&mut held));
                joined
            });
            joined.extend_from_slice(&piece);
        }
    }
    let body = joined.map_or(held, BytesMut::freeze);
    Ok(Intake::Held { body, share })
}

async fn next_frame(
    router: &Router,
    body: &mut Incoming,
) -> Result<Option<http_body::Frame<Bytes>>, ServeError> {
    match timeout(router.settings.timeouts.body, body.frame()).await {
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(Some(Err(_))) => Err(ServeError::BodyBroken),
        Ok(None) => Ok(None),
        Err(_) => Err(ServeError::BodyTimeout),
    }
}

/// Enlarges the share for bytes that nobody announced. Waiting here, with bytes in hand, could
/// wait for others who wait likewise, so it does not.
pub(super) fn grow(
    buffers: &Arc<Semaphore>,
    share: &mut OwnedSemaphorePermit,
    bytes: usize,
) -> Result<(), ServeError> {
    let have = u32::try_from(share.num_permits()).unwrap_or(u32::MAX);
    if let Some(more) = units(bytes).checked_sub(have).filter(|it| 0 < *it) {
        let more = Arc::clone(buffers).try_acquire_many_owned(more);
        share.merge(more.map_err(|_| ServeError::BuffersFull)?);
    }
    Ok(())
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(BUFFER_UNIT_BYTES)).unwrap_or(u32::MAX)
}
