//! vllm-router's `consistent_hash`: 160 points a replica on a ring, and the session's owner takes
//! it. When the owner cannot, the first that can does, so all orphaned sessions meet there; load is
//! never looked at. The real one hashes with `MurmurHash64A` and `FurcHash` over addresses; the
//! mixing function here is another, which moves sessions and changes nothing else.

use super::ring::{Ring, RingRule};
use super::{Ask, Candidate, position};

#[derive(Debug)]
pub(super) struct ConsistentHash;

impl RingRule for ConsistentHash {
    const POINTS: u64 = 160;

    fn pick(ring: &Ring, ask: &Ask<'_>, candidates: &[Candidate]) -> usize {
        let owner = ring.walk(ask.key.0).next();
        owner.and_then(|it| position(candidates, it)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::CONSISTENT_HASH;
    use super::super::bench::{Bench, prompt};
    use cleave_core::domain::ReplicaId;

    #[test]
    fn sessions_of_one_who_cannot_all_go_to_the_first_and_come_back() {
        let mut bench = Bench::new(CONSISTENT_HASH, 4);
        let prompt = prompt(&[(0, 1)]);
        let mut homes: Vec<u32> = (0..400).map(|it| bench.pick_for(it, &prompt)).collect();
        for replica in 0..4 {
            let share = homes.iter().filter(|it| **it == replica).count();
            assert!((60..140).contains(&share), "{share}");
        }
        let whole = bench.candidates.clone();
        bench.candidates.remove(2);
        let orphaned: Vec<u32> = (0..400).map(|it| bench.pick_for(it, &prompt)).collect();
        bench.candidates = whole;
        let back: Vec<u32> = (0..400).map(|it| bench.pick_for(it, &prompt)).collect();
        assert_eq!(back, homes);
        homes.iter_mut().filter(|it| **it == 2).for_each(|it| *it = 0);
        assert_eq!(orphaned, homes);
    }

    #[test]
    fn sessions_of_one_who_left_spread_over_the_others() {
        let mut bench = Bench::new(CONSISTENT_HASH, 4);
        let prompt = prompt(&[(0, 1)]);
        let homes: Vec<u32> = (0..400).map(|it| bench.pick_for(it, &prompt)).collect();
        bench.candidates.remove(2);
        bench.policy.on_left(ReplicaId(2));
        let mut heirs = [0; 4];
        for (session, home) in (0..).zip(homes) {
            let now = bench.pick_for(session, &prompt);
            assert!(home == 2 || home == now);
            heirs[usize::try_from(now).unwrap()] += u32::from(home == 2);
        }
        assert!(heirs[2] == 0 && [0, 1, 3].iter().all(|it| 5 < heirs[*it]), "{heirs:?}");
    }
}
