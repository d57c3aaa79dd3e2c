//! Whose bookings made a replica expensive: what each other router had booked there when a choice was made.

use std::collections::BTreeMap;

use super::Considered;
use crate::brain::Brain;
use crate::domain::{ReplicaId, RouterId};

/// What one other router had booked at a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BookedElsewhere {
    pub router: RouterId,
    pub in_flight: u32,
    pub work_ms: f64,
}

impl Brain {
    /// Writes down what was booked at replicas that were considered, and by which router.
    pub(super) fn note_elsewhere(&self, considered: &mut [Considered]) {
        let mut booked: BTreeMap<(ReplicaId, RouterId), (u32, f64)> = BTreeMap::new();
        for (router, it) in self.peers.bookings_by_router() {
            let (in_flight, work_ms) = booked.entry((it.replica, router)).or_default();
            *in_flight += 1;
            *work_ms += it.charge.work_ms();
        }
        for it in considered {
            let booked = booked.range((it.replica, RouterId(0))..=(it.replica, RouterId(u64::MAX)));
            it.elsewhere = booked
                .map(|((_, router), (in_flight, work_ms))| BookedElsewhere {
                    router: *router,
                    in_flight: *in_flight,
                    work_ms: *work_ms,
                })
                .collect();
            let own = self.fleet.get(it.replica);
            it.booked_ms = own.map_or(0.0, |it| it.ledger.load().work_ms());
        }
    }
}
