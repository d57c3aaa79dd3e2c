//! Small worlds with known outcomes: the same bytes for the same seed, every fault survived, nothing
//! lost, nothing counted twice.

use std::time::Duration;

use cleave_core::brain;
use cleave_core::policy::PolicyKind;

use cleave_sim::bounds::bounds;
use cleave_sim::measure::Measures;
use cleave_sim::results::Results;
use cleave_sim::traces::{Mix, Replay, Synthetic, Tenant, Workload, presets};
use cleave_sim::world::*;

fn workload(seed: u64) -> Workload {
    let Some(Synthetic::SharedPrefix(mut it)) = presets::named("smg-600-prefixes") else {
        panic!("the preset is there")
    };
    it.groups = 40;
    it.stages[0].per_second = 20.0;
    it.stages[0].lasts = Duration::from_secs(30);
    Workload::synthetic(&Synthetic::SharedPrefix(it), &Replay { seed, ..Replay::default() })
}

fn settings(policy: PolicyKind, faults: &[(u64, Option<u64>, FaultKind)]) -> WorldSettings {
    let fault = |&(at, lasts, kind): &(u64, Option<u64>, FaultKind)| Fault {
        at: Duration::from_secs(at),
        lasts: lasts.map(Duration::from_secs),
        kind,
    };
    let mut replica = ReplicaSettings::default();
    replica.engine.kv_tokens = 64 * 300;
    WorldSettings {
        replicas: vec![replica; 4],
        brain: brain::Settings::without_line(policy),
        faults: faults.iter().map(fault).collect(),
        checks: true,
        ..WorldSettings::default()
    }
}

/// A calm world whose invariants other tests check.
fn unchecked(policy: PolicyKind) -> WorldSettings {
    WorldSettings { checks: false, ..settings(policy, &[]) }
}

fn play(settings: WorldSettings) -> World {
    let mut world = World::new(settings);
    world.start_measuring();
    world.run(&mut workload(3), &mut Unwatched).expect("the world comes to its end");
    assert!(invariants::residency_matches_engines(&world));
    world
}

fn measures(policy: PolicyKind, faults: &[(u64, Option<u64>, FaultKind)]) -> Measures {
    play(settings(policy, faults)).measures().clone()
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    for &policy in cleave_sim::policies::ALL {
        let faults = [(5, Some(5), FaultKind::Crash { replica: 1 })];
        let run = || {
            let settings = WorldSettings { routers: 2, checks: false, ..settings(policy, &faults) };
            let results = Results::of(&play(settings), policy.as_str());
            serde_json::to_string(&results).unwrap()
        };
        assert_eq!(run(), run(), "{policy}");
    }
}

#[test]
fn an_answer_that_does_not_stream_shows_nothing_before_its_end_and_can_still_go_elsewhere() {
    let faults = [(10, Some(10), FaultKind::Crash { replica: 1 })];
    let run = |non_streaming| {
        let settings = settings(PolicyKind::PRICED, &faults);
        let it =
            play(WorldSettings { non_streaming, checks: false, ..settings }).measures().clone();
        assert_eq!(it.finished + it.cut, it.arrived);
        assert_eq!(it.ttft.count(), it.arrived, "each has one first token");
        (it.cut, it.retries)
    };
    let (streaming, whole) = (run(0.0), run(1.0));
    assert!(0 < streaming.0, "a stream was under way");
    assert_eq!(whole.0, 0, "nothing was under way that a client had seen");
    assert!(streaming.1 < whole.1, "{streaming:?} where answers stream, {whole:?} where not");
}

#[test]
fn a_router_that_learns_from_the_end_alone_still_keeps_sessions_where_their_cache_is() {
    let hit = |non_streaming| {
        let world = play(WorldSettings { non_streaming, ..unchecked(PolicyKind::PRICED) });
        Results::of(&world, "priced").hit
    };
    let (streaming, mixed, whole) = (hit(0.0), hit(0.5), hit(1.0));
    assert!(0.9 * streaming < whole, "{streaming:.3} where answers stream, {whole:.3} where not");
    assert!(
        0.9 * streaming < mixed,
        "{streaming:.3} where answers stream, {mixed:.3} where half do"
    );
}

