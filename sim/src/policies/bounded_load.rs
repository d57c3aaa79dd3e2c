//! Consistent hashing with bounded loads, as `KubeAI` runs it: 256 points a replica, and a key goes to
//! the next one clockwise that has no more than 1.25 times the mean in flight. `KubeAI` hashes the
//! first 100 characters of a prompt; here the key is the session's.

use super::ring::{Ring, RingRule};
use super::{Ask, Candidate, position};
use cleave_core::policy::in_flight_total;

const LOAD_FACTOR: f64 = 1.25;

#[derive(Debug)]
pub(super) struct BoundedLoad;

impl RingRule for BoundedLoad {
    const POINTS: u64 = 256;

    fn pick(ring: &Ring, ask: &Ask<'_>, candidates: &[Candidate]) -> usize {
        let count = candidates.iter().map(|_| 1.0).sum::<f64>();
        let bound = (LOAD_FACTOR * (in_flight_total(candidates) + 1.0) / count).ceil();
        let fits = |it: &usize| f64::from(candidates[*it].in_flight) + 1.0 <= bound;
        let clockwise = ring.walk(ask.key.0).filter_map(|it| position(candidates, it));
        clockwise.into_iter().find(fits).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::BOUNDED_LOAD;
    use super::super::bench::{Bench, prompt};
    use super::*;
    use cleave_core::domain::ReplicaId;

    #[test]
    fn a_session_stays_until_its_home_is_a_quarter_above_the_mean() {
        let mut bench = Bench::new(BOUNDED_LOAD, 4);
        let prompt = prompt(&[(0, 1)]);
        bench.in_flight(&[8; 4]);
        let home = bench.pick(&prompt);
        let at = position(&bench.candidates, ReplicaId(home)).unwrap();
        // With h at home and 24 elsewhere the bound is ceil(1.25 (h + 25) / 4): 11 for h = 10,
        // which has room for one more, and 12 for h = 12, which has none.
        bench.candidates[at].in_flight = 10;
        assert_eq!(bench.pick(&prompt), home);
        bench.candidates[at].in_flight = 12;
        assert_ne!(bench.pick(&prompt), home);
    }
}
