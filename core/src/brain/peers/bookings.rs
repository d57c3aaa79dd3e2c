//! What one other router has in flight. A booking is opened, corrected and closed as its router tells, and stands in the
//! ledger of its replica meanwhile. A router that is lost cannot tell of ends, so its bookings are dropped when they
//! should be over.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, ReplicaId, RequestId};
use crate::fleet::{Fleet, Load};
use crate::queue::{Tenant, Work};

/// What one router may have in flight.
const BOOKINGS_MAX: usize = 1 << 16;
/// A request of a lost router is over after twice its expected time and this, from when it was sent.
const MARGIN: Duration = Duration::from_secs(5);
/// Whatever it should take, nothing of a lost router is held longer than this: engines end what a dead one had, and say
/// what still runs of one that was cut off.
const LOST_MAX: Duration = Duration::from_secs(60);

/// A request of another router.
#[derive(Clone, Copy, Debug)]
pub(in crate::brain) struct HeardBooking {
    pub(in crate::brain) replica: ReplicaId,
    pub(in crate::brain) charge: Load,
    /// Whether its prompt is read.
    pub(in crate::brain) is_read: bool,
    pub(in crate::brain) heard_at: Moment,
    /// How long it should take.
    pub(in crate::brain) expected: Duration,
    pub(in crate::brain) tenant: Tenant,
    /// What its tenant's contract was charged with.
    pub(in crate::brain) spent: (Work, u64),
}

impl HeardBooking {
    /// Tells whether it was over this long ago, as far as can be told of a router that is lost since then.
    fn is_over(&self, now: Moment, lost_at: Moment, slack: Duration) -> bool {
        let should_take = 2 * self.expected + MARGIN;
        should_take + slack < now.since(self.heard_at) || LOST_MAX + slack < now.since(lost_at)
    }
}

/// The books of one other router.
#[derive(Debug, Default)]
pub(in crate::brain) struct RouterBooks {
    bookings: IndexMap<RequestId, HeardBooking, FxBuildHasher>,
    /// Since when it is lost.
    pub(super) lost_at: Option<Moment>,
    /// Whether it tells what it was asked for; of one that is older, what it sends is counted.
    pub(in crate::brain) tells_demand: bool,
}

impl RouterBooks {
    pub(in crate::brain) fn len(&self) -> usize {
        self.bookings.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HeardBooking> {
        self.bookings.values()
    }

    pub(super) fn numbered(&self) -> impl Iterator<Item = (RequestId, &HeardBooking)> {
        self.bookings.iter().map(|(request, it)| (*request, it))
    }

    /// Opens a booking; one of the same number is closed first.
    pub(in crate::brain) fn open(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        request: RequestId,
        booking: HeardBooking,
    ) {
        self.close(now, fleet, request);
        if BOOKINGS_MAX <= self.bookings.len() {
            return;
        }
        if let Some(it) = fleet.get_mut(booking.replica) {
            it.on_sent_elsewhere(now, booking.charge);
            self.bookings.insert(request, booking);
        }
    }

    pub(in crate::brain) fn begin(&mut self, now: Moment, fleet: &mut Fleet, request: RequestId) {
        let Some(booking) = self.bookings.get_mut(&request).filter(|it| !it.is_read) else {
            return;
        };
        booking.is_read = true;
        if let Some(it) = fleet.get_mut(booking.replica) {
            it.ledger.begin_elsewhere(now, &mut booking.charge);
        }
    }

    /// Puts what is left of an answer in the place of what was expected.
    pub(in crate::brain) fn progress(&mut self, fleet: &mut Fleet, request: RequestId, left: Load) {
        let Some(booking) = self.bookings.get_mut(&request) else { return };
        let right = Load { prefill_us: booking.charge.prefill_us, ..left.bounded() };
        if let Some(it) = fleet.get_mut(booking.replica) {
            it.ledger.correct_elsewhere(&mut booking.charge, right);
        }
    }

    pub(in crate::brain) fn close(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        request: RequestId,
    ) -> Option<HeardBooking> {
        let booking = self.bookings.swap_remove(&request)?;
        release(now, fleet, &booking);
        Some(booking)
    }

    /// Closes everything.
    pub(in crate::brain) fn clear(&mut self, now: Moment, fleet: &mut Fleet) {
        for (_, booking) in self.bookings.drain(..) {
            release(now, fleet, &booking);
        }
    }

    /// Tells whether the router is lost for this long and something is left that should have been over this long ago.
    pub(super) fn is_overdue(&self, now: Moment, slack: Duration) -> bool {
        let Some(lost_at) = self.lost_at.filter(|it| slack < now.since(*it)) else { return false };
        self.bookings.values().any(|it| it.is_over(now, lost_at, slack))
    }

    /// Drops what should be over by now, if the router is lost; tells whether nothing is left of it then.
    pub(super) fn expire(&mut self, now: Moment, fleet: &mut Fleet) -> bool {
        let Some(lost_at) = self.lost_at else { return false };
        self.bookings.retain(|_, it| {
            let is_over = it.is_over(now, lost_at, Duration::ZERO);
            if is_over {
                release(now, fleet, it);
            }
            !is_over
        });
        self.bookings.is_empty()
    }
}

fn release(now: Moment, fleet: &mut Fleet, booking: &HeardBooking) {
    if let Some(it) = fleet.get_mut(booking.replica) {
        it.ledger.close_elsewhere(now, booking.charge, booking.is_read);
    }
}
