//! What each policy promises.

use std::sync::LazyLock;

use proptest::prelude::*;
use rand::SeedableRng as _;

use super::*;

fn fleet(size: u32) -> Vec<Candidate> {
    (0..size).map(|id| candidate(id, 1.0, 0)).collect()
}

fn candidate(id: u32, weight: f64, in_flight: u32) -> Candidate {
    let place = Place::of(&format!("http://gpu-{id}:8000"));
    Candidate {
        id: ReplicaId(id),
        place,
        weight,
        in_flight,
        report: None,
        load: LoadModel::default(),
    }
}

fn ask(session: u32) -> Ask<'static> {
    static NOTHING: LazyLock<Outline> = LazyLock::new(Outline::default);
    let key = SliceKey::new(1, "m", &format!("session {session}"));
    Ask { now: Moment::ZERO, key, outline: &NOTHING, home: None, promise: Promise::default() }
}

/// Counts how often each replica is chosen over `asks` requests of different sessions.
fn tally(name: PolicyKind, candidates: &[Candidate], asks: u32) -> Vec<u32> {
    let mut policy = name.make();
    let mut chance = Pcg64Mcg::seed_from_u64(7);
    let mut counts = vec![0; candidates.len()];
    for session in 0..asks {
        counts[policy.pick(&ask(session), candidates, &mut chance)] += 1;
    }
    counts
}

#[test]
fn every_policy_gives_each_replica_its_share() {
    let candidates = [candidate(0, 1.0, 0), candidate(1, 2.0, 0), candidate(2, 1.0, 0)];
    for name in [PolicyKind::ROUND_ROBIN, PolicyKind::RANDOM, PolicyKind::SESSION] {
        let counts = tally(name, &candidates, 8000);
        for (count, want) in counts.iter().zip([2000, 4000, 2000]) {
            assert!(u32::abs_diff(*count, want) < 200, "{name}: {counts:?}");
        }
    }
}

#[test]
fn round_robin_takes_turns() {
    let mut policy = PolicyKind::ROUND_ROBIN.make();
    let mut chance = Pcg64Mcg::seed_from_u64(7);
    let mut next = |from: &[Candidate]| from[policy.pick(&ask(0), from, &mut chance)].id.0;
    let three = fleet(3);
    let order: Vec<u32> = (0..6).map(|_| next(&three)).collect();
    assert_eq!(order, [0, 1, 2, 0, 1, 2]);
    let four = fleet(4);
    let order: Vec<u32> = (0..8).map(|_| next(&four)).collect();
    assert_eq!(order.iter().filter(|it| **it == 3).count(), 2, "a new one is not flooded");
}

#[test]
fn least_requests_counts_by_weight() {
    let candidates = [candidate(0, 1.0, 2), candidate(1, 4.0, 7), candidate(2, 1.0, 3)];
    assert_eq!(tally(PolicyKind::LEAST_REQUESTS, &candidates, 1), [0, 1, 0]);
}

#[test]
fn power_of_two_never_takes_the_most_crowded() {
    let candidates = [candidate(0, 1.0, 1), candidate(1, 1.0, 9), candidate(2, 1.0, 3)];
    let counts = tally(PolicyKind::POWER_OF_TWO, &candidates, 3000);
    assert_eq!(counts[1], 0);
    assert!(counts[2] < counts[0] && 0 < counts[2], "{counts:?}");
}

#[test]
fn power_of_two_draws_two_different_ones_by_weight() {
    let candidates = [candidate(0, 1.0, 0), candidate(1, 1.0, 0), candidate(2, 2.0, 1)];
    // The crowding of the last is that of the others, so the first of the pair wins.
    let counts = tally(PolicyKind::POWER_OF_TWO, &candidates, 8000);
    for (count, want) in counts.iter().zip([2000, 2000, 4000]) {
        assert!(u32::abs_diff(*count, want) < 200, "{counts:?}");
    }
}

proptest! {
    #[test]
    fn losing_a_replica_moves_only_its_own_sessions(size in 2_u32..40, lost in any::<prop::sample::Index>()) {
        let before = fleet(size);
        let lost = lost.index(before.len());
        let mut after = before.clone();
        let gone = after.remove(lost).id;
        let mut policy = PolicyKind::SESSION.make();
        let mut chance = Pcg64Mcg::seed_from_u64(0);
        for session in 0..200 {
            let home = before[policy.pick(&ask(session), &before, &mut chance)].id;
            let now = after[policy.pick(&ask(session), &after, &mut chance)].id;
            prop_assert!(home == gone || home == now);
        }
    }

    #[test]
    fn routers_agree_whatever_the_order_of_their_lists(size in 1_u32..40, turn in 0_usize..40, session: u32) {
        let one = fleet(size);
        let mut other = one.clone();
        other.rotate_left(turn % one.len());
        let mut policy = PolicyKind::SESSION.make();
        let mut chance = Pcg64Mcg::seed_from_u64(0);
        let here = one[policy.pick(&ask(session), &one, &mut chance)].id;
        let there = other[policy.pick(&ask(session), &other, &mut chance)].id;
        prop_assert_eq!(here, there);
    }
}
