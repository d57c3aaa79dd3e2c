//! What operators order: freeze, pin, drain. Each says at once what it changes; the next round does
//! the rest. An assignment from before a restart comes the same way.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::{SharedOrder, Stamp};
use crate::domain::{Moment, Place, ReplicaId, RouterId, SliceKey};
use crate::sharding::{Assignment, Slice};

use super::Subsets;

/// How many things orders of other routers may be about.
const SUBJECTS_MAX: usize = 1 << 16;

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
    /// Forgets that a replica was drained which is gone for good.
    Forget {
        place: Place,
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
    /// When each order that routers share was given.
    stamps: BTreeMap<Subject, Stamp>,
}

/// What an order is about: a later order about it replaces an earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Subject {
    Freeze,
    Pin(u32),
    Drain(Place),
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
            Order::Forget { place } => self.drained.retain(|it| it != place),
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

    /// Says what an order is to other routers, and stamps it; `None` for one that concerns this router alone.
    pub(in crate::brain) fn share(
        &mut self,
        order: &Order,
        own: RouterId,
        place: impl Fn(ReplicaId) -> Option<Place>,
    ) -> Option<(SharedOrder, Stamp)> {
        let order = match order {
            Order::Freeze => SharedOrder::Freeze { is_on: true },
            Order::Unfreeze => SharedOrder::Freeze { is_on: false },
            Order::Pin { workload, replicas } => SharedOrder::Pin {
                workload: *workload,
                replicas: replicas.iter().filter_map(|it| place(*it)).collect(),
            },
            Order::Drain { replica } => {
                SharedOrder::Drain { replica: place(*replica)?, is_on: true }
            }
            Order::Undrain { replica } => {
                SharedOrder::Drain { replica: place(*replica)?, is_on: false }
            }
            Order::Forget { place } => SharedOrder::Drain { replica: *place, is_on: false },
            Order::Zone { .. } | Order::Restore { .. } => return None,
        };
        // One that holds already is given again to replicas that return; later orders of other routers stay later.
        if self.stamps.contains_key(&subject(&order)) && self.holds(&order) {
            return None;
        }
        let number = self.stamps.values().map(|it| it.number).max().unwrap_or(0);
        let stamp = Stamp { number: number.saturating_add(1), router: own };
        self.stamps.insert(subject(&order), stamp);
        Some((order, stamp))
    }

    /// Tells whether an order would change nothing.
    fn holds(&self, order: &SharedOrder) -> bool {
        match order {
            SharedOrder::Freeze { is_on } => self.frozen == *is_on,
            SharedOrder::Pin { workload, replicas } => {
                self.pinned.get(workload).map_or(&[][..], Vec::as_slice) == replicas
            }
            SharedOrder::Drain { replica, is_on } => self.drained.contains(replica) == *is_on,
        }
    }

    /// Obeys an order of another router, unless a later one about the same holds; tells whether it does.
    pub(in crate::brain) fn obey_shared(&mut self, order: &SharedOrder, stamp: Stamp) -> bool {
        let subject = subject(order);
        let known = self.stamps.get(&subject);
        if known.is_some_and(|it| stamp <= *it) || SUBJECTS_MAX <= self.stamps.len() {
            return false;
        }
        self.stamps.insert(subject, stamp);
        match order {
            SharedOrder::Freeze { is_on } => self.frozen = *is_on,
            SharedOrder::Pin { workload, replicas } if replicas.is_empty() => {
                self.pinned.remove(workload);
            }
            SharedOrder::Pin { workload, replicas } => {
                self.pinned.insert(*workload, replicas.clone());
            }
            SharedOrder::Drain { replica, is_on } => {
                self.drained.retain(|it| it != replica);
                self.drained.extend(is_on.then_some(*replica));
            }
        }
        true
    }

    /// Lists all orders that routers share, with their stamps.
    pub(in crate::brain) fn shared(&self) -> impl Iterator<Item = (SharedOrder, Stamp)> + '_ {
        self.stamps.iter().map(|(subject, stamp)| {
            let order = match subject {
                Subject::Freeze => SharedOrder::Freeze { is_on: self.frozen },
                Subject::Pin(workload) => SharedOrder::Pin {
                    workload: *workload,
                    replicas: self.pinned.get(workload).cloned().unwrap_or_default(),
                },
                Subject::Drain(replica) => {
                    SharedOrder::Drain { replica: *replica, is_on: self.drained.contains(replica) }
                }
            };
            (order, *stamp)
        })
    }

    /// Forgets the zone of a replica that is gone.
    pub(in crate::brain) fn on_left(&mut self, place: Place) {
        self.zones.remove(&place);
    }
}

