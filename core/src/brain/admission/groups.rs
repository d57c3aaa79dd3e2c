//! Which requests wait, how long already, and what for: the line in groups of class, tenant and cause, for
//! operators. Nothing of it is kept: it is worked out when it is asked for, in one pass over the line.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::domain::Moment;
use crate::fleet::Replica;
use crate::queue::{ClassId, Lane, Tenant, Work};

use super::lanes::LaneKey;
use super::{Admission, Cause, Knees};

/// The requests of one class and tenant that wait for the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingGroup {
    pub class: ClassId,
    pub tenant: Tenant,
    pub cause: Cause,
    pub count: usize,
    pub work: Work,
    /// How long the one that came first has waited.
    pub oldest: Duration,
}

impl Admission {
    /// Tells whether some request waits although it could go.
    pub(in crate::brain) fn holds_in_vain<'a>(
        &self,
        now: Moment,
        open: impl Iterator<Item = (&'a Replica, f64)>,
    ) -> bool {
        if self.waiting.line().is_empty() {
            return false;
        }
        let mut fills = Vec::new();
        self.fill_all(now, open, &mut fills);
        if self.takes_turns() {
            self.elsewhere.turns.close(&mut fills);
        }
        let scene = self.scene(&fills);
        self.waiting.line().lanes().any(|it| scene.is_open(it.into()))
    }

    /// Groups the line, the largest group first; `open` are the replicas that may take something.
    pub(in crate::brain) fn groups<'a>(
        &self,
        now: Moment,
        open: impl Iterator<Item = (&'a Replica, f64)>,
    ) -> Vec<WaitingGroup> {
        let mut fills = Vec::new();
        self.fill_all(now, open, &mut fills);
        let scene = self.scene(&fills);
        let cause_of = |lane: Lane| {
            let lane = LaneKey::from(lane);
            match lane.workload.and_then(|it| self.reaches.get(it)) {
                Some(reach) => {
                    let spill_wait_ms = self.reaches.spill_wait_ms(lane.class.into());
                    scene.cause(lane, reach.fills(&fills, spill_wait_ms))
                }
                None => scene.cause(lane, fills.iter()),
            }
        };
        let causes: BTreeMap<Lane, Cause> =
            self.waiting.line().lanes().map(|it| (it, cause_of(it))).collect();
        let mut groups = BTreeMap::new();
        for (request, parked) in self.waiting.requests() {
            let Some(ticket) = self.waiting.line().get(request) else { continue };
            let cause = causes.get(&ticket.lane).copied().unwrap_or(Cause::Turn);
            let (class, tenant) = (ticket.class, ticket.tenant);
            let group = groups.entry((class, tenant, cause.as_str())).or_insert(WaitingGroup {
                class,
                tenant,
                cause,
                count: 0,
                work: Work::ZERO,
                oldest: Duration::ZERO,
            });
            group.count += 1;
            group.work += ticket.work;
            group.oldest = group.oldest.max(now.since(parked.arrived_at));
        }
        let mut groups: Vec<WaitingGroup> = groups.into_values().collect();
        groups.sort_by_key(|it| std::cmp::Reverse(it.count));
        groups
    }

    /// Says how full a replica is; from 1 on it is past its knee.
    pub(in crate::brain) fn fill(&self, now: Moment, replica: &Replica) -> f64 {
        Knees::fill(&self.knees, now, replica)
    }
}