#[test]
fn a_calm_fleet_finishes_everything() {
    let it = measures(PolicyKind::SESSION, &[]);
    assert_eq!(it.finished, it.arrived);
    assert_eq!((it.cut, it.refused, it.retries), (0, 0, 0));
    assert!(500 < it.arrived, "{}", it.arrived);
    assert_eq!(it.bystanders, 0);
    assert!(0 < it.cached_tokens);
}

#[test]
fn a_crash_costs_answers_under_way_and_nothing_else() {
    let it = measures(PolicyKind::ROUND_ROBIN, &[(10, Some(5), FaultKind::Crash { replica: 2 })]);
    assert!(0 < it.cut && it.cut < 30, "{}", it.cut);
    assert_eq!(it.refused, 0);
    assert_eq!(it.finished + it.cut, it.arrived);
    assert!(it.bystanders_struck < it.bystanders);
}

#[test]
fn a_hang_that_is_found_costs_streams_under_way_and_nothing_that_waited() {
    let it = measures(PolicyKind::LEAST_REQUESTS, &[(10, Some(8), FaultKind::Hang { replica: 0 })]);
    assert!(it.cut < 10, "{}", it.cut);
    assert_eq!((it.refused, it.finished + it.cut), (0, it.arrived));
    assert!(it.ttft.max_s() < 10.0);
}

#[test]
fn a_hang_that_passes_before_it_is_found_costs_nothing() {
    let it = measures(PolicyKind::LEAST_REQUESTS, &[(10, Some(3), FaultKind::Hang { replica: 0 })]);
    assert_eq!((it.cut, it.refused, it.finished), (0, 0, it.arrived));
}

#[test]
fn a_replica_that_hangs_for_ever_loses_its_streams_in_the_end() {
    let it = measures(PolicyKind::ROUND_ROBIN, &[(10, None, FaultKind::Hang { replica: 0 })]);
    assert!(0 < it.cut);
    assert_eq!(it.finished + it.cut + it.refused, it.arrived);
}

#[test]
fn a_slow_replica_slows_what_is_sent_to_it() {
    let calm = measures(PolicyKind::ROUND_ROBIN, &[]);
    let slow = FaultKind::Slow { replica: 0, factor: 6.0 };
    let slow = measures(PolicyKind::ROUND_ROBIN, &[(0, Some(60), slow)]);
    assert!(2.0 * calm.end_to_end.quantile_s(990) < slow.end_to_end.quantile_s(990));
}

#[test]
fn a_drained_replica_finishes_and_a_joined_one_takes_over() {
    let drain = FaultKind::Drain { replica: 3 };
    let it = measures(PolicyKind::LEAST_REQUESTS, &[(8, None, drain), (10, None, FaultKind::Join)]);
    assert_eq!(it.finished, it.arrived);
    assert_eq!(it.replicas.len(), 5);
    assert!(50 < it.replicas[4].requests, "{}", it.replicas[4].requests);
}

#[test]
fn a_router_that_restarts_cuts_what_it_relayed_and_serves_on() {
    let restart = FaultKind::RestartRouter { router: 0 };
    let it = measures(PolicyKind::SESSION, &[(10, None, restart)]);
    assert!(0 < it.cut);
    assert_eq!(it.finished + it.cut, it.arrived);
}

#[test]
fn a_tenant_that_kills_replicas_strikes_others_and_is_counted_apart() {
    // In none of the presets is every group a tenant of its own, so the poison may be in any
    // tenant's requests.
    let poison = FaultKind::Poison { tenant: Tenant(0), hangs: false };
    let it = measures(PolicyKind::RANDOM, &[(10, Some(3), poison)]);
    assert_eq!(it.bystanders, 0, "the culprit is no bystander");
    assert!(0 < it.refused + it.cut);
    assert_eq!(it.finished + it.cut + it.refused, it.arrived);
}