const fn subject(order: &SharedOrder) -> Subject {
    match order {
        SharedOrder::Freeze { .. } => Subject::Freeze,
        SharedOrder::Pin { workload, .. } => Subject::Pin(*workload),
        SharedOrder::Drain { replica, .. } => Subject::Drain(*replica),
    }
}

impl Subsets {
    /// Says what an order is to other routers; see [`Orders::share`].
    pub(in crate::brain) fn share(
        &mut self,
        order: &Order,
        own: RouterId,
        place: impl Fn(ReplicaId) -> Option<Place>,
    ) -> Option<(SharedOrder, Stamp)> {
        self.orders.share(order, own, place)
    }

    pub(in crate::brain) fn obey_shared(&mut self, order: &SharedOrder, stamp: Stamp) {
        if self.orders.obey_shared(order, stamp) {
            self.rounds.touch();
        }
    }

    pub(in crate::brain) const fn orders(&self) -> &Orders {
        &self.orders
    }

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
        self.rounds.touch();
    }

    /// Takes on all orders of an earlier brain.
    pub(in crate::brain) fn take_on(&mut self, orders: Orders) {
        self.orders = orders;
        self.rounds.touch();
    }

    fn restore(&mut self, now: Moment, assignment: Arc<Assignment>) {
        // Only what is newer: the state that is restored may be old.
        if self.assignment.generation() < assignment.generation() {
            for held in assignment.iter() {
                let workload = SliceKey(held.slice.low).workload();
                let size = u32::try_from(held.holders.len()).unwrap_or(u32::MAX);
                if held.slice == Slice::of_prefix(workload) {
                    self.demand.seed(now, workload, size);
                }
            }
            self.assignment = assignment;
            self.planned.expect_back(now);
        }
    }

    /// Goes by an assignment that another router planned or passed on, if it is newer; tells whether it is.
    pub(in crate::brain) fn adopt(&mut self, now: Moment, assignment: &Arc<Assignment>) -> bool {
        let is_newer = self.assignment.generation() < assignment.generation();
        if is_newer {
            let told = Assignment::clone(assignment).settled_like(&self.assignment, now);
            self.restore(now, Arc::new(told));
            self.rounds.touch();
        }
        is_newer
    }

    /// Notes that this router is one of several; another one may plan.
    pub(in crate::brain) const fn join_others(&mut self, own: RouterId) {
        (self.planner, self.leads) = (Some(own.0), false);
    }

    /// Notes whether this router plans for all.
    pub(in crate::brain) const fn lead(&mut self, leads: bool) {
        if self.leads != leads {
            self.rounds.touch();
        }
        self.leads = leads;
    }

    pub(in crate::brain) const fn leads(&self) -> bool {
        self.leads
    }

    pub(in crate::brain) const fn assignment(&self) -> &Arc<Assignment> {
        &self.assignment
    }

    /// Goes on from what an earlier brain had planned and seen, and leaves it without that.
    pub(in crate::brain) fn inherit(&mut self, now: Moment, old: &mut Self) {
        self.restore(now, Arc::clone(&old.assignment));
        self.troubles = std::mem::take(&mut old.troubles);
        self.rounds.touch();
    }
}
