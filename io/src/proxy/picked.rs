//! A request whose bytes another proxy carries: Cleave says where it goes and watches its answer, so that books,
//! sessions, the prefix index, contracts and the line are the same as for a request of `exchange`. What is missing is
//! what only the one that sends can do: it is tried once, and a stream that broke off ends there. Dropping it
//! settles it, whatever happened.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use cleave_core::brain::{Failure, Outcome};
use cleave_core::protocol::ApiPath;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tokio::time::Instant;

use crate::replicas::{Payload, SendError};

use super::body::Body;
use super::buffers::{Full, Share};
use super::callers::Owner;
use super::chance::Chance;
use super::headers::{
    PREVIOUS_REPLICA, REQUEST_ID, TRACEPARENT, clean_for_client, is_event_stream, withheld,
};
use super::intake::{self, BodyView};
use super::pick::{self, Placed};
use super::pool::{Member, WaitingRequest};
use super::rescue::ServeError;
use super::router::Router;
use super::sending::failure_of;
use super::settings::Passing;
use super::vetting::vet;
use super::visit::Visit;

/// What the requests that are picked for share.
pub struct Picking {
    router: Arc<Router>,
    chance: Chance,
}

/// An answer of the router's own.
pub type OwnAnswer = Box<Response<Bytes>>;

/// What another proxy is to change in a head.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderChanges {
    pub set: Vec<(HeaderName, HeaderValue)>,
    pub remove: Vec<HeaderName>,
}

/// Where a request goes, and what of it goes out otherwise than it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Host and port.
    pub address: String,
    pub changes: HeaderChanges,
    /// The body as it is sent, where it was held.
    pub body: Option<Bytes>,
    pub is_edited: bool,
}

/// What there is of a body when a request is placed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyState {
    /// All of it was held.
    Held,
    /// It is not looked into.
    Passing,
    Nothing,
}

/// One request.
pub struct PickedRequest {
    visit: Box<Visit>,
    parts: Parts,
    path: Option<ApiPath>,
    share: Option<Share>,
    head_bytes: usize,
    pieces: Vec<Bytes>,
    held_bytes: usize,
    /// How long the body may still wait for room.
    wait_left: Duration,
    at: Option<PickedPlace>,
    last_piece: Instant,
    is_settled: bool,
}

/// Where it was placed.
struct PickedPlace {
    member: Arc<Member>,
    passing: Passing,
    _waiting: WaitingRequest,
}

impl std::fmt::Debug for Picking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Picking").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for PickedRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PickedRequest").finish_non_exhaustive()
    }
}

impl Picking {
    pub fn new(router: Arc<Router>) -> Arc<Self> {
        Arc::new(Self { router, chance: Chance::new() })
    }

    pub const fn router(&self) -> &Arc<Router> {
        &self.router
    }

    /// How large a body may be, and how long the next piece of one may take.
    pub fn body_limits(&self) -> (usize, Duration) {
        let settings = &self.router.settings;
        (settings.limits.body_bytes_max, settings.timeouts.body)
    }

    /// Begins with a request of a client at `peer`.
    pub fn begin(&self, parts: Parts, peer: IpAddr) -> PickedRequest {
        let visit = pick::begin(&self.router, &self.chance, &parts, peer);
        PickedRequest {
            visit,
            parts,
            path: None,
            share: None,
            head_bytes: 0,
            pieces: Vec::new(),
            held_bytes: 0,
            wait_left: self.router.settings.timeouts.body,
            at: None,
            last_piece: Instant::now(),
            is_settled: false,
        }
    }

    /// Has the request placed; what it needs was held before. May be dropped while it waits.
    pub async fn place(
        &self,
        request: &mut PickedRequest,
        state: BodyState,
    ) -> Result<Destination, OwnAnswer> {
        let placed = request.place(state, &self.chance).await;
        placed.map_err(|error| request.refuse(error))
    }
}

impl PickedRequest {
    /// Looks at the head; tells whether the body must be held, or answers.
    pub fn open(&mut self) -> Result<bool, OwnAnswer> {
        let own = pick::own_answer(&self.visit.router, &self.parts);
        if let Some(own) = own {
            return Err(answer(pick::answer_itself(&mut self.visit, own)));
        }
        self.admit().map_err(|error| self.refuse(error))
    }

