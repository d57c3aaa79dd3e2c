//! One client connection, as the requests on it see it: where it comes from, whether it is in use, and how
//! far the request is that HTTP/1.1 has in flight. The latter is for clients that close their side after the request. To
//! TCP that looks the same as leaving, until something is sent: one that left answers with a reset. So a
//! client that closes its side is sent something harmless, an interim answer or a comment between two
//! events, and only one that resets is gone (`guard`).

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, Version};
use tokio::task::AbortHandle;

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

    /// Notes that its answer begins.
    pub(super) fn on_answer(&self, headers: &HeaderMap) {
        let stage = if is_event_stream(headers) { Stage::Events } else { Stage::Sending };
        self.client.set_stage(self.version, stage);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.client.set_stage(self.version, Stage::None);
        self.client.idle_since.store(self.client.clock.now().as_nanos(), Relaxed);
        self.client.requests.fetch_sub(1, Relaxed);
    }
}
