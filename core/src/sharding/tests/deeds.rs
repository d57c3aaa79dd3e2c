//! What the planner does in plain situations, one operation at a time.

use std::time::Duration;

use crate::domain::SliceKey;

use super::*;

const WORKLOAD: Slice = Slice::of_prefix(0x4000_0000);

fn rule(floor: u32, cap: u32) -> Rule {
    Rule { slice: WORKLOAD, bounds: Bounds { floor, cap }, whole: false, exclusive: false }
}

/// Load of the workload, beside a little everywhere.
fn workload(load: f64) -> LoadMap {
    LoadMap::new(&[RangeLoad { slice: WORKLOAD, load, state: 0.0 }], &[])
}

fn places(assignment: &Assignment, slice: &Slice) -> Vec<Place> {
    let held = assignment.iter().filter(|it| it.slice.overlap(slice).is_some());
    let mut places: Vec<Place> = held.flat_map(|it| it.holders.to_vec()).collect();
    places.sort_unstable();
    places.dedup();
    places
}

#[test]
fn a_hot_workload_is_split_by_session() {
    let planner = Planner::new(eager());
    let plan = settle(&planner, &empty(), &fleet(8), &[], &workload(4.0));
    assert_eq!(places(&plan.assignment, &WORKLOAD).len(), 8);
    let one_holder = plan.assignment.iter().all(|it| it.holders.len() == 1);
    assert!(one_holder, "no session is in two places");
    assert!(plan.balance.imbalance <= 0.06, "{:?}", plan.balance);
}

#[test]
fn a_single_hot_session_is_replicated_and_dereplicated_when_it_cools() {
    let planner = Planner::new(eager());
    let hot = |load| {
        let ranges = [RangeLoad { slice: Slice::ALL, load: load + 1.0, state: 0.0 }];
        LoadMap::new(&ranges, &[KeyLoad { key: 77, load }])
    };
    let plan = settle(&planner, &empty(), &fleet(8), &[], &hot(3.0));
    let held = plan.assignment.find(SliceKey(77));
    assert!(held.slice.is_one_key());
    assert!(6 <= held.holders.len(), "{held:?}");
    assert_eq!(held.why, SliceReason::Replicated);
    let cooled = settle(&planner, &plan.assignment, &fleet(8), &[], &hot(0.01));
    assert_eq!(cooled.assignment.find(SliceKey(77)).holders.len(), 1);
}

#[test]
fn a_capped_workload_stays_inside_its_subset_however_hot_it_is() {
    let planner = Planner::new(eager());
    let plan = settle(&planner, &empty(), &fleet(12), &[rule(2, 3)], &workload(6.0));
    assert!(places(&plan.assignment, &WORKLOAD).len() <= 3);
    assert!(0.0 < plan.balance.imbalance);
}

#[test]
fn a_whole_workload_is_one_slice_with_as_many_holders_as_its_rule_says() {
    let planner = Planner::new(eager());
    let whole = Rule { whole: true, ..rule(5, 5) };
    let before = settle(&planner, &empty(), &fleet(12), &[], &workload(6.0));
    let plan = settle(&planner, &before.assignment, &fleet(12), &[whole], &workload(6.0));
    let held = plan.assignment.find(SliceKey(WORKLOAD.low));
    assert_eq!((held.slice, held.holders.len()), (WORKLOAD, 5));
    // 6.0 on five of twelve replicas: 1.2 on each of them is the best possible.
    let bound = plan.balance.imbalance_bound;
    assert!((bound - (1.2 - plan.balance.mean)).abs() < 1e-6, "{bound}");
    let grown = Rule { whole: true, ..rule(7, 7) };
    let next = settle(&planner, &plan.assignment, &fleet(12), &[grown], &workload(6.0));
    let more = next.assignment.find(SliceKey(WORKLOAD.low));
    assert_eq!(more.holders.len(), 7);
    let kept = held.holders.iter().filter(|it| more.holders.contains(it)).count();
    assert_eq!(kept, 5, "a subset that grows keeps what it had");
}

