//! What is kept of a stream so that another replica can go on with it: the request, what was said, and
//! the beginning of an event whose end has not come. Only whole events are passed on, so that a cut
//! never falls inside one. Everything kept is counted against the limit on request bodies; where
//! there is no room, the stream goes on without a resume buffer.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use cleave_core::brain::Failure;
use cleave_core::protocol::{Api, Continuation, Edit, EventAction, Resume, event_end};
use http::{HeaderMap, StatusCode, header};
use tracing::info;

use crate::replicas::{Answer, AnswerBody, Payload};

use super::buffers::Share;
use super::headers::{Framed, is_event_stream};
use super::sending::try_each;
use super::settings::Passing;
use super::visit::Visit;
use super::worker::Worker;

/// The longest event that is held back until it is whole.
const EVENT_BYTES_MAX: usize = 64 << 10;

/// A request as it came, with its share of the common limit.
pub(super) struct ResumableRequest {
    pub(super) body: Bytes,
    pub(super) share: Share,
    pub(super) headers: HeaderMap,
    /// What of the body goes out otherwise than it came.
    pub(super) splices: Vec<Edit>,
    pub(super) passing: Passing,
}

pub(super) struct ResumeBuffer {
    resume: Resume,
    kept: ResumableRequest,
    /// The beginning of an event.
    part: BytesMut,
}

/// What of a piece is passed on, and whether the replica failed behind it.
pub(super) struct Taken {
    pub(super) forward: Bytes,
    pub(super) cut: bool,
}

/// A stream on its way to another replica.
pub(super) type Moving = Pin<Box<dyn Future<Output = Moved> + Send>>;

pub(super) struct Moved {
    pub(super) visit: Box<Visit>,
    /// What another replica goes on with; the reason when there is none.
    pub(super) rest: Result<(AnswerBody, Box<ResumeBuffer>), io::Error>,
}

impl ResumeBuffer {
    /// Keeps what is needed to go on; `None` where that would not be exact, or there is no room.
    pub(super) fn new(api: Api, answer: &Answer, kept: ResumableRequest) -> Option<Box<Self>> {
        if !kept.share.may_stay() || !is_plain_stream(answer) {
            return None;
        }
        let resume = Resume::new(api, &kept.body)?;
        Some(Box::new(Self { resume, kept, part: BytesMut::new() }))
    }

    /// Takes in what came from the replica.
    pub(super) fn on_piece(&mut self, piece: Bytes) -> Taken {
        let text = if self.part.is_empty() {
            piece
        } else {
            self.part.extend_from_slice(&piece);
            self.part.split().freeze()
        };
        let (at, changed, mut cut) = self.on_events(&text);
        let held = self.kept.body.len() + self.resume.said_bytes();
        let no_room = self.kept.share.try_grow(held).is_err();
        let too_long = EVENT_BYTES_MAX < text.len() - at;
        if no_room || too_long {
            self.resume.give_up();
        }
        if self.resume.is_idle() && !cut {
            return Taken { forward: text, cut };
        }
        // Half an event of this length cannot be passed on with another's name on it.
        cut |= too_long;
        if !cut {
            self.part.extend_from_slice(&text[at..]);
        }
        Taken { forward: changed.map_or_else(|| text.slice(..at), BytesMut::freeze), cut }
    }

    /// Goes through the whole events of a text: where they end, what is passed on instead if not they
    /// themselves, and whether one of them is none.
    fn on_events(&mut self, text: &Bytes) -> (usize, Option<BytesMut>, bool) {
        let mut at = 0;
        let mut changed: Option<BytesMut> = None;
        while let Some(length) = event_end(&text[at..]) {
            let event = &text[at..at + length];
            let before = || BytesMut::from(&text[..at]);
            match self.resume.on_event(event) {
                EventAction::Pass => {
                    if let Some(changed) = &mut changed {
                        changed.extend_from_slice(event);
                    }
                }
                EventAction::Skip => _ = changed.get_or_insert_with(before),
                EventAction::Write(other) => {
                    changed.get_or_insert_with(before).extend_from_slice(&other);
                }
                EventAction::Cut => return (at, changed, true),
            }
            at += length;
        }
        (at, changed, false)
    }

    /// Tells whether it is of no more use.
    pub(super) const fn is_idle(&self) -> bool {
        self.resume.is_idle()
    }

    /// Tells whether the answer was passed on to its end.
    pub(super) const fn is_over(&self) -> bool {
        self.resume.is_over()
    }

    /// Notes that the replica broke off, and says what can be done.
    pub(super) fn on_cut(&mut self) -> Continuation {
        self.part.clear();
        self.resume.on_cut()
    }

    /// Has the rest of the answer come from another replica.
    pub(super) fn move_on(
        self: Box<Self>,
        worker: Arc<Worker>,
        mut visit: Box<Visit>,
        failure: Failure,
    ) -> Moving {
        Box::pin(async move {
            let rest = self.find_rest(&worker, &mut visit, failure).await;
            Moved { visit, rest: rest.map(|body| (body, self)) }
        })
    }

    async fn find_rest(
        &self,
        worker: &Worker,
        visit: &mut Visit,
        failure: Failure,
    ) -> io::Result<AnswerBody> {
        let cut = Instant::now();
        let member = visit
            .place_again(failure)
            .await
            .map_err(|refusal| io::Error::other(refusal.as_str()))?;
        let sent_ms = cut.elapsed().as_millis();
        let ResumableRequest { body, headers, splices, passing, .. } = &self.kept;
        let rest = Bytes::from(self.resume.body(body, splices));
        let framed = Framed::Length(rest.len());
        let head = visit.head_for_replica(headers, framed, *passing);
        let payload = Payload::whole(rest);
        let answer = try_each(worker, visit, member, &head, &payload).await;
        let answer = answer.map_err(|error| io::Error::other(error.to_string()))?;
        if !is_plain_stream(&answer) {
            return Err(io::Error::other(format!("answered {} to the rest", answer.status)));
        }
        let replica = visit.member().map(|it| it.origin.as_str());
        let (said_bytes, begun_ms) = (self.resume.said_bytes(), cut.elapsed().as_millis());
        info!(replica, said_bytes, sent_ms, begun_ms, "answer goes on elsewhere");
        Ok(answer.body)
    }
}

/// Tells whether an answer is a stream of events as they are, of no promised length.
fn is_plain_stream(answer: &Answer) -> bool {
    answer.status == StatusCode::OK
        && is_event_stream(&answer.headers)
        && !answer.headers.contains_key(header::CONTENT_ENCODING)
        && answer.body.length().is_none()
}
