//! What one tenant has waiting in one class, earliest deadline first. It is split into lanes:
//! requests in one lane can be sent to the same places, so if one of them cannot go now, none can,
//! and no request has to be tried twice. Few tenants have more than one or two.

use std::collections::BTreeSet;

use crate::domain::{Moment, RequestId};

use super::line::{Lane, Ticket};
use super::work::{Work, WorkSum};

/// Where a request stands: by deadline, then by arrival.
pub(super) type QueuePlace = (Moment, u64, RequestId);

#[derive(Debug, Default)]
pub(super) struct TenantQueue {
    lanes: Vec<(Lane, BTreeSet<QueuePlace>)>,
    count: usize,
    work: WorkSum,
    /// How much waits here for its weight, as the line has it noted.
    pub(super) pressure: Option<u128>,
}

impl TenantQueue {
    pub(super) fn put(&mut self, ticket: &Ticket, seq: u64) {
        let at = self.lanes.iter().position(|it| it.0 == ticket.lane).unwrap_or_else(|| {
            self.lanes.push((ticket.lane, BTreeSet::new()));
            self.lanes.len() - 1
        });
        self.lanes[at].1.insert(stand(ticket, seq));
        self.count += 1;
        self.work.add(ticket.work);
    }

    pub(super) fn take(&mut self, ticket: &Ticket, seq: u64) {
        let Some(at) = self.lanes.iter().position(|it| it.0 == ticket.lane) else { return };
        if self.lanes[at].1.remove(&stand(ticket, seq)) {
            self.count -= 1;
            self.work.take(ticket.work);
        }
        if self.lanes[at].1.is_empty() {
            self.lanes.swap_remove(at);
        }
    }

    /// Finds the next request of those that may go: the earliest that can still be in time, or else
    /// the earliest. What is lost already must not cost the next one its time too.
    pub(super) fn first(
        &self,
        now: Moment,
        mut open: impl FnMut(Lane) -> bool,
    ) -> Option<RequestId> {
        let in_time = (now, 0, RequestId(0));
        let (mut soonest, mut oldest) = (None, None);
        for (_, stands) in self.lanes.iter().filter(|it| open(it.0)) {
            soonest = soonest.into_iter().chain(stands.range(in_time..).next()).min();
            oldest = oldest.into_iter().chain(stands.first()).min();
        }
        soonest.or(oldest).map(|it| it.2)
    }

    /// Finds the one that can wait the longest.
    pub(super) fn last(&self) -> Option<RequestId> {
        self.lanes.iter().filter_map(|it| it.1.last()).max().map(|it| it.2)
    }

    /// Lists those that go before one that joins now and is due then: those that can still be in time
    /// and are due no later.
    pub(super) fn due_by(&self, now: Moment, due: Moment) -> impl Iterator<Item = RequestId> + '_ {
        let upto = (due.max(now), u64::MAX, RequestId(u64::MAX));
        let from = (now, 0, RequestId(0));
        self.lanes.iter().flat_map(move |it| it.1.range(from..=upto)).map(|it| it.2)
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn work(&self) -> Work {
        self.work.total()
    }
}

fn stand(ticket: &Ticket, seq: u64) -> QueuePlace {
    (ticket.due(), seq, ticket.request)
}
