//! One request from its arrival to its end, and the guard that settles it: the brain's books, the
//! metrics and the access line are closed when this is dropped, once, whatever happened.

mod placing;
mod recording;
mod settle;
mod tracing;

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use cleave_core::brain::{Event, Outcome, streamed_is_due};
use cleave_core::domain::{Extent, Moment, RequestId, Usage};
use cleave_core::protocol::{Api, KeptPath, Meter, SessionId};
use cleave_core::queue::Tenant;
use http::{HeaderMap, HeaderValue, Method, StatusCode, Uri};

use crate::telemetry::TraceContext;

use self::placing::Placing;
use self::recording::RecordedOutline;
use super::explanations::{KeptDecision, KeptFor, Visibility};
use super::headers::{DECISION, REQUEST_ID, SESSION_ID, WAITED_MS, write_rate_limits};
use super::kept_ids::{IdNotes, Named};
use super::life::Life;
use super::pool::{KeyUse, Member};
use super::rescue::ServeError;
use super::router::Router;
use super::tenants::Tenants;

/// A wait below this is none: a decision takes some time too.
const WAIT_SHOWN_MIN: Duration = Duration::from_millis(1);

/// One request: what it asks for, where it was placed, what came of its answer.
pub(super) struct Visit {
    pub(super) router: Arc<Router>,
    pub(super) request_id: HeaderValue,
    pub(super) trace: Option<TraceContext>,
    pub(super) asked: AskedFor,
    pub(super) placing: Placing,
    pub(super) answer: AnswerSeen,
    request: RequestId,
    arrived: Instant,
    life: Life,
    /// What is kept of its decisions, where any are.
    kept: Option<Box<KeptDecision>>,
    /// How much of it the client wants to see, and may.
    shows: Option<Visibility>,
}

/// What a request asks for, and for which tenant.
#[derive(Default)]
pub(super) struct AskedFor {
    pub(super) method: Method,
    pub(super) uri: Uri,
    pub(super) api: Api,
    /// Echoed on the answer.
    pub(super) session: Option<SessionId>,
    pub(super) model: Option<Box<str>>,
    /// What it names by an id, where it names something.
    pub(super) named: Option<Named>,
    /// Where it comes from, for the access line.
    pub(super) client: Option<IpAddr>,
    pub(super) whose: Option<(Arc<Tenants>, usize)>,
    /// Its tenant, as the owner of ids.
    pub(super) owner: u64,
    /// How large the request is as far as its body shows.
    extent: Extent,
    /// The blocks of its prompt and when its first token is due, while requests are recorded.
    recorded: Option<Box<RecordedOutline>>,
}

/// What came of its answer so far.
pub(super) struct AnswerSeen {
    status: StatusCode,
    /// Why the router answers itself.
    pub(super) code: Option<&'static str>,
    stream: bool,
    meter: Meter,
    /// What the answer says of its cost, once it was read.
    read_usage: Option<Usage>,
    first_byte: Option<Duration>,
    /// When the first content came; the first byte where content cannot be told.
    first_token: Option<Duration>,
    /// Whether the brain waits for the first token of this replica.
    awaits_token: bool,
    /// What is noted of ids in its answer, if it may have any.
    id_notes: Option<Box<IdNotes>>,
    /// How it ends; by a panic where there is nothing.
    outcome: Option<Outcome>,
}

impl Visit {
    pub(super) fn new(
        router: Arc<Router>,
        method: Method,
        uri: Uri,
        request_id: HeaderValue,
    ) -> Self {
        let api = Api::of(uri.path());
        let answer = AnswerSeen {
            status: StatusCode::OK,
            code: None,
            stream: false,
            meter: Meter::blind(),
            read_usage: None,
            first_byte: None,
            first_token: None,
            awaits_token: false,
            id_notes: None,
            outcome: Some(Outcome::Cancelled),
        };
        Self {
            request: router.next_request(),
            router,
            request_id,
            trace: None,
            asked: AskedFor { method, uri, api, ..AskedFor::default() },
            placing: Placing::default(),
            answer,
            arrived: Instant::now(),
            life: Life::default(),
            kept: None,
            shows: None,
        }
    }

