//! In turn, by weight: each replica has a pass that grows by 1/weight when it is chosen, and the
//! lowest pass is next (stride scheduling). With equal weights this is plain round robin.

use std::collections::BTreeMap;

use rand_pcg::Pcg64Mcg;

use crate::domain::ReplicaId;

use super::{Ask, Candidate, Policy, lowest};

#[derive(Debug, Default)]
pub(super) struct RoundRobin {
    passes: BTreeMap<ReplicaId, f64>,
    /// The pass of the last choice. A new replica starts here, not at zero, or it would be flooded.
    now: f64,
}

impl Policy for RoundRobin {
    fn pick(&mut self, _: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        // Replicas that left long ago are forgotten when they are most of what is remembered.
        if 2 * candidates.len() + 16 < self.passes.len() {
            self.passes.retain(|id, _| candidates.iter().any(|it| it.id == *id));
        }
        let chosen = lowest(candidates, |it| self.pass(it.id));
        let it = &candidates[chosen];
        self.now = self.pass(it.id);
        self.passes.insert(it.id, self.now + 1.0 / it.weight);
        chosen
    }
}

impl RoundRobin {
    fn pass(&self, id: ReplicaId) -> f64 {
        // A replica that was away does not catch up on what it missed.
        self.passes.get(&id).copied().unwrap_or(self.now).max(self.now)
    }
}