    fn admit(&mut self) -> Result<bool, ServeError> {
        let (parts, visit) = (&self.parts, &mut self.visit);
        let router = Arc::clone(&visit.router);
        let path = pick::open_path(&router, parts)?;
        let tenants = router.tenants();
        let caller = tenants.caller(&parts.headers).map_err(|_| ServeError::UnknownKey)?;
        visit.asked.whose = caller.at.map(|at| (Arc::clone(&tenants), at));
        let peer = visit.asked.client.unwrap_or(IpAddr::from([0, 0, 0, 0]));
        let owner = Owner::of(caller.tenant, peer);
        let (_, share) = intake::open(&router, owner, &parts.headers)?;
        self.head_bytes = share.bytes();
        (self.path, self.share) = (Some(path), Some(share));
        let limit_bytes = router.settings.limits.body_bytes_max;
        let announced = parts.headers.get(header::CONTENT_LENGTH);
        let announced = announced.and_then(|it| it.to_str().ok()?.parse::<u64>().ok());
        if announced.is_some_and(|it| usize::try_from(it).is_ok_and(|it| limit_bytes < it)) {
            return Err(ServeError::BodyTooLarge { limit_bytes });
        }
        Ok(intake::must_read(path, &parts.method, &parts.headers))
    }

    /// Holds a piece of the body, within the limits on what is held.
    pub async fn hold(&mut self, piece: Bytes) -> Result<(), OwnAnswer> {
        let held = self.take_in(piece).await;
        held.map_err(|error| self.refuse(error))
    }

    async fn take_in(&mut self, piece: Bytes) -> Result<(), ServeError> {
        let limit_bytes = self.visit.router.settings.limits.body_bytes_max;
        self.held_bytes = self.held_bytes.saturating_add(piece.len());
        if limit_bytes < self.held_bytes {
            return Err(ServeError::BodyTooLarge { limit_bytes });
        }
        if let Some(share) = &mut self.share {
            let bytes = self.head_bytes + self.held_bytes;
            let grown = share.grow(bytes, &mut self.wait_left).await;
            grown.map_err(|Full| ServeError::BuffersFull)?;
        }
        if !piece.is_empty() {
            self.pieces.push(piece);
        }
        Ok(())
    }

    /// Answers a request whose body did not come in time.
    pub fn on_body_late(&mut self) -> OwnAnswer {
        self.refuse(ServeError::BodyTimeout)
    }

    /// Answers a request with a body that is larger than any message may be.
    pub fn on_body_too_large(&mut self) -> OwnAnswer {
        let limit_bytes = self.visit.router.settings.limits.body_bytes_max;
        self.refuse(ServeError::BodyTooLarge { limit_bytes })
    }

    async fn place(
        &mut self,
        state: BodyState,
        chance: &Chance,
    ) -> Result<Destination, ServeError> {
        let path = self.path.ok_or(ServeError::ClosedPath)?;
        let router = Arc::clone(&self.visit.router);
        let tenants = router.tenants();
        let caller = tenants.caller(&self.parts.headers).map_err(|_| ServeError::UnknownKey)?;
        let held = joined(std::mem::take(&mut self.pieces));
        let view = match state {
            BodyState::Held if held.is_empty() => BodyView::Nothing,
            BodyState::Held => BodyView::Held(&held),
            BodyState::Passing => BodyView::Passing,
            BodyState::Nothing => BodyView::Nothing,
        };
        let fresh = || chance.fresh_id();
        let picked = pick::pick(&mut self.visit, &self.parts, path, &caller, view, fresh).await?;
        let Placed { member, passing, splices, .. } = picked;
        let is_edited = !splices.is_empty();
        let sent =
            || if is_edited { Payload::edited(&held, &splices).to_bytes() } else { held.clone() };
        let body = (state == BodyState::Held).then(sent);
        // From here on the other proxy holds it.
        self.share = None;
        let mut changes = self.for_replica(&member, passing);
        if let Some(body) = body.as_ref().filter(|_| is_edited) {
            changes.set.push((header::CONTENT_LENGTH, HeaderValue::from(body.len())));
        }
        let (address, waiting) = (member.origin.authority().to_owned(), member.wait());
        self.at = Some(PickedPlace { member, passing, _waiting: waiting });
        self.last_piece = Instant::now();
        Ok(Destination { address, changes, body, is_edited })
    }

    /// Says what the replica is told otherwise than the client said it.
    fn for_replica(&self, member: &Member, passing: Passing) -> HeaderChanges {
        let mut set = vec![(REQUEST_ID, self.visit.request_id.clone())];
        let mut put = |name: HeaderName, value: Option<HeaderValue>| {
            if let Some(value) = value {
                set.push((name, value));
            }
        };
        let own = |text: &str| HeaderValue::try_from(text).ok();
        put(TRACEPARENT, self.visit.traceparent().and_then(|it| own(&it)));
        put(PREVIOUS_REPLICA, self.visit.placing.previous.as_ref().and_then(|it| own(it.as_str())));
        let key = member.access().bearer().and_then(own).map(|mut it| {
            it.set_sensitive(true);
            it
        });
        put(header::AUTHORIZATION, key);
        let mut remove = withheld(&self.parts.headers, passing);
        remove.retain(|name| set.iter().all(|it| it.0 != *name));
        HeaderChanges { set, remove }
    }