#[test]
fn what_a_fault_does_to_others_is_the_difference_to_the_same_run_without_it() {
    let faults = [(10, Some(10), FaultKind::Poison { tenant: Tenant(0), hangs: false })];
    let tenants = (0..4).map(|it| (Tenant(it), 1.0)).collect();
    let mix = Mix { tenants, ..Mix::default() };
    let run = |calm| {
        let policy = PolicyKind::LEAST_REQUESTS;
        let settings = WorldSettings { calm, checks: false, ..settings(policy, &faults) };
        let mut world = World::new(settings);
        world.start_measuring();
        world.run(&mut workload(3).labelled(3, mix.clone()), &mut Unwatched).unwrap();
        Results::of(&world, policy.as_str())
    };
    let (mut with, without) = (run(false), run(true));
    let others = without.others.clone().unwrap();
    assert!(without.cut == 0 && without.struck.is_none());
    assert_eq!(with.others.as_ref().unwrap().requests, others.requests);
    assert!(others.requests < with.requests * 3 / 4, "those before it and its own do not count");
    with.pair_with(without);
    let blast = with.blast_radius.unwrap();
    let bad = 1.0 - with.others.as_ref().unwrap().good_share;
    assert!(0.0 < blast && blast <= bad, "{blast} of {bad}");
    assert_eq!(with.tenants.len(), 4);
}

/// Plays the same workloads with some routers; says how long first tokens took and what was found in caches.
fn routers(routers: usize, exchange: Option<Exchange>, seeds: std::ops::Range<u64>) -> (f64, f64) {
    let (mut ttft_s, mut hit) = (0.0, 0.0);
    for seed in seeds {
        let base = unchecked(PolicyKind::PRICED);
        let mut world = World::new(WorldSettings { routers, exchange, ..base });
        world.start_measuring();
        world.run(&mut workload(seed), &mut Unwatched).expect("the world is sound");
        assert_eq!(world.measures().finished, world.measures().arrived);
        let results = Results::of(&world, "priced");
        ttft_s += results.ttft_s.mean;
        hit += results.hit;
    }
    (ttft_s, hit)
}

#[test]
fn routers_that_hear_of_each_other_decide_nearly_as_one() {
    let exchange = Some(Exchange { delay: Duration::from_millis(2), loss: 0.0, older: 0 });
    let [one, deaf, told] =
        [(1, None), (4, None), (4, exchange)].map(|(count, it)| routers(count, it, 3..5));
    assert!(one.1 - told.1 < 0.1 * (one.1 - deaf.1), "hits: {one:?} {deaf:?} {told:?}");
    assert!(told.0 < 1.1 * one.0, "first tokens: {one:?} {deaf:?} {told:?}");
}

#[test]
fn routers_that_lose_what_they_tell_each_other_find_out() {
    let exchange = Some(Exchange { delay: Duration::from_millis(2), loss: 0.01, older: 0 });
    let [one, deaf, told] =
        [(1, None), (3, None), (3, exchange)].map(|(count, it)| routers(count, it, 3..4));
    assert!(one.1 - told.1 < 0.3 * (one.1 - deaf.1), "hits: {one:?} {deaf:?} {told:?}");
}

#[test]
fn a_warm_up_is_not_measured() {
    let mut world = World::new(settings(PolicyKind::SESSION, &[]));
    world.run(&mut workload(3), &mut Unwatched).unwrap();
    world.start_measuring();
    world.run(&mut workload(4), &mut Unwatched).unwrap();
    let mut cold = World::new(settings(PolicyKind::SESSION, &[]));
    cold.start_measuring();
    cold.run(&mut workload(4), &mut Unwatched).unwrap();
    let (warm, cold) = (world.measures(), cold.measures());
    assert_eq!(warm.arrived, cold.arrived);
    assert!(cold.cached_tokens < warm.cached_tokens);
}

#[test]
fn a_fault_that_names_nobody_is_refused() {
    let settings = settings(PolicyKind::SESSION, &[(1, None, FaultKind::Crash { replica: 4 })]);
    assert_eq!(settings.check(), Err(Absent::Replica { replica: 4, count: 4 }));
}

#[test]
fn no_policy_beats_the_bounds() {
    let bounds = bounds(settings(PolicyKind::SESSION, &[]), None, &mut workload(3)).unwrap();
    assert!(bounds.pooled_hit <= bounds.infinite_hit);
    for &policy in cleave_sim::policies::ALL {
        let it = Results::of(&play(unchecked(policy)), policy.as_str());
        assert!(it.hit <= bounds.infinite_hit, "{policy}: {} of {}", it.hit, bounds.infinite_hit);
        assert!(bounds.ttft_mean_s <= it.ttft_s.mean, "{policy}");
        assert!(it.requests == bounds.pooled.requests);
    }
}
