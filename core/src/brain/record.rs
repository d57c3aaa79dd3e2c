//! What a pool's brain was told that stays true: its replicas, the orders of operators, the contracts of
//! tenants. It is noted before the brain sees it, so it is whole even if the brain panics at that very
//! event, and a new brain can be built from it. The old brain cannot be asked for it: whatever it was
//! changing when it panicked may be missing there.
//!
//! Requests are not noted here. Those that wait are refused when their brain is lost; those at a replica
//! go on without it.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::News;
use crate::cost::Hardware;
use crate::domain::{Moment, Place, ReplicaId};
use crate::queue::{Limits, Tenant};

use super::placement::Orders;
use super::{Action, Brain, Event, Notices, Settings};

/// The standing facts of one pool.
#[derive(Clone, Debug, Default)]
pub struct Record {
    replicas: BTreeMap<ReplicaId, Known>,
    orders: Orders,
    limits: Vec<(Tenant, Limits)>,
    leads: Option<bool>,
}

#[derive(Clone, Debug)]
struct Known {
    name: String,
    weight: f64,
    hardware: Arc<Hardware>,
    leaving: bool,
}

/// What a new brain takes over from the one that panicked. A panic can come from what was learned, so the
/// less, the safer; less is taken over each time that panics repeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    /// The health of replicas, what tenants used, what is in quarantine, the homes of sessions and the
    /// assignment.
    All,
    /// The health of replicas and what tenants used.
    Books,
    Nothing,
}

impl Record {
    /// Notes what stays true of an event. For most events that is nothing.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::Joined { replica, name, weight, hardware } => {
                let (name, hardware) = (name.clone(), Arc::clone(hardware));
                let known = Known { name, weight: *weight, hardware, leaving: false };
                self.replicas.insert(*replica, known);
            }
            Event::Weighed { replica, weight } => {
                self.change(*replica, |it| it.weight = *weight);
            }
            Event::Classed { replica, hardware } => {
                self.change(*replica, |it| it.hardware = Arc::clone(hardware));
            }
            Event::Leaving { replica } => self.change(*replica, |it| it.leaving = true),
            Event::Contracted { limits } => self.limits.clone_from(limits),
            Event::Ordered(order) => {
                let replicas = &self.replicas;
                self.orders.obey(order, |it| replicas.get(&it).map(|it| Place::of(&it.name)));
            }
            Event::Elected { leads } => self.leads = Some(*leads),
            Event::Heard { news, .. } => {
                for it in news {
                    if let News::Ordered { order, stamp } = it {
                        self.orders.obey_shared(order, *stamp);
                    }
                }
            }
            Event::Arrived { .. }
            | Event::Failed { .. }
            | Event::Answering { .. }
            | Event::Streamed { .. }
            | Event::Ended { .. }
            | Event::Probed { .. }
            | Event::Recalled { .. }
            | Event::Reported { .. }
            | Event::Sign { .. }
            | Event::Unawaited { .. }
            | Event::Restarted { .. }
            | Event::Scaling { .. }
            | Event::Parted { .. } => {}
        }
    }

    /// Notes that a replica which was leaving is gone.
    pub fn on_released(&mut self, replica: ReplicaId) {
        if let Some(gone) = self.replicas.remove(&replica) {
            let place = Place::of(&gone.name);
            let is_back = self.replicas.values().any(|it| Place::of(&it.name) == place);
            if !is_back {
                self.orders.on_left(place);
            }
        }
    }

    fn change(&mut self, replica: ReplicaId, change: impl FnOnce(&mut Known)) {
        if let Some(it) = self.replicas.get_mut(&replica) {
            change(it);
        }
    }
}

impl Brain {
    /// Builds a brain from the record, in place of `old`, which panicked. It knows no request. Replicas
    /// that were leaving are released.
    pub fn rebuild(
        now: Moment,
        settings: Settings,
        record: &Record,
        (old, inherit): (&mut Self, Inherit),
        actions: &mut Vec<Action>,
    ) -> Self {
        let mut new = Self::new(settings);
        for (id, known) in &record.replicas {
            let (name, hardware) = (known.name.clone(), Arc::clone(&known.hardware));
            new.join(*id, name, known.weight, hardware);
        }
        match inherit {
            Inherit::All => {
                new.inherit_books(now, old);
                new.inherit_rest(now, old);
            }
            Inherit::Books => new.inherit_books(now, old),
            Inherit::Nothing => {}
        }
        new.placement.take_on(record.orders.clone());
        record.leads.into_iter().for_each(|it| new.placement.lead(it));
        new.admission.on_contracted(now, record.limits.iter().copied());
        new.measure();
        for (id, _) in record.replicas.iter().filter(|it| it.1.leaving) {
            new.change(*id, |it| it.leaving = true);
            new.release_if_done(*id, actions);
        }
        new.tell_forgot();
        // Operators know these replicas, so their joining is not reported again.
        new.notices = Notices::default();
        new
    }

    fn inherit_books(&mut self, now: Moment, old: &mut Self) {
        for known in old.fleet.iter() {
            if let Some(it) = self.fleet.get_mut(known.id) {
                it.breaker = known.breaker.clone();
                // The request that was to show whether it is back is not known here.
                it.breaker.on_trial_abandoned(now);
            }
        }
        self.admission.inherit(&mut old.admission);
    }

    fn inherit_rest(&mut self, now: Moment, old: &mut Self) {
        self.poison.inherit(&mut old.poison, self.settings.quarantine);
        self.placement.inherit(now, &mut old.placement);
        self.recall(old.learning.learned());
    }
}
