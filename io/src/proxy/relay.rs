//! To the client: pieces pass as they come, one by one, and only when the client can take them. The
//! relay holds nothing back and parses nothing, unless the stream has a resume buffer (`resume`): then whole
//! events pass. When the replica breaks off, another one goes on or the client is told in its own
//! stream; when the client leaves, or takes nothing for too long (`stuck`), dropping this hangs up on the
//! replica.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use cleave_core::brain::{Failure, Outcome};
use cleave_core::protocol::Continuation;
use tokio::time::{Instant, Sleep, sleep};
use tracing::warn;

use crate::replicas::AnswerBody;

use super::callers::Caller;
use super::client::Client;
use super::panics::{Panicked, attempt};
use super::pool::{Member, WaitingRequest};
use super::rescue::{cut_event, panicked_event};
use super::resume::{Moved, Moving, ResumeBuffer};
use super::stuck::WriteProgress;
use super::visit::Visit;
use super::worker::Worker;

/// What no reader of events sees.
const COMMENT: &[u8] = b":\n\n";

pub(super) struct Relay {
    worker: Arc<Worker>,
    /// Away while the answer moves to another replica.
    visit: Option<Box<Visit>>,
    /// `None` once it is over, and while it moves.
    body: Option<AnswerBody>,
    stream: bool,
    resume_buffer: Option<Box<ResumeBuffer>>,
    /// Shows this thread's sweep whether the client takes what it is given.
    progress: Arc<WriteProgress>,
    given_bytes: u64,
    client: Arc<Client>,
    /// What came after the last piece was no part of an answer.
    failed: bool,
    moving: Option<Moving>,
    last_piece: Instant,
    /// Held while it is the replica, not the client, that is waited for.
    waiting: Option<WaitingRequest>,
    /// Armed at the first wait, and moved only when it fires: not once per piece.
    idle: Option<Pin<Box<Sleep>>>,
}

impl Relay {
    pub(super) fn new(
        worker: Arc<Worker>,
        visit: Box<Visit>,
        body: AnswerBody,
        stream: bool,
        resume_buffer: Option<Box<ResumeBuffer>>,
        caller: &Arc<Caller>,
        client: Arc<Client>,
    ) -> Self {
        let mut relay = Self {
            progress: worker.stuck_answers.watch(caller),
            given_bytes: 0,
            client,
            worker,
            visit: Some(visit),
            body: Some(body),
            stream,
            resume_buffer,
            failed: false,
            moving: None,
            last_piece: Instant::now(),
            waiting: None,
            idle: None,
        };
        relay.finish_if_done();
        relay
    }

