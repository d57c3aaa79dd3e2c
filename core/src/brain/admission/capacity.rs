//! What the fleet can do: how much in a minute, and, where replicas are started when work waits, how long one takes that
//! is asked for now, and which requests cannot wait for it.

use std::sync::Arc;
use std::time::Duration;

use crate::cost::Hardware;
use crate::domain::Moment;
use crate::fleet::Replica;
use crate::queue::{Ticket, Work};

use super::super::event::Refusal;
use super::{Admission, Parked};

/// What the fleet can do, and what a replica that is started adds to it.
#[derive(Debug, Default)]
pub(in crate::brain) struct FleetCapacity {
    per_min: Work,
    /// Where replicas are started when work waits: how long one takes that is asked for now, and what it will be.
    starting: Option<(Duration, Arc<Hardware>)>,
}

impl FleetCapacity {
    pub(super) const fn per_min(&self) -> Work {
        self.per_min
    }

    /// Takes in how long a replica that is asked for now takes until it is ready, and what it will be; nothing where
    /// none is started.
    pub(in crate::brain) fn expect_start(
        &mut self,
        ready_in: Option<Duration>,
        hardware: Arc<Hardware>,
    ) {
        self.starting = ready_in.map(|it| (it, hardware));
    }

    /// Says how long a replica that is asked for now takes until it is ready; nothing where none is started.
    pub(in crate::brain) fn ready_in(&self) -> Option<Duration> {
        self.starting.as_ref().map(|it| it.0)
    }

    /// What a replica that is started will be.
    pub(in crate::brain) fn hardware_to_come(&self) -> Option<&Arc<Hardware>> {
        self.starting.as_ref().map(|it| &it.1)
    }
}

impl Admission {
    /// Measures the capacity and KV memory of the replicas that take new sessions and stay.
    pub(in crate::brain) fn measure<'a>(
        &mut self,
        there: impl Iterator<Item = &'a Replica> + Clone,
    ) {
        // A replica that never came up has neither.
        let there = there.filter(|it| !it.is_joining());
        let capacity: f64 = there.clone().map(|it| it.hardware.capacity_mu_per_min).sum();
        let (before, per_min) = (self.capacity.per_min, Work::from_mu(capacity));
        if per_min != before {
            self.waiting.expect(before, per_min);
            self.capacity.per_min = per_min;
        }
        self.gate.on_room(kv_tokens(there), per_min);
    }

    /// Refuses a request for which no replica will be ready as long as it may wait, and says when to come back.
    pub(in crate::brain) fn unready(
        &mut self,
        now: Moment,
        ticket: &Ticket,
        parked: &Parked,
    ) -> Option<Refusal> {
        let ready_in = self.capacity.ready_in();
        let retry_after = ready_in.filter(|it| ticket.expires_at < now + *it)?;
        self.refund(&parked.estimate);
        let has_deadline = ticket.deadline.is_some_and(|it| it <= ticket.expires_at);
        Some(if has_deadline {
            Refusal::DeadlineUnmeetable { retry_after }
        } else {
            Refusal::NoReplica { retry_after }
        })
    }
}

/// Adds up the KV memory of these replicas; nothing where none reports it.
fn kv_tokens<'a>(there: impl Iterator<Item = &'a Replica> + Clone) -> Option<u64> {
    let told = there.clone().filter_map(|it| it.reported.report()?.kv_tokens_max);
    // Replicas that report no memory are assumed to have as much as those that do, on average.
    let count = u64::try_from(told.clone().count()).unwrap_or(0);
    let all = u64::try_from(there.count()).unwrap_or(0);
    (0 < count).then(|| told.sum::<u64>() * all / count)
}
