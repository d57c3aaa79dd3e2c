//! The seam between a workload and the world that plays it: when does the next request come, give it to
//! me, this one has ended. Nothing is read or generated before it is asked for, so memory follows
//! what is in flight and not the length of the run.

use std::iter::Peekable;

use cleave_core::domain::Moment;

use super::lines::TraceError;
use super::request::{Request, Session, Ticket};

/// Requests in order of arrival.
pub type Requests = Box<dyn Iterator<Item = Result<Request, TraceError>> + Send>;

/// Sessions in order of start, where they have one.
pub type Sessions = Box<dyn Iterator<Item = Result<Session, TraceError>> + Send>;

/// Something that requests can be pulled from.
pub trait Source: Send {
    /// Says when the next request arrives. None: nothing more comes until something ends, or ever.
    fn next_arrival(&mut self) -> Result<Option<Moment>, TraceError>;

    /// Takes the next request; moments never decrease, except that an end releases nothing earlier
    /// than itself.
    fn take(&mut self) -> Result<Option<Request>, TraceError>;

    /// Learns that a request has ended, however it ended; what waited for it may now arrive.
    fn on_end(&mut self, now: Moment, ticket: Ticket);
}

/// Requests whose arrivals are known beforehand.
pub(super) struct OpenLoop {
    requests: Peekable<Requests>,
}

impl OpenLoop {
    pub(super) fn new(requests: Requests) -> Self {
        Self { requests: requests.peekable() }
    }
}

impl Source for OpenLoop {
    fn next_arrival(&mut self) -> Result<Option<Moment>, TraceError> {
        match self.requests.peek() {
            Some(Ok(request)) => Ok(Some(request.arrival)),
            Some(Err(_)) => self.take().map(|_| None),
            None => Ok(None),
        }
    }

    fn take(&mut self) -> Result<Option<Request>, TraceError> {
        self.requests.next().transpose()
    }

    fn on_end(&mut self, _now: Moment, _ticket: Ticket) {}
}
