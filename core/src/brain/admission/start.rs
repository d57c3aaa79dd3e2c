//! Replicas that are started when work waits: how long one takes that is asked for now, and which requests cannot wait
//! for it.

use std::sync::Arc;
use std::time::Duration;

use crate::cost::Hardware;
use crate::domain::Moment;
use crate::queue::Ticket;

use super::super::event::Refusal;
use super::{Admission, Parked};

/// What is known of a replica that would be started.
#[derive(Debug)]
pub(super) struct Starting {
    ready_in: Duration,
    hardware: Arc<Hardware>,
}

impl Admission {
    /// Takes in how long a replica that is asked for now takes until it is ready, and what it will be; nothing where
    /// none is started.
    pub(in crate::brain) fn expect_start(
        &mut self,
        ready_in: Option<Duration>,
        hardware: Arc<Hardware>,
    ) {
        self.starting = ready_in.map(|ready_in| Starting { ready_in, hardware });
    }

    /// Says how long a replica that is asked for now takes until it is ready; nothing where none is started.
    pub(in crate::brain) fn ready_in(&self) -> Option<Duration> {
        self.starting.as_ref().map(|it| it.ready_in)
    }

    /// What a replica that is started will be.
    pub(in crate::brain) fn hardware_to_come(&self) -> Option<&Arc<Hardware>> {
        self.starting.as_ref().map(|it| &it.hardware)
    }

    /// Refuses a request for which no replica will be ready as long as it may wait, and says when to come back.
    pub(in crate::brain) fn unready(
        &mut self,
        now: Moment,
        ticket: &Ticket,
        parked: &Parked,
    ) -> Option<Refusal> {
        let retry_after = self.ready_in().filter(|it| ticket.expires_at < now + *it)?;
        self.refund(&parked.estimate);
        let has_deadline = ticket.deadline.is_some_and(|it| it <= ticket.expires_at);
        Some(if has_deadline {
            Refusal::DeadlineUnmeetable { retry_after }
        } else {
            Refusal::NoReplica { retry_after }
        })
    }
}
