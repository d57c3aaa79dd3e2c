//! Where suspects wait. A request that was in flight when a replica went down may be tried again, but
//! only one copy of it at a time: if it is what killed the replica, its copies would kill one each.
//! And who has lost two replicas waits until it is known whether they died: a probe tells in
//! milliseconds, and a third replica would be its price. Whoever waits for long is refused and told so.
//!
//! Different requests wait for each other here only where their workload loses replicas in a row (see
//! `subsets`), so the bystanders of a crash move on at once.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::{Moment, RequestId};

use super::booking::Booking;
use super::event::{Action, Refusal};
use super::quarantine::{Fingerprint, Judgement};
use super::{Brain, Notice};

/// Requests that may wait here.
const WAITING_MAX: usize = 1024;
/// How long one waits at most.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Time between two looks at those who wait, when nothing else happens.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Those who wait, the first first.
#[derive(Debug, Default)]
pub(super) struct Ward {
    waiting: VecDeque<Patient>,
    looked_at: Moment,
}

#[derive(Debug)]
struct Patient {
    request: RequestId,
    booking: Booking,
    since: Moment,
}

/// What becomes of one who waits.
enum Next {
    Go,
    Wait,
    Refuse(Refusal),
}

impl Ward {
    pub(super) fn next_wakeup(&self) -> Option<Moment> {
        (!self.waiting.is_empty()).then(|| self.looked_at + LOOK_INTERVAL)
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(super) fn bookings(&self) -> impl Iterator<Item = &Booking> {
        self.waiting.iter().map(|it| &it.booking)
    }

    /// Lists those who wait.
    pub(super) fn waiting(&self) -> impl Iterator<Item = RequestId> + '_ {
        self.waiting.iter().map(|it| it.request)
    }
}

impl Brain {
    /// Has a request wait that may not go now; hands it back if it may.
    pub(super) fn detain(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: Booking,
        actions: &mut Vec<Action>,
    ) -> Option<Booking> {
        match self.next(now, now, &booking) {
            Next::Go => return Some(booking),
            Next::Wait if self.ward.len() < WAITING_MAX => {
                self.ward.waiting.push_back(Patient { request, booking, since: now });
            }
            Next::Wait => self.dismiss(now, request, &booking, suspected(), actions),
            Next::Refuse(refusal) => self.dismiss(now, request, &booking, refusal, actions),
        }
        None
    }

    /// Lets go whoever may go, and refuses whoever may not or has waited for too long.
    pub(super) fn discharge(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.ward.waiting.is_empty() {
            return;
        }
        self.ward.looked_at = now;
        // Who goes is in flight for those behind it.
        let mut waiting = std::mem::take(&mut self.ward.waiting);
        for _ in 0..waiting.len() {
            let Some(it) = waiting.pop_front() else { break };
            match self.next(now, it.since, &it.booking) {
                Next::Wait => waiting.push_back(it),
                Next::Go => self.place_again(now, it.request, it.booking, actions),
                Next::Refuse(refusal) => {
                    self.dismiss(now, it.request, &it.booking, refusal, actions);
                }
            }
        }
        waiting.append(&mut self.ward.waiting);
        self.ward.waiting = waiting;
    }

    /// Takes a request whose client left out of the ward; tells whether it was there.
    pub(super) fn on_left_ward(&mut self, now: Moment, request: RequestId) -> bool {
        let found = self.ward.waiting.iter().position(|it| it.request == request);
        let left = found.and_then(|at| self.ward.waiting.remove(at));
        if let Some(it) = &left {
            self.hold_on_unserved(now, &it.booking);
        }
        left.is_some()
    }

    /// Tells whether a request is suspect and another copy of it is in flight.
    pub(super) fn must_wait(&self, now: Moment, fingerprint: Fingerprint) -> bool {
        !self.quarantine.is_empty()
            && 0 < self.quarantine.suspicion(now, fingerprint)
            && self.requests.values().any(|it| it.fingerprint == fingerprint)
    }

    fn next(&mut self, now: Moment, since: Moment, booking: &Booking) -> Next {
        let Booking { key, ref outline, ref extent, fingerprint, .. } = *booking;
        let pauses = self.subsets.pauses(now, key);
        if self.quarantine.is_empty() && !pauses {
            return Next::Go;
        }
        if let Some(circle) = self.circle_of(now, key, outline, extent) {
            return Next::Refuse(Refusal::Quarantined { circle });
        }
        let is_open = self.quarantine.judge(now, key, fingerprint) == Judgement::Open;
        match is_open || pauses || self.must_wait(now, fingerprint) {
            false => Next::Go,
            true if WAIT_MAX <= now.since(since) => Next::Refuse(suspected()),
            true => Next::Wait,
        }
    }

    /// Refuses a request that was to be sent, and gives back what it held.
    pub(super) fn dismiss(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: &Booking,
        refusal: Refusal,
        actions: &mut Vec<Action>,
    ) {
        self.hold_on_unserved(now, booking);
        actions.push(Action::Refuse { request, refusal });
    }

    /// Notes that a request was served whole, and tells operators if it was held by mistake.
    pub(super) fn acquit(&mut self, now: Moment, booking: &Booking) {
        let Booking { key, fingerprint, replica, .. } = *booking;
        if self.quarantine.clear(now, key, fingerprint) {
            self.notices.push(Notice::Acquitted { replica, key, fingerprint });
        }
    }
}

const fn suspected() -> Refusal {
    Refusal::Suspected { retry_after: WAIT_MAX }
}
