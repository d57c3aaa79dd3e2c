//! The replicas that may take one request, gathered once and handed on: to admission, which says where there is
//! room, to the policy, which chooses, and to the explanation of the choice.

use crate::domain::{Moment, ReplicaId, whole};
use crate::fleet::{Fleet, Replica};
use crate::policy::{Candidate, LoadModel, Terms};

use super::subsets::Selection;

/// Candidates for one request. Its buffers are used again, so that no decision allocates.
#[derive(Debug, Default)]
pub(in crate::brain) struct Candidates {
    pub(super) list: Vec<Candidate>,
    /// How the policy weighs them, once it was asked for that; in order of id, and perhaps of more than are
    /// left in the list.
    pub(super) terms: Vec<Terms>,
    /// Which replicas the workload may use.
    pub(super) selection: Selection,
    /// The request is bound to the only one: it keeps what the request names by an id, or it takes no new
    /// sessions and keeps those it has.
    pub(super) is_bound: bool,
}

impl Candidates {
    pub(in crate::brain) fn ids(&self) -> impl Iterator<Item = ReplicaId> + Clone + '_ {
        self.list.iter().map(|it| it.id)
    }

    /// Lists the replicas with how long the next prompt would wait at each for what is booked.
    pub(in crate::brain) fn waits<'a>(
        &'a self,
        fleet: &'a Fleet,
    ) -> impl Iterator<Item = (&'a Replica, f64)> {
        // Both are in order of id.
        let mut replicas = fleet.iter();
        self.list.iter().filter_map(move |it| {
            Some((replicas.find(|replica| replica.id == it.id)?, it.load.booked_wait_ms))
        })
    }

    pub(in crate::brain) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub(in crate::brain) const fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Those that were chosen among; none where the request was bound to one.
    pub(in crate::brain) fn compared(&self) -> &[Candidate] {
        if self.is_bound { &[] } else { &self.list }
    }

    /// Finds the first-token time by which the policy weighs a replica, if it was asked.
    pub(super) fn ttft_ms(&self, replica: ReplicaId) -> Option<f64> {
        Some(self.terms_of(replica)?.ttft_ms)
    }

    /// Finds the price of a replica, if the policy was asked.
    pub(super) fn price_ms(&self, replica: ReplicaId) -> Option<f64> {
        Some(self.terms_of(replica)?.price_ms)
    }

    fn terms_of(&self, replica: ReplicaId) -> Option<&Terms> {
        let at = self.terms.binary_search_by_key(&replica, |it| it.replica).ok()?;
        Some(&self.terms[at])
    }
}

/// Shows a policy what it may know of a replica. `strangers_usual` is how many requests an engine usually
/// has that no router knows of.
#[inline]
pub(in crate::brain) fn candidate(
    replica: &Replica,
    now: Moment,
    strangers_usual: f64,
) -> Candidate {
    let (pace, booked) = (replica.pace.factor(), replica.ledger.load());
    let strangers = replica.reported.reckon(now, replica.booked(), strangers_usual);
    let wait = replica.wait(now, &strangers);
    let (_, answering) = replica.ledger.counts();
    Candidate {
        id: replica.id,
        place: replica.place,
        weight: replica.weight,
        in_flight: replica.booked(),
        report: replica.reported.report(),
        load: LoadModel {
            wait_ms: wait.booked_ms + wait.claimed_ms,
            booked_wait_ms: wait.booked_ms,
            running: f64::from(answering) + strangers.running,
            reading_share: replica.ledger.reading_share(now, pace),
            kv_tokens: booked.kv_tokens + whole(strangers.kv_tokens.floor()),
            pace,
            step: replica.hardware.step,
            cost: replica.hardware.cost,
            overhead_ms: replica.hardware.overhead_ms,
        },
    }
}