    /// Has its decisions kept if the client asks for that, or if it is one of those drawn.
    pub(super) fn explain(&mut self, headers: &HeaderMap) {
        let explanations = &self.router.explanations;
        self.shows = explanations.asks(headers);
        if self.shows.is_some() {
            self.keep(KeptFor::Asked);
        } else if explanations.samples(self.request) {
            self.keep(KeptFor::Lot);
        }
    }

    /// Has what is decided about it from now on kept.
    fn keep(&mut self, kept_for: KeptFor) {
        self.kept = Some(self.new_kept(kept_for));
    }

    fn new_kept(&self, kept_for: KeptFor) -> Box<KeptDecision> {
        let id = self.request_id.to_str().unwrap_or("-").to_owned();
        let age = self.arrived.elapsed().as_nanos();
        let now = self.router.now().as_nanos();
        let arrived_at = now.saturating_sub(u64::try_from(age).unwrap_or(u64::MAX));
        let arrived_at = Moment::from_nanos(arrived_at);
        Box::new(KeptDecision::new(self.request, id, arrived_at, kept_for))
    }

    /// Notes the head of the answer that will be passed on. Of a good one the figures are read, unless
    /// it `is_encoded`: an error may hold what its client sent.
    pub(super) fn answering(&mut self, status: StatusCode, stream: bool, is_encoded: bool) {
        self.answer.status = status;
        self.answer.stream = stream;
        let now = Instant::now();
        self.life.on_head(now - self.arrived);
        if status.is_success() && !is_encoded {
            self.answer.meter = Meter::new(self.asked.api, stream);
            let path = KeptPath::read(self.asked.uri.path());
            let notes =
                IdNotes::new(path, self.asked.method == Method::POST, stream, self.asked.owner);
            self.answer.id_notes = notes.map(Box::new);
        }
        self.on_sign_of_life(now);
        self.await_token();
    }

    /// Tells the brain that the answer begins, now or at its first content if it is a stream that can be read.
    fn await_token(&mut self) {
        self.answer.awaits_token = self.answer.meter.awaits_content();
        if !self.answer.awaits_token {
            self.tell_answering();
        }
    }

    fn tell_answering(&mut self) {
        self.answer.awaits_token = false;
        self.tell(Event::Answering { request: self.request });
    }

    /// Notes that this is answered by the router itself.
    pub(super) fn answered(&mut self, status: StatusCode) {
        self.answer.status = status;
        self.answer.outcome = Some(Outcome::Done);
    }

    /// Notes a piece of the answer that came `now`, `gap` after the one before; `awaited` says that the replica
    /// was waited for meanwhile, and not the client.
    pub(super) fn on_piece(&mut self, piece: &[u8], now: Instant, gap: Duration, awaited: bool) {
        let arrived = self.arrived;
        let age = || now.saturating_duration_since(arrived);
        let before = self.streamed_tokens();
        if let (Some(notes), Some(member)) = (&mut self.answer.id_notes, &self.placing.member) {
            notes.on_piece(&self.router.kept_ids, member.place, piece);
        }
        self.answer.meter.on_chunk(piece);
        if self.answer.first_byte.is_none() {
            self.answer.first_byte = Some(age());
            self.answer.first_token = self.answer.first_byte.filter(|_| !self.answer.awaits_token);
            if let Some(at) = self.answer.first_token {
                self.life.on_first_token(at);
            }
        } else if self.answer.first_token.is_some() {
            self.life.on_gap(gap, awaited, age);
        }
        if self.answer.awaits_token && !self.answer.meter.awaits_content() {
            let at = age();
            self.answer.first_token.get_or_insert(at);
            self.life.on_first_token(at);
            self.tell_answering();
        }
        if self.answer.stream && streamed_is_due(before, self.streamed_tokens()) {
            self.tell_streamed();
        }
        self.on_sign_of_life(now);
    }

    /// Notes that another replica has begun to go on with the answer.
    pub(super) fn resumed(&mut self) {
        let now = Instant::now();
        self.life.on_head(now - self.arrived);
        self.answer.meter.await_content();
        self.await_token();
        self.on_sign_of_life(now);
        if let Some(pool) = &self.placing.pool {
            pool.metrics.resumed.inc();
        }
    }

    fn tell_streamed(&self) {
        let output_tokens = self.streamed_tokens();
        self.tell(Event::Streamed { request: self.request, output_tokens });
    }

