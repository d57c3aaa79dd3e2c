//! The messages of one exchange as they come from the proxy. While something else is waited for, they are read ahead,
//! as far as there is room: the end of the exchange must be noticed at any time, because a proxy whose client left
//! only closes its side.

use std::collections::VecDeque;
use std::pin::Pin;

use futures_util::{Stream, StreamExt as _};
use tonic::Status;

use super::messages::ProcessingRequest;

/// How many messages are read ahead.
const AHEAD_MAX: usize = 64;

type Incoming = Pin<Box<dyn Stream<Item = Result<ProcessingRequest, Status>> + Send>>;

pub(super) struct Inbox {
    incoming: Incoming,
    ahead: VecDeque<ProcessingRequest>,
    has_ended: bool,
    /// Why it ended, if that was no proper end and was not told yet.
    error: Option<Status>,
}

impl Inbox {
    pub(super) fn new(
        incoming: impl Stream<Item = Result<ProcessingRequest, Status>> + Send + 'static,
    ) -> Self {
        Self { incoming: Box::pin(incoming), ahead: VecDeque::new(), has_ended: false, error: None }
    }

    /// Waits for the next message; `None` at the end. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Option<ProcessingRequest>, Status> {
        if let Some(message) = self.ahead.pop_front() {
            return Ok(Some(message));
        }
        if self.has_ended {
            return self.error.take().map_or(Ok(None), Err);
        }
        self.incoming.next().await.transpose()
    }

    /// Waits until the proxy has ended the exchange. May be dropped and called again.
    pub(super) async fn closed(&mut self) {
        while !self.has_ended {
            if AHEAD_MAX <= self.ahead.len() {
                return std::future::pending().await;
            }
            match self.incoming.next().await {
                Some(Ok(message)) => self.ahead.push_back(message),
                Some(Err(error)) => (self.has_ended, self.error) = (true, Some(error)),
                None => self.has_ended = true,
            }
        }
    }
}
