//! A circle with several points per replica; a key belongs to the next point clockwise. It holds who
//! is in the pool, not who can take a request: what happens to the keys of one who cannot is the
//! very thing in which rules on a ring differ.

use crate::domain::{Place, ReplicaId};

use super::rendezvous::mix;

#[derive(Debug, Default)]
pub(super) struct Ring(Vec<(u64, ReplicaId)>);

impl Ring {
    pub(super) fn join(&mut self, replica: ReplicaId, place: Place, points: u64) {
        self.leave(replica);
        self.0.extend((0..points).map(|it| (mix(place.0 ^ mix(it)), replica)));
        self.0.sort_unstable();
    }

    pub(super) fn leave(&mut self, replica: ReplicaId) {
        self.0.retain(|(_, it)| *it != replica);
    }

    /// Names the owners of the points from the key on, once around.
    pub(super) fn walk(&self, key: u64) -> impl Iterator<Item = ReplicaId> + '_ {
        let start = self.0.partition_point(|(point, _)| *point < mix(key));
        self.0[start..].iter().chain(&self.0[..start]).map(|(_, replica)| *replica)
    }

    pub(super) fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<(u64, ReplicaId)>()
    }
}
