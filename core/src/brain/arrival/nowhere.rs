//! Where no replica takes a request: whether one is expected back so soon that it had better wait, and what it is
//! told if not.

use std::time::Duration;

use crate::domain::{Moment, Place};
use crate::fleet::{Reason, Replica, Standing};

use super::super::placement::keeper;
use super::super::{Brain, RETRY_AFTER, Refusal};

/// How long a request waits for a replica to come back, where none takes anything.
pub(super) const REPLICA_WAIT_MAX: Duration = Duration::from_secs(3);

/// Tells whether a replica is out because it does not take the router's key.
fn refuses_key(replica: &Replica) -> bool {
    matches!(replica.breaker.standing(), Standing::Out { reason: Reason::Unauthorized, .. })
}

impl Brain {
    /// Tells whether a replica that is out will be tried again so soon that a request had better wait for it.
    pub(super) fn expects_replica(&self, now: Moment) -> bool {
        self.settings.line.holds
            && self.fleet.iter().filter(|it| !it.leaving).any(|it| match it.breaker.standing() {
                // A key that is refused only an operator can mend.
                Standing::Out { reason: Reason::Unauthorized, .. }
                | Standing::Joining
                | Standing::Up
                | Standing::Suspect { .. } => false,
                Standing::Out { until, .. } => until <= now + REPLICA_WAIT_MAX,
                Standing::Trial { .. } => true,
            })
    }

    /// Tells whether the pool has no replica but such as start or go, and one is asked for when work waits.
    pub(super) fn awaits_start(&self) -> bool {
        let is_passing =
            |it: &Replica| it.leaving || it.is_joining() || self.placement.is_drained(it.place);
        self.settings.line.holds
            && self.admission.capacity.ready_in().is_some()
            && self.fleet.iter().all(is_passing)
    }

    /// Tells whether no replica is up, so that requests wait for a replica and not for their turn.
    pub(super) fn is_down(&self) -> bool {
        let mut standings = self.fleet.iter().map(|it| it.breaker.standing());
        !standings.any(|it| matches!(it, Standing::Up | Standing::Suspect { .. }))
    }

    /// Tells whether the key is why the pool has no replica: every one is out because it refuses the router's.
    fn is_denied(&self) -> bool {
        let mut staying = self.fleet.iter().filter(|it| !it.leaving).peekable();
        staying.peek().is_some() && staying.all(refuses_key)
    }

    /// Says why no replica takes a request. What a replica kept that is gone is gone too: engines keep it in
    /// their memory.
    pub(in crate::brain) fn no_replica_for(&self, now: Moment, kept_at: Option<Place>) -> Refusal {
        let Some(place) = kept_at else { return self.no_replica(now) };
        match keeper(&self.fleet, place).map(|it| it.breaker.standing().reason()) {
            None | Some(Some(Reason::Unreachable | Reason::WrongModel)) => Refusal::NotKept,
            Some(Some(Reason::Unauthorized)) => Refusal::Unauthorized,
            Some(_) => self.no_replica(now),
        }
    }

    /// Says when a replica may be there again, or that only an operator can bring one back.
    pub(super) fn no_replica(&self, now: Moment) -> Refusal {
        if let Some(ready_in) = self.admission.capacity.ready_in().filter(|_| self.awaits_start()) {
            return Refusal::NoReplica { retry_after: ready_in.max(RETRY_AFTER) };
        }
        if self.is_denied() {
            return Refusal::Unauthorized;
        }
        let soonest = self.fleet.iter().filter(|it| !it.leaving).filter_map(|it| {
            match it.breaker.standing() {
                Standing::Out { until, .. } => Some(until.since(now)),
                Standing::Joining
                | Standing::Up
                | Standing::Suspect { .. }
                | Standing::Trial { .. } => None,
            }
        });
        Refusal::NoReplica { retry_after: soonest.min().unwrap_or(RETRY_AFTER).max(RETRY_AFTER) }
    }
}