    /// Counts the tokens that have come, while they come: an event for each.
    fn streamed_tokens(&self) -> u32 {
        u32::try_from(self.answer.meter.content_events()).unwrap_or(u32::MAX)
    }

    pub(super) fn finish(&mut self, outcome: Outcome) {
        self.answer.outcome = Some(outcome);
    }

    /// Takes the request off the brain's books once its replica is done with it.
    pub(super) fn settle(&mut self) {
        let age = self.arrived.elapsed();
        let usage = self.usage(age);
        self.answer.read_usage = Some(usage);
        self.life.on_answered(age);
        self.close(self.answer.outcome.unwrap_or(Outcome::Cancelled), self.lesson(usage));
    }

    /// Takes the request off the brain's books before its answer is written.
    pub(super) fn close(&mut self, outcome: Outcome, usage: Usage) {
        if self.answer.awaits_token && outcome == Outcome::Done {
            // It had no content, and is an answer all the same.
            self.tell_answering();
        }
        self.end_booking(outcome, usage);
    }

    fn end_booking(&mut self, outcome: Outcome, usage: Usage) {
        if let (true, Some(pool)) = (std::mem::take(&mut self.placing.booked), &self.placing.pool) {
            pool.tell(Event::Ended { request: self.request, outcome, usage });
        }
    }

    /// Tells the brain, while that has it on its books.
    fn tell(&self, event: Event) {
        if let (true, Some(pool)) = (self.placing.booked, &self.placing.pool) {
            pool.tell(event);
        }
    }

    /// Waits until the request is to give up the replica it is at.
    pub(super) async fn cancelled(&self, from: &Member) {
        self.placing.cancel.wait(from.id).await;
    }

    /// The same as a poll.
    pub(super) fn poll_cancelled(&self, cx: &Context<'_>) -> Poll<()> {
        self.placing.member.as_ref().map_or(Poll::Pending, |it| self.placing.cancel.poll(cx, it.id))
    }

    /// Puts the ids on an answer.
    pub(super) fn sign(&self, headers: &mut HeaderMap) {
        headers.insert(REQUEST_ID, self.request_id.clone());
        let session = self.asked.session.as_ref().map(|it| HeaderValue::from_str(it.as_str()));
        if let Some(Ok(session)) = session {
            headers.insert(SESSION_ID, session);
        }
        let decision = self.kept.as_ref().zip(self.shows).and_then(|(kept, sight)| {
            let apart = self.placing.pool.as_ref().is_some_and(|it| it.keeps_tenants_apart());
            kept.line(sight, apart)
        });
        if let Some(decision) = decision.and_then(|it| HeaderValue::try_from(it).ok()) {
            headers.insert(DECISION, decision);
        }
        if WAIT_SHOWN_MIN <= self.placing.waited {
            let waited_ms = u64::try_from(self.placing.waited.as_millis()).unwrap_or(u64::MAX);
            headers.insert(WAITED_MS, HeaderValue::from(waited_ms));
        }
        let contract =
            self.placing.pool.as_ref().filter(|_| self.placing.tenant != Tenant::default());
        if let Some(usage) = contract.and_then(|it| it.contract(self.placing.tenant)) {
            write_rate_limits(headers, &usage);
        }
    }

    /// Says in the API's own words that what it names is not there, where that is what an error means.
    pub(super) fn explained(&self, error: ServeError) -> ServeError {
        let named = self.asked.named.as_ref().filter(|_| error.is_replica_gone());
        named.map_or(error, Named::not_found)
    }

    pub(super) const fn tries(&self) -> u32 {
        self.placing.tries
    }

    pub(super) fn is_mid_event(&self) -> bool {
        self.answer.meter.is_mid_event()
    }

    pub(super) fn member(&self) -> Option<&Arc<Member>> {
        self.placing.member.as_ref()
    }

    /// Tells operators that the replica refused the router's key.
    pub(super) fn on_denied(&self) {
        if let (Some(pool), Some(member)) = (&self.placing.pool, &self.placing.member) {
            pool.on_denied(member, KeyUse::Requests);
        }
    }

    fn on_sign_of_life(&self, now: Instant) {
        if let Some(member) = &self.placing.member {
            member.on_byte(self.router.clock.at(now));
        }
    }
}
