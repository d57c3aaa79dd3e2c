//! To the client: pieces pass as they come, one by one, and only when the client can take them. The
//! relay holds nothing back and parses nothing. When the replica breaks off, the client is told in
//! its own stream; when the client leaves, dropping this hangs up on the replica.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use cleave_core::brain::Outcome;
use tokio::time::{Instant, Sleep, sleep};
use tracing::warn;

use crate::replicas::AnswerBody;

use super::pool::{Member, Waiting};
use super::rescue::cut_event;
use super::visit::Visit;
use super::worker::Worker;

pub(super) struct Relay {
    worker: Arc<Worker>,
    visit: Visit,
    /// `None` once it is over.
    body: Option<AnswerBody>,
    stream: bool,
    last_piece: Instant,
    /// Held while it is the replica, not the client, that is waited for.
    waiting: Option<Waiting>,
    /// Armed at the first wait, and moved only when it fires: not once per piece.
    idle: Option<Pin<Box<Sleep>>>,
}

impl Relay {
    pub(super) fn new(worker: Arc<Worker>, visit: Visit, body: AnswerBody, stream: bool) -> Self {
        let mut relay = Self {
            worker,
            visit,
            body: Some(body),
            stream,
            last_piece: Instant::now(),
            waiting: None,
            idle: None,
        };
        relay.finish_if_done();
        relay
    }

    pub(super) fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let Some(body) = &mut self.body else { return Poll::Ready(None) };
        let polled = body.poll_piece(cx);
        if polled.is_ready() {
            self.waiting = None;
        } else if self.waiting.is_none() {
            self.waiting = self.visit.member().map(Member::wait);
        }
        match polled {
            Poll::Ready(Some(Ok(piece))) => {
                self.last_piece = Instant::now();
                self.visit.on_piece(&piece);
                self.finish_if_done();
                Poll::Ready(Some(Ok(piece)))
            }
            Poll::Ready(Some(Err(error))) => self.cut(error),
            Poll::Ready(None) => {
                self.finish_if_done();
                Poll::Ready(None)
            }
            Poll::Pending => {
                if self.visit.poll_recalled(cx).is_pending() {
                    ready!(self.poll_idle(cx));
                }
                self.cut(io::ErrorKind::TimedOut.into())
            }
        }
    }

    pub(super) const fn is_done(&self) -> bool {
        self.body.is_none()
    }

    pub(super) fn length(&self) -> Option<u64> {
        self.body.as_ref().map_or(Some(0), AnswerBody::length)
    }

    /// Settles at the last byte: with a known length nobody asks for what comes after it.
    fn finish_if_done(&mut self) {
        let Some(body) = self.body.take_if(|it| it.is_done()) else { return };
        self.visit.finish(Outcome::Done);
        if let (Some(connection), Some(member)) = (body.into_connection(), self.visit.member()) {
            self.worker.idle.put(member.id, connection);
        }
    }

    fn cut(&mut self, error: io::Error) -> Poll<Option<io::Result<Bytes>>> {
        self.body = None;
        self.visit.finish(Outcome::Cut);
        let replica = self.visit.member().map(|it| it.origin.as_str());
        warn!(replica, %error, "answer cut");
        if self.stream {
            let event = cut_event(self.visit.api, self.visit.is_mid_event());
            Poll::Ready(Some(Ok(event.into())))
        } else {
            // An answer of known form cannot carry a word more: the broken transfer is the message.
            Poll::Ready(Some(Err(error)))
        }
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
