//! What operators order: freeze, pin, drain. Each says at once what it changes; the next round does
//! the rest. An assignment from before a restart comes the same way.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::domain::{Moment, Place, ReplicaId, SliceKey};
use crate::sharding::{Assignment, Slice};

use super::{RETURN_MAX, Subsets};

/// One order about subsets.
#[derive(Clone, Debug, PartialEq)]
pub enum Order {
    /// Leaves the assignment as it is, whatever load does. Dead replicas still have stand-ins.
    Freeze,
    Unfreeze,
    /// Gives a workload exactly these replicas; an empty list gives it back to the planner.
    Pin {
        workload: u32,
        replicas: Vec<ReplicaId>,
    },
    /// Moves everything off a replica at turn boundaries; it stays, but takes nothing new.
    Drain {
        replica: ReplicaId,
    },
    Undrain {
        replica: ReplicaId,
    },
    /// Says where a replica can be lost together with others; nowhere in particular without a zone.
    Zone {
        replica: ReplicaId,
        zone: Option<u32>,
    },
    /// Goes on from an assignment of an earlier run.
    Restore {
        assignment: Arc<Assignment>,
    },
}

/// What operators have ordered and not taken back. Places, not ids: a replica that leaves and returns
/// under the same name is still drained, pinned and in its zone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::brain) struct Orders {
    pub(super) drained: Vec<Place>,
    /// Of the replicas that are in one.
    pub(super) zones: BTreeMap<Place, u32>,
    pub(super) pinned: BTreeMap<u32, Vec<Place>>,
    pub(super) frozen: bool,
}

impl Orders {
    /// Notes an order; `place` says where replicas stand. An assignment is no order that stands.
    pub(in crate::brain) fn obey(
        &mut self,
        order: &Order,
        place: impl Fn(ReplicaId) -> Option<Place>,
    ) {
        match order {
            Order::Freeze => self.frozen = true,
            Order::Unfreeze => self.frozen = false,
            Order::Pin { workload, replicas } => {
                let places: Vec<Place> = replicas.iter().filter_map(|it| place(*it)).collect();
                if places.is_empty() {
                    self.pinned.remove(workload);
                } else {
                    self.pinned.insert(*workload, places);
                }
            }
            Order::Drain { replica } => {
                let place = place(*replica).filter(|it| !self.drained.contains(it));
                self.drained.extend(place);
            }
            Order::Undrain { replica } => {
                let place = place(*replica);
                self.drained.retain(|it| Some(*it) != place);
            }
            Order::Zone { replica, zone } => {
                if let (Some(place), Some(zone)) = (place(*replica), zone) {
                    self.zones.insert(place, *zone);
                } else if let Some(place) = place(*replica) {
                    self.zones.remove(&place);
                }
            }
            Order::Restore { .. } => {}
        }
    }

    /// Forgets the zone of a replica that is gone.
    pub(in crate::brain) fn on_left(&mut self, place: Place) {
        self.zones.remove(&place);
    }
}

impl Subsets {
    /// Carries out an order; `place` says where replicas stand.
    pub(crate) fn obey(
        &mut self,
        now: Moment,
        order: Order,
        place: impl Fn(ReplicaId) -> Option<Place>,
    ) {
        self.orders.obey(&order, place);
        if let Order::Restore { assignment } = order {
            self.restore(now, assignment);
        }
        self.stale = true;
    }

    /// Takes on all orders of an earlier brain.
    pub(in crate::brain) fn take_on(&mut self, orders: Orders) {
        self.orders = orders;
        self.stale = true;
    }

    fn restore(&mut self, now: Moment, assignment: Arc<Assignment>) {
        // Only what is newer: the state that is restored may be old.
        if self.assignment.generation() < assignment.generation() {
            for held in assignment.iter() {
                let workload = SliceKey(held.slice.low).workload();
                let size = u32::try_from(held.holders.len()).unwrap_or(u32::MAX);
                if held.slice == Slice::of_prefix(workload) {
                    self.sizer.seed(now, workload, size);
                }
            }
            self.assignment = assignment;
            self.expected = Some(now + RETURN_MAX);
        }
    }

    /// Goes on from what an earlier brain had planned and seen, and leaves it without that.
    pub(in crate::brain) fn inherit(&mut self, now: Moment, old: &mut Self) {
        self.restore(now, Arc::clone(&old.assignment));
        self.troubles = std::mem::take(&mut old.troubles);
        self.stale = true;
    }
}