#[test]
fn an_exclusive_workload_has_its_replicas_to_itself() {
    let planner = Planner::new(eager());
    let exclusive = Rule { exclusive: true, ..rule(3, 3) };
    let plan = settle(&planner, &empty(), &fleet(12), &[exclusive], &workload(1.0));
    let own = places(&plan.assignment, &WORKLOAD);
    assert_eq!(own.len(), 3);
    let others = plan.assignment.iter().filter(|it| it.slice != WORKLOAD);
    let others = others.filter(|it| it.slice.overlap(&WORKLOAD).is_none());
    assert!(others.flat_map(|it| it.holders).all(|it| !own.contains(it)));
    let too_many = Rule { exclusive: true, ..rule(3, 3) };
    let plan = settle(&planner, &empty(), &fleet(3), &[too_many], &workload(1.0));
    assert_eq!(
        plan.assignment.all_holders().len(),
        3,
        "given up when no other replica would be left"
    );
}

#[test]
fn a_draining_replica_loses_everything_and_is_named_as_who_has_the_state() {
    let planner = Planner::new(PlannerSettings::default());
    let mut fleet = fleet(6);
    let before = settle(&planner, &empty(), &fleet, &[], &uniform(2.0));
    fleet[2].draining = true;
    let after = planner.plan(Moment::ZERO, &before.assignment, &fleet, &[], &uniform(2.0));
    assert_eq!(places(&after.assignment, &Slice::ALL).len(), 5);
    let drained: Vec<Held<'_>> =
        after.assignment.iter().filter(|it| it.why == SliceReason::Drained).collect();
    assert!(!drained.is_empty());
    assert!(drained.iter().all(|it| it.previous == Some(fleet[2].place)));
    assert!(after.churn.choice <= 0.0 && 0.1 < after.churn.removal / after.churn.total);
}

#[test]
fn a_new_replica_is_filled_to_the_mean_while_old_ones_keep_to_their_band() {
    let planner = Planner::new(PlannerSettings::default());
    let before = settle(&planner, &empty(), &fleet(5), &[], &uniform(3.0));
    let after = planner.plan(Moment::ZERO, &before.assignment, &fleet(6), &[], &uniform(3.0));
    assert!(after.balance.mean - after.balance.min <= 0.06, "{:?}", after.balance);
    assert!(0 < after.deeds.filled);
    let (came, fair) = (after.churn.addition / after.churn.total, 1.0 / 6.0);
    assert!((came - fair).abs() < 0.02, "{came}");
    assert!(after.churn.choice <= 1e-9, "{:?}", after.churn);
}

#[test]
fn holders_are_spread_over_zones_and_stay_so() {
    let planner = Planner::new(eager());
    let settings = PlannerSettings { bounds: Bounds { floor: 3, cap: 3 }, ..*planner.settings() };
    let planner = Planner::new(settings);
    let fleet: Vec<FleetMember> = (0..9)
        .map(|it| FleetMember { zone: u32::try_from(it % 3).unwrap(), ..member(it, 1.0) })
        .collect();
    let zone = |it: &Place| (it.0 - 1) % 3;
    let mut base = empty();
    for load in [1.0, 6.0, 2.0] {
        base = settle(&planner, &base, &fleet, &[], &workload(load)).assignment;
        for held in base.iter() {
            let mut zones: Vec<u64> = held.holders.iter().map(zone).collect();
            zones.sort_unstable();
            assert_eq!(zones, [0, 1, 2], "{held:?}");
        }
    }
}

