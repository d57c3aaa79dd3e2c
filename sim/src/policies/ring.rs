//! A circle with several points per replica; a key belongs to the next point clockwise. It holds
//! the replicas of the pool, not only those that can take a request: what happens to the keys of
//! one that cannot is the very thing in which rules on a ring differ.

use std::fmt::Debug;
use std::marker::PhantomData;

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{Place, ReplicaId};

use super::{Ask, Candidate, Policy};
use cleave_core::policy::mix;

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

/// A rule on a ring, with `POINTS` points for each replica.
pub(super) trait RingRule: Debug + Send {
    const POINTS: u64;

    fn pick(ring: &Ring, ask: &Ask<'_>, candidates: &[Candidate]) -> usize;
}

/// The policy of a rule on a ring.
#[derive(Debug)]
pub(super) struct OnRing<R> {
    ring: Ring,
    rule: PhantomData<R>,
}

impl<R> Default for OnRing<R> {
    fn default() -> Self {
        Self { ring: Ring::default(), rule: PhantomData }
    }
}

impl<R: RingRule> Policy for OnRing<R> {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        R::pick(&self.ring, ask, candidates)
    }

    fn on_joined(&mut self, replica: ReplicaId, place: Place) {
        self.ring.join(replica, place, R::POINTS);
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.ring.leave(replica);
    }

    fn bytes(&self) -> usize {
        self.ring.bytes()
    }
}
