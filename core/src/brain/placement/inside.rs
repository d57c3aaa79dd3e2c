//! Between the fleet and the subsets: what planning and selecting must know of replicas, and what is noted of
//! requests for the sizes of subsets.

use crate::domain::{Moment, ReplicaId, SliceKey, span_of_ms};
use crate::fleet::{Fleet, Replica, Standing};
use crate::policy::Ask;

use super::super::request::Booking;
use super::Placement;
use super::subsets::{Order, PlannedReplica, Selection, Sight};

impl Placement {
    /// Plans which workload may use which replicas, if it is time for that.
    pub(in crate::brain) fn plan_if_due(&mut self, now: Moment, fleet: &Fleet) {
        if self.subsets.is_due(now) {
            self.subsets.plan(now, fleet.iter().map(planned));
        }
    }

    /// Finds which replicas may take a request.
    pub(super) fn select(
        &mut self,
        ask: &Ask<'_>,
        fleet: &Fleet,
        tried: &[ReplicaId],
        into: &mut Selection,
    ) {
        let (now, key) = (ask.now, ask.key);
        if self.subsets.is_stale() {
            self.plan_if_due(now, fleet);
        }
        let look = |it| sight(fleet, now, it, tried);
        self.subsets.note_overdue(now, key, look);
        self.subsets.select(now, key, self.sessions.home(now, key), look, into);
    }

    /// Lists the replicas of a workload's subset, and those that it may spill to; `None` where the pool is not
    /// divided.
    pub(in crate::brain) fn reach(
        &mut self,
        now: Moment,
        key: SliceKey,
        fleet: &Fleet,
    ) -> Option<(Vec<ReplicaId>, Vec<ReplicaId>)> {
        let look = |it| sight(fleet, now, it, &[]);
        self.subsets.note_overdue(now, key, look);
        let mut selection = Selection::default();
        self.subsets.select(now, key, None, look, &mut selection);
        if !selection.is_divided {
            return None;
        }
        let allowed = |selection: &Selection| -> Vec<ReplicaId> {
            let allowed = |it: &&Replica| self.subsets.allows(selection, it.place);
            fleet.iter().filter(allowed).map(|it| it.id).collect()
        };
        let inside = allowed(&selection);
        let mut beyond = Vec::new();
        if self.subsets.spill(now, key, &mut selection) {
            beyond = allowed(&selection);
            beyond.retain(|it| !inside.contains(it));
        }
        Some((inside, beyond))
    }

    /// Tells how long a request may have to wait inside its subset before it may spill.
    pub(in crate::brain) fn spill_wait(
        &self,
        promise: Option<std::time::Duration>,
    ) -> std::time::Duration {
        self.subsets.spill_wait(promise)
    }

    pub(in crate::brain) fn obey(&mut self, now: Moment, order: Order, fleet: &Fleet) {
        self.subsets.obey(now, order, |it| fleet.get(it).map(|it| it.place));
    }

    /// Notes a request that is sent, for the sizes of subsets; once, however often it is tried.
    pub(in crate::brain) fn on_placed(&mut self, now: Moment, booking: &Booking, fleet: &Fleet) {
        let Some(it) = fleet.get(booking.replica) else { return };
        let expected = span_of_ms(booking.account.ttft_ms);
        let look = |it| sight(fleet, now, it, &[]);
        self.subsets.on_placed(now, booking.key, it.place, expected, look);
        if !booking.past.tried.is_empty() {
            return;
        }
        let demand_mu = it.hardware.mu(booking.account.charge.work_ms());
        let output = booking.outline.output_tokens.unwrap_or(0);
        let tokens = booking.outline.prompt_tokens.saturating_add(output);
        self.subsets.on_sent(now, booking.key, demand_mu, tokens);
    }

    /// Notes the first token of an answer that began in time, for what it says of its workload.
    pub(in crate::brain) fn on_answering(&mut self, booking: &Booking, fleet: &Fleet) {
        if let Some(it) = fleet.get(booking.replica).filter(|_| booking.began_in_time()) {
            self.subsets.on_answering(booking.key, it.place);
        }
    }

    /// Notes for its workload that a request lost its replica. `is_death` says that the replica is gone;
    /// else that is not known yet, unless the replica is out.
    pub(in crate::brain) fn on_lost(
        &mut self,
        now: Moment,
        booking: &Booking,
        is_death: bool,
        fleet: &Fleet,
    ) {
        let (replica, sent_at) = (booking.replica, booking.account.sent_at);
        self.subsets.on_lost(now, booking.key, Some((replica, sent_at)));
        if is_death || fleet.get(replica).is_some_and(is_out) {
            self.subsets.on_gone(replica);
        }
    }
}

/// Looks at a replica for a request that was tried elsewhere already.
fn sight(fleet: &Fleet, now: Moment, replica: ReplicaId, tried: &[ReplicaId]) -> Option<Sight> {
    let it = fleet.get(replica)?;
    let takes = !tried.contains(&replica) && it.admits(now);
    Some(Sight { takes, out: is_out(it), heard_at: it.watch.hang.quiet_since() })
}

fn planned(replica: &Replica) -> PlannedReplica {
    PlannedReplica {
        id: replica.id,
        place: replica.place,
        capacity_mu_per_min: replica.weight * replica.capacity_mu_per_min(),
        closed: replica.leaving || replica.weight <= 0.0,
        out: is_out(replica),
    }
}

const fn is_out(replica: &Replica) -> bool {
    matches!(replica.breaker.standing(), Standing::Out { .. })
}
