//! Where requests wait that may not be tried again yet. A request that was in flight when a replica went
//! down may be tried again, but only one copy of it at a time: if it is what killed the replica, its copies
//! would kill one each. One that has lost two replicas waits until it is known whether they died: a probe
//! tells in milliseconds, and a third replica would be its price. And one that lost its replica when no other
//! was up waits for one to come back. A request that has waited for too long is refused and told so.
//!
//! Different requests wait for each other here only where their workload loses replicas in a row (see
//! `placement/subsets/trouble`), so the bystanders of a crash move on at once.

use std::collections::VecDeque;
use std::time::Duration;

use crate::brain::request::Booking;
use crate::domain::{Moment, RequestId};

/// Requests that may wait here.
const WAITING_MAX: usize = 1024;
/// The longest wait of a request here.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time between two looks at what waits, when nothing else happens.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// The requests that wait, in order of arrival.
#[derive(Debug, Default)]
pub(in crate::brain) struct RetryHold {
    waiting: VecDeque<HeldBack>,
    looked_at: Moment,
}

/// One request that waits.
#[derive(Debug)]
pub(in crate::brain) struct HeldBack {
    pub(in crate::brain) request: RequestId,
    pub(in crate::brain) booking: Booking,
    /// When it began to wait.
    pub(in crate::brain) since: Moment,
}

impl RetryHold {
    pub(in crate::brain) fn next_wakeup(&self) -> Option<Moment> {
        (!self.is_empty()).then(|| self.looked_at + LOOK_INTERVAL)
    }

    pub(in crate::brain) fn take_in(&mut self, it: HeldBack) {
        self.waiting.push_back(it);
    }

    pub(in crate::brain) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Tells whether a request that has waited since `since` may wait longer.
    pub(in crate::brain) fn has_room(&self, now: Moment, since: Moment) -> bool {
        now.since(since) < WAIT_MAX && self.waiting.len() < WAITING_MAX
    }

    /// Takes all out for a look at each of them.
    pub(in crate::brain) fn take(&mut self, now: Moment) -> VecDeque<HeldBack> {
        self.looked_at = now;
        std::mem::take(&mut self.waiting)
    }

    /// Puts back those that go on waiting, before those that have come meanwhile.
    pub(in crate::brain) fn put_back(&mut self, mut waiting: VecDeque<HeldBack>) {
        waiting.append(&mut self.waiting);
        self.waiting = waiting;
    }

    /// Takes out a request whose client left.
    pub(in crate::brain) fn remove(&mut self, request: RequestId) -> Option<Booking> {
        let at = self.waiting.iter().position(|it| it.request == request)?;
        self.waiting.remove(at).map(|it| it.booking)
    }

    pub(in crate::brain) fn iter(&self) -> impl Iterator<Item = &HeldBack> {
        self.waiting.iter()
    }
}