    /// Polls for the next piece. A panic cuts this answer, and no other on the same connection.
    pub(super) fn poll_contained(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Bytes>>> {
        let polled = attempt(|| self.poll_piece(cx));
        polled.unwrap_or_else(|Panicked| Poll::Ready(Some(self.on_panic())))
    }

    /// Ends an answer in which a panic happened, and says what the client is told.
    fn on_panic(&mut self) -> io::Result<Bytes> {
        self.worker.router.metrics.on_panic("stream");
        let broken = || io::Error::other("the router made a mistake");
        // While the answer moved, the visit was in what panicked, and is settled.
        (self.body, self.waiting, self.resume_buffer, self.moving) = (None, None, None, None);
        let Some(visit) = &mut self.visit else { return Err(broken()) };
        visit.on_panic();
        if !self.stream {
            return Err(broken());
        }
        let words = attempt(|| panicked_event(visit.asked.api, visit.is_mid_event()));
        words.map_or_else(|Panicked| Err(broken()), |it| Ok(it.into()))
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let polled = self.poll_next(cx);
        if let Poll::Ready(Some(Ok(piece))) = &polled {
            self.given_bytes += u64::try_from(piece.len()).unwrap_or(0);
            self.progress.given(self.given_bytes);
        } else {
            self.progress.taken(self.given_bytes);
        }
        polled
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        #[cfg(test)]
        self.worker.router.traps.at_stream();
        loop {
            let last_words = if let Some(moving) = &mut self.moving {
                let moved = ready!(moving.as_mut().poll(cx));
                self.on_moved(moved)
            } else if std::mem::take(&mut self.failed) {
                self.cut(io::ErrorKind::InvalidData.into(), Failure::Lost)
            } else {
                let Some(body) = &mut self.body else { return Poll::Ready(None) };
                let polled = body.poll_piece(cx);
                let awaited = self.waiting.is_some();
                self.note_waiting(polled.is_pending());
                match polled {
                    Poll::Ready(Some(Ok(piece))) => self.on_piece(piece, awaited).map(Ok),
                    Poll::Ready(Some(Err(error))) => self.cut(error, Failure::Lost),
                    Poll::Ready(None) if self.is_short() => {
                        self.cut(io::ErrorKind::UnexpectedEof.into(), Failure::Lost)
                    }
                    Poll::Ready(None) => {
                        self.finish_if_done();
                        return Poll::Ready(None);
                    }
                    Poll::Pending if self.client.is_asked() && self.may_comment() => {
                        Some(Ok(Bytes::from_static(COMMENT)))
                    }
                    Poll::Pending => {
                        let hung = self.visit().poll_cancelled(cx).is_ready();
                        if !hung {
                            ready!(self.poll_idle(cx));
                        }
                        let failure = if hung { Failure::Hung } else { Failure::Lost };
                        self.cut(io::ErrorKind::TimedOut.into(), failure)
                    }
                }
            };
            if let Some(words) = last_words {
                return Poll::Ready(Some(words));
            }
        }
    }

    /// Tells whether a comment may be sent now; where it may not, the client that closed its side is taken to
    /// have left.
    fn may_comment(&mut self) -> bool {
        let unframed = self.body.as_ref().is_some_and(|it| it.length().is_none());
        let may = self.stream && unframed && !self.visit().is_mid_event();
        if !may {
            self.client.give_up();
        }
        may
    }

    pub(super) const fn is_done(&self) -> bool {
        self.body.is_none() && self.moving.is_none()
    }

    pub(super) fn length(&self) -> Option<u64> {
        match (&self.body, &self.moving) {
            (Some(body), _) => body.length(),
            (None, Some(_)) => None,
            (None, None) => Some(0),
        }
    }

    /// Notes whether it is the replica that is waited for.
    fn note_waiting(&mut self, waits: bool) {
        if !waits {
            self.waiting = None;
        } else if self.waiting.is_none() {
            self.waiting = self.visit().member().map(Member::wait);
        }
    }

    /// Takes in a piece; returns what of it is passed on now.
    fn on_piece(&mut self, piece: Bytes, awaited: bool) -> Option<Bytes> {
        let now = Instant::now();
        let gap = now.duration_since(std::mem::replace(&mut self.last_piece, now));
        let piece = match &mut self.resume_buffer {
            None => piece,
            Some(resume_buffer) => {
                let taken = resume_buffer.on_piece(piece);
                self.failed = taken.cut;
                if resume_buffer.is_idle() {
                    self.resume_buffer = None;
                }
                taken.forward
            }
        };
        if piece.is_empty() {
            return None;
        }
        self.visit().on_piece(&piece, now.into_std(), gap, awaited);
        self.finish_if_done();
        Some(piece)
    }

    /// Tells whether the answer ended like one that is whole, and is not.
    fn is_short(&self) -> bool {
        let ended = self.body.as_ref().is_some_and(AnswerBody::is_done);
        ended && self.resume_buffer.as_ref().is_some_and(|it| !it.is_over())
    }

    /// Settles at the last byte: with a known length nothing asks for what comes after it.
    fn finish_if_done(&mut self) {
        if self.failed || self.is_short() {
            return;
        }
        let Some(body) = self.body.take_if(|it| it.is_done()) else { return };
        self.visit().finish(Outcome::Done);
        // The client may take its time over what is left.
        self.visit().settle();
        let member = self.visit().member().map(|it| it.id);
        if let (Some(connection), Some(member)) = (body.into_connection(), member) {
            self.worker.idle.put(member, connection);
        }
    }

    /// Ends the answer of this replica. Returns what the client is told, if anything yet.
    fn cut(&mut self, error: io::Error, failure: Failure) -> Option<io::Result<Bytes>> {
        (self.body, self.waiting) = (None, None);
        let replica = self.visit().member().map(|it| it.origin.as_str());
        warn!(replica, %error, "answer cut");
        let mut resume_buffer = self.resume_buffer.take();
        match resume_buffer.as_mut().map_or(Continuation::GiveUp, |it| it.on_cut()) {
            Continuation::GoOn => {
                let (resume_buffer, visit) = (resume_buffer?, self.visit.take()?);
                self.moving = Some(resume_buffer.move_on(Arc::clone(&self.worker), visit, failure));
                None
            }
            Continuation::Close(words) => {
                self.visit().finish(Outcome::Done);
                (!words.is_empty()).then(|| Ok(words.into()))
            }
            Continuation::GiveUp => Some(self.tell(error)),
        }
    }

    /// Takes up the answer where another replica goes on with it.
    fn on_moved(&mut self, moved: Moved) -> Option<io::Result<Bytes>> {
        self.moving = None;
        let visit = self.visit.insert(moved.visit);
        match moved.rest {
            Ok((body, resume_buffer)) => {
                visit.resumed();
                (self.body, self.resume_buffer) = (Some(body), Some(resume_buffer));
                self.last_piece = Instant::now();
                None
            }
            Err(error) => {
                warn!(%error, "answer cannot go on elsewhere");
                Some(self.tell(error))
            }
        }
    }

    /// Says that the rest will not come.
    fn tell(&mut self, error: io::Error) -> io::Result<Bytes> {
        let stream = self.stream;
        let visit = self.visit();
        visit.finish(Outcome::Cut);
        if stream {
            Ok(cut_event(visit.asked.api, visit.is_mid_event()).into())
        } else {
            // An answer of known form cannot carry a word more: the broken transfer is the message.
            Err(error)
        }
    }

    fn visit(&mut self) -> &mut Visit {
        self.visit.as_deref_mut().expect("the visit is here unless it moves")
    }

    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let limit = self.limit();
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(limit)));
        loop {
            ready!(idle.as_mut().poll(cx));
            let due = self.last_piece + limit;
            if due <= Instant::now() {
                return Poll::Ready(());
            }
            idle.as_mut().reset(due);
        }
    }

    fn limit(&self) -> Duration {
        self.worker.router.settings.timeouts.idle
    }
}
