//! The replica with the fewest requests in flight for its weight.

use rand_pcg::Pcg64Mcg;

use super::{Ask, Candidate, Policy, lowest};

#[derive(Debug)]
pub(super) struct LeastRequests;

impl Policy for LeastRequests {
    fn pick(&mut self, _: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        lowest(candidates, crowding)
    }
}

/// Measures how full a replica would be with one request more.
pub(super) fn crowding(candidate: &Candidate) -> f64 {
    (f64::from(candidate.in_flight) + 1.0) / candidate.weight
}
