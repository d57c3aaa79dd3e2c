//! The replicas that are planned for: those that are there, how long which of them have been out, and for a while after
//! a start those that were there before.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::{Moment, Place, ReplicaId};
use crate::sharding::{Assignment, FleetMember};

use super::orders::Orders;

/// How long a replica may be out before its slices are given to others for good.
const OUT_MAX: Duration = Duration::from_secs(60);
/// How long after a start replicas may be missing that an assignment from before names.
const RETURN_MAX: Duration = Duration::from_secs(30);

/// What the planner is told of one replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::brain::placement) struct PlannedReplica {
    pub(in crate::brain::placement) id: ReplicaId,
    pub(in crate::brain::placement) place: Place,
    pub(in crate::brain::placement) capacity_mu_per_min: f64,
    /// It takes nothing new.
    pub(in crate::brain::placement) closed: bool,
    pub(in crate::brain::placement) out: bool,
}

/// The replicas that are planned for.
#[derive(Debug, Default)]
pub(super) struct Planned {
    /// Those that are there, by place.
    replicas: Vec<PlannedReplica>,
    /// How many there are, those included that are expected back after a start.
    count: usize,
    /// Since when a replica has been out, as far as planning saw it.
    out_since: BTreeMap<Place, Moment>,
    /// Replicas that an assignment from before names, until when they are waited for.
    expected: Option<Moment>,
}

impl Planned {
    /// Takes in which replicas are there.
    pub(super) fn renew(&mut self, replicas: impl Iterator<Item = PlannedReplica>) {
        self.replicas.clear();
        self.replicas.extend(replicas);
        self.replicas.sort_unstable_by_key(|it| it.place);
    }

    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = &PlannedReplica> {
        self.replicas.iter()
    }

    pub(super) fn at(&self, place: Place) -> Option<&PlannedReplica> {
        let found = self.replicas.binary_search_by_key(&place, |it| it.place).ok()?;
        Some(&self.replicas[found])
    }

    pub(super) const fn count(&self) -> usize {
        self.count
    }

    /// Waits for the replicas that an assignment from before names.
    pub(super) fn expect_back(&mut self, now: Moment) {
        self.expected = Some(now + RETURN_MAX);
    }

    /// Lists which replicas to plan for: those that are there and not out for long, and for a while after a
    /// start those that were there before.
    pub(super) fn members(
        &mut self,
        now: Moment,
        orders: &Orders,
        before: &Assignment,
    ) -> Vec<FleetMember> {
        let out: Vec<Place> = self.replicas.iter().filter(|it| it.out).map(|it| it.place).collect();
        self.out_since.retain(|place, _| out.contains(place));
        for place in out {
            self.out_since.entry(place).or_insert(now);
        }
        let present = self.replicas.iter().filter(|it| !self.is_lost(now, it.place));
        let mut members: Vec<FleetMember> = present
            .map(|it| FleetMember {
                draining: it.closed || orders.drained.contains(&it.place),
                zone: orders.zones.get(&it.place).copied().unwrap_or(0),
                ..FleetMember::new(it.place, it.capacity_mu_per_min / 60.0)
            })
            .collect();
        if self.expected.is_some_and(|until| now < until) {
            let known = |place: &Place| self.replicas.iter().any(|it| it.place == *place);
            let usual = members.first().map_or(1.0, |it| it.capacity);
            let absent = before.all_holders().into_iter().filter(|it| !known(it));
            members.extend(absent.map(|it| FleetMember::new(it, usual)));
        } else {
            self.expected = None;
        }
        self.count = self.replicas.len().max(members.len());
        members
    }

    /// Tells whether a replica has been out for [`OUT_MAX`]: its slices were given to others.
    pub(super) fn is_lost(&self, now: Moment, place: Place) -> bool {
        self.out_since.get(&place).is_some_and(|since| OUT_MAX <= now.since(*since))
    }
}
