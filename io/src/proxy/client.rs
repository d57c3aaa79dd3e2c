//! One client connection, as the requests on it see it: where it comes from, whether it is in use, and how
//! far the request is that HTTP/1.1 has in flight. The latter is for clients that close their side after the request. To
//! TCP that looks the same as leaving, until something is sent: one that left answers with a reset. So a
//! client that closes its side is sent something harmless, an interim answer or a comment between two
//! events, and only one that resets is gone (`guard`).

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Response, Version};
use http_body::{Frame, SizeHint};
use tokio::task::AbortHandle;

use super::body::Body;
use super::clock::Clock;
use super::headers::is_event_stream;

/// How far a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// There is none, or it is not read whole: the end of the client's side is the end.
    None,
    /// It is read whole, and nothing of its answer was sent.
    Waiting,
    /// Its answer is sent, in which nothing can be put.
    Sending,
    /// Its answer is a stream of events.
    Events,
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) peer: IpAddr,
    stage: AtomicU8,
    /// The stream is to send something, whether or not there is an event.
    asked: AtomicBool,
    /// Requests in flight, and since when there are none.
    requests: AtomicUsize,
    idle_since: AtomicU64,
    clock: Clock,
    /// Ends the connection.
    task: OnceLock<AbortHandle>,
}

impl Client {
    pub(super) fn new(peer: IpAddr, clock: Clock) -> Self {
        Self {
            peer,
            stage: AtomicU8::new(0),
            asked: AtomicBool::new(false),
            requests: AtomicUsize::new(0),
            idle_since: AtomicU64::new(clock.now().as_nanos()),
            clock,
            task: OnceLock::new(),
        }
    }

    /// Names the task that serves the connection.
    pub(super) fn set_task(&self, task: AbortHandle) {
        // It is named once, when it begins.
        _ = self.task.set(task);
    }

    /// Says since when the connection is idle, if it is.
    pub(super) fn idle_since(&self) -> Option<u64> {
        let is_idle = self.requests.load(Relaxed) == 0;
        is_idle.then(|| self.idle_since.load(Relaxed))
    }

    /// Ends the connection; tells whether it could.
    pub(super) fn end(&self) -> bool {
        self.task.get().map(AbortHandle::abort).is_some()
    }

    /// Notes how far a request is. Only under HTTP/1.1 a connection has one at a time, and may an interim
    /// answer be sent.
    pub(super) fn set_stage(&self, version: Version, stage: Stage) {
        if version == Version::HTTP_11 {
            self.store(stage);
        }
    }

    fn store(&self, stage: Stage) {
        let number = match stage {
            Stage::None => 0,
            Stage::Waiting => 1,
            Stage::Sending => 2,
            Stage::Events => 3,
        };
        self.stage.store(number, Relaxed);
    }

    pub(super) fn stage(&self) -> Stage {
        match self.stage.load(Relaxed) {
            1 => Stage::Waiting,
            2 => Stage::Sending,
            3 => Stage::Events,
            _ => Stage::None,
        }
    }

    /// Asks the stream to send something.
    pub(super) fn ask(&self) {
        self.asked.store(true, Relaxed);
    }

    /// Tells whether the stream is to send something, once.
    pub(super) fn is_asked(&self) -> bool {
        self.asked.swap(false, Relaxed)
    }

    /// Notes that nothing can be sent now: the client is taken to have left.
    pub(super) fn give_up(&self) {
        self.store(Stage::None);
    }
}

/// A request in flight.
pub(super) struct Busy {
    client: Arc<Client>,
    version: Version,
}

impl Busy {
    pub(super) fn new(client: &Arc<Client>, version: Version) -> Self {
        client.requests.fetch_add(1, Relaxed);
        Self { client: Arc::clone(client), version }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.client.set_stage(self.version, Stage::None);
        self.client.idle_since.store(self.client.clock.now().as_nanos(), Relaxed);
        self.client.requests.fetch_sub(1, Relaxed);
    }
}

/// The body of an answer, with whose end the request is over.
pub(super) struct Noted {
    body: Body,
    _busy: Busy,
}

impl Noted {
    /// Notes that an answer begins, and has its end noted.
    pub(super) fn begin(answer: Response<Body>, busy: Busy) -> Response<Self> {
        let events = is_event_stream(answer.headers());
        let stage = if events { Stage::Events } else { Stage::Sending };
        busy.client.set_stage(busy.version, stage);
        answer.map(|body| Self { body, _busy: busy })
    }
}

impl http_body::Body for Noted {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
