//! The less crowded of two replicas drawn by chance. Near to the best balance at a fixed price, and
//! routers with stale views do not all run to the same one.

use rand_pcg::Pcg64Mcg;

use super::least_requests::crowding;
use super::random::draw;
use super::{Ask, Candidate, Policy};

#[derive(Debug)]
pub(super) struct PowerOfTwo;

impl Policy for PowerOfTwo {
    fn pick(&mut self, _: &Ask<'_>, candidates: &[Candidate], chance: &mut Pcg64Mcg) -> usize {
        let first = draw(candidates, None, chance);
        if candidates.len() == 1 {
            return first;
        }
        let second = draw(candidates, Some(first), chance);
        if crowding(&candidates[second]) < crowding(&candidates[first]) { second } else { first }
    }
}