#[test]
fn a_round_moves_no_more_than_its_budget_and_a_slice_rests_after_a_move() {
    let settings = PlannerSettings { churn_max: 0.05, ..PlannerSettings::default() };
    let planner = Planner::new(settings);
    let mut base = settle(&planner, &empty(), &fleet(8), &[], &uniform(2.0)).assignment;
    let quarter = Slice { low: 0, high: u64::MAX / 4 };
    let skewed = LoadMap::new(
        &[
            RangeLoad { slice: quarter, load: 4.0, state: 4000.0 },
            RangeLoad {
                slice: Slice { low: quarter.high + 1, high: u64::MAX },
                load: 1.0,
                state: 1000.0,
            },
        ],
        &[],
    );
    let mut now = Moment::ZERO + Duration::from_secs(1000);
    let mut moved = Vec::new();
    for _ in 0..10 {
        now = now + Duration::from_secs(1);
        let plan = planner.plan(now, &base, &fleet(8), &[], &skewed);
        assert!(plan.churn.state <= 5000.0 * 0.05 + 1e-6, "{:?}", plan.churn);
        for held in plan.assignment.iter().filter(|it| it.why == SliceReason::Moved) {
            if held.settled_at == now {
                assert!(!moved.iter().any(|it: &Slice| it.overlap(&held.slice).is_some()));
                moved.push(held.slice);
            }
        }
        base = plan.assignment;
    }
    assert!(!moved.is_empty());
}

#[test]
fn subsets_of_workloads_overlap_no_more_than_chance_would_have_it() {
    let settings = PlannerSettings { bounds: Bounds { floor: 4, cap: 4 }, ..eager() };
    let planner = Planner::new(settings);
    let rules: Vec<Rule> = (1..=200_u32)
        .map(|it| Rule {
            slice: Slice::of_prefix(it * 20_000_003),
            bounds: settings.bounds,
            whole: true,
            exclusive: false,
        })
        .collect();
    // Workloads without load yet are spread as well as those with load.
    for load in [0.05, 0.0] {
        let range = |it: &Rule| RangeLoad { slice: it.slice, load, state: 0.0 };
        let ranges: Vec<RangeLoad> = rules.iter().map(range).collect();
        check_overlap(&planner, &rules, &LoadMap::new(&ranges, &[]));
    }
}

/// Plans workloads of four replicas each in a fleet of 32, and counts what they share.
fn check_overlap(planner: &Planner, rules: &[Rule], map: &LoadMap) {
    let plan = settle(planner, &empty(), &fleet(32), rules, map);
    let subsets: Vec<Vec<Place>> =
        rules.iter().map(|it| places(&plan.assignment, &it.slice)).collect();
    let (mut shared, mut pairs, mut identical) = (0.0, 0.0, 0);
    for (at, one) in subsets.iter().enumerate() {
        for other in &subsets[at + 1..] {
            let common = one.iter().filter(|it| other.contains(it)).count();
            shared += f64::from(u32::try_from(common).unwrap());
            identical += usize::from(common == 4);
            pairs += 1.0;
        }
    }
    let expected = expected_overlap(4, 4, 32);
    assert!((shared / pairs - expected).abs() < 0.1 * expected, "{}", shared / pairs);
    assert!(identical <= 5, "{identical} pairs of 19900 share everything");
}

#[test]
fn a_thousand_replicas_are_planned_in_few_steps() {
    let planner = Planner::new(PlannerSettings::default());
    let fleet = fleet(1000);
    let first = planner.plan(Moment::ZERO, &empty(), &fleet, &[], &uniform(500.0));
    assert!(first.balance.imbalance <= 0.06, "{:?}", first.balance);
    let next = planner.plan(Moment::ZERO, &first.assignment, &fleet[1..], &[], &uniform(500.0));
    let deeds = next.deeds;
    let steps = deeds.moved + deeds.swapped + deeds.split + deeds.merged + deeds.placed;
    assert!(steps <= 200, "one replica of a thousand is gone: {deeds:?}");
    assert!(next.churn.choice <= 1e-9, "{:?}", next.churn);
}