    /// Notes the head of the answer, and says what the client is to see otherwise. `failure` is why the other proxy
    /// has answered in the replica's place, if it did.
    pub fn on_head(
        &mut self,
        status: StatusCode,
        headers: &HeaderMap,
        failure: Option<Failure>,
    ) -> Result<HeaderChanges, OwnAnswer> {
        let Some(at) = &self.at else { return Ok(HeaderChanges::default()) };
        let passing = at.passing;
        if let Some(failure) = failure.or(failure_of(status)) {
            self.visit.fail(failure);
        }
        let mut clean = headers.clone();
        if failure.is_none() {
            vet(&self.visit, status, &mut clean, passing).map_err(|error| self.refuse(error))?;
        }
        let stream = is_event_stream(headers);
        let is_encoded = headers.contains_key(header::CONTENT_ENCODING);
        self.visit.answering(status, stream, is_encoded);
        clean_for_client(&mut clean, stream);
        self.visit.sign(&mut clean);
        self.last_piece = Instant::now();
        Ok(changes(headers, &clean))
    }

    /// Notes a piece of the answer.
    pub fn on_piece(&mut self, piece: &[u8]) {
        if self.at.is_none() || self.is_settled || piece.is_empty() {
            return;
        }
        let now = Instant::now();
        let gap = now.duration_since(std::mem::replace(&mut self.last_piece, now));
        self.visit.on_piece(piece, now.into_std(), gap, true);
    }

    /// Notes that the answer is whole.
    pub fn on_end(&mut self) {
        if self.at.take().is_some() && !std::mem::replace(&mut self.is_settled, true) {
            self.visit.finish(Outcome::Done);
            self.visit.settle();
        }
    }

    /// Waits until its replica is given up; for ever where it has none.
    pub async fn given_up(&self) {
        match &self.at {
            Some(at) => self.visit.cancelled(&at.member).await,
            None => std::future::pending().await,
        }
    }

    /// Ends a request whose replica hangs.
    pub fn give_up(&mut self) -> OwnAnswer {
        self.visit.fail(Failure::Hung);
        let (tries, last) = (self.visit.tries(), SendError::GivenUp);
        self.refuse(ServeError::Failed { tries, last })
    }

    fn refuse(&mut self, error: ServeError) -> OwnAnswer {
        answer(pick::answer_itself(&mut self.visit, Err(error)))
    }
}

fn answer(own: Response<Body>) -> OwnAnswer {
    Box::new(own.map(Body::into_text))
}

fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() < 2 {
        return pieces.pop().unwrap_or_default();
    }
    let mut all = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in pieces {
        all.extend_from_slice(&piece);
    }
    all.freeze()
}

/// Lists what makes the second head of the first.
fn changes(before: &HeaderMap, after: &HeaderMap) -> HeaderChanges {
    let is_new = |(name, value): &(&HeaderName, &HeaderValue)| before.get(*name) != Some(*value);
    let set = after.iter().filter(is_new).map(|(name, value)| (name.clone(), value.clone()));
    let remove = before.keys().filter(|it| !after.contains_key(*it)).cloned();
    HeaderChanges { set: set.collect(), remove: remove.collect() }
}

#[cfg(test)]
mod tests {
    use super::super::testing::header_map as map;
    use super::*;

    #[test]
    fn changes_lead_from_one_head_to_the_other() {
        let before =
            map(&[("server", "engine"), ("set-cookie", "a"), ("location", "http://gpu/x")]);
        let after = map(&[("server", "engine"), ("location", "/x"), ("x-session-id", "s")]);
        let changes = changes(&before, &after);
        let names: Vec<&str> = changes.set.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(names, ["location", "x-session-id"]);
        assert_eq!(changes.remove, [HeaderName::from_static("set-cookie")]);
    }

    #[test]
    fn pieces_are_joined_in_their_order() {
        assert_eq!(joined(Vec::new()), Bytes::new());
        let pieces = [&b"ab"[..], b"c", b"def"].map(Bytes::from_static).to_vec();
        assert_eq!(joined(pieces), Bytes::from_static(b"abcdef"));
    }
}
