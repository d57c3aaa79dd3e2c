//! What the brain's books are worth in whole worlds: predictions that hold, mixed fleets, slow
//! replicas and new ones.

use std::time::Duration;

use cleave_core::brain;
use cleave_core::policy::PolicyKind;
use cleave_sim::results::Results;
use cleave_sim::traces::{Replay, Synthetic, Workload, presets};
use cleave_sim::world::*;

/// Prompts that share prefixes, `per_second` for a minute.
fn workload(per_second: f64) -> Workload {
    let Some(Synthetic::SharedPrefix(mut it)) = presets::named("smg-600-prefixes") else {
        panic!("the preset is there")
    };
    it.groups = 200;
    it.stages[0].per_second = per_second;
    it.stages[0].lasts = Duration::from_secs(60);
    Workload::synthetic(&Synthetic::SharedPrefix(it), &Replay { seed: 5, ..Replay::default() })
}

fn fleet(policy: PolicyKind, speeds: &[f64]) -> WorldSettings {
    let replica = |slowness: &f64| {
        let mut it = ReplicaSettings::default();
        let times = &mut it.engine.times;
        times.floor_ms *= slowness;
        times.new_token_ms *= slowness;
        times.attention_ms *= slowness;
        times.context_ms *= slowness;
        it
    };
    WorldSettings {
        replicas: speeds.iter().map(replica).collect(),
        brain: brain::Settings { policy, ..brain::Settings::default() },
        ..WorldSettings::default()
    }
}

fn play(settings: WorldSettings, per_second: f64) -> World {
    let mut world = World::new(settings);
    world.start_measuring();
    world.run(&mut workload(per_second), &mut Unwatched).expect("the world comes to its end");
    world
}

fn requests(world: &World) -> Vec<u64> {
    world.measures().replicas.iter().map(|it| it.requests).collect()
}

#[test]
fn first_tokens_are_predicted_where_the_hardware_is_known() {
    let ttft_error = play(fleet(PolicyKind::PRICED, &[1.0; 4]), 40.0).ttft_error();
    assert!(1_000 < ttft_error.count(), "{}", ttft_error.count());
    let (p50, p90) = (ttft_error.error_share(0.5), ttft_error.error_share(0.9));
    assert!(p50 < 0.15 && p90 < 0.5, "{p50} {p90}");
}

#[test]
fn a_mixed_fleet_needs_no_weights() {
    let mean_s = |policy: PolicyKind| {
        let world = play(fleet(policy, &[1.0, 1.0, 3.0, 3.0]), 40.0);
        (Results::of(&world, policy.as_str()).ttft_s.mean, requests(&world))
    };
    let (priced, sent) = mean_s(PolicyKind::PRICED);
    for other in [PolicyKind::SESSION, PolicyKind::LEAST_REQUESTS, cleave_sim::policies::MOONCAKE] {
        let (other_s, _) = mean_s(other);
        assert!(priced < other_s, "{priced} {other_s} {other}");
    }
    assert!(2 * (sent[2] + sent[3]) < sent[0] + sent[1], "{sent:?}");
    assert!(0 < sent[2] + sent[3], "{sent:?}");
}

#[test]
fn a_replica_that_turns_slow_is_sent_less() {
    let kind = FaultKind::Slow { replica: 0, factor: 4.0 };
    let faults = vec![Fault { at: Duration::ZERO, lasts: None, kind }];
    let sent =
        requests(&play(WorldSettings { faults, ..fleet(PolicyKind::PRICED, &[1.0; 4]) }, 40.0));
    assert!(sent[1..].iter().all(|it| 2 * sent[0] < *it), "{sent:?}");
}

#[test]
fn a_replica_that_joins_where_caches_are_warm_gets_work_and_is_not_flooded() {
    let faults = vec![Fault { at: Duration::from_secs(30), lasts: None, kind: FaultKind::Join }];
    let calm = play(fleet(PolicyKind::PRICED, &[1.0; 4]), 60.0);
    let joined = play(WorldSettings { faults, ..fleet(PolicyKind::PRICED, &[1.0; 4]) }, 60.0);
    let sent = requests(&joined);
    // Half of the time a fifth of the requests would be its share, if it had their prompts too.
    let total: u64 = sent.iter().sum();
    assert!((1..total / 10).contains(&sent[4]), "{sent:?}");
    let p99_s = |world: &World| Results::of(world, "priced").ttft_s.p99;
    assert!(p99_s(&joined) <= 1.1 * p99_s(&calm), "{} {}", p99_s(&joined), p99_s(&calm));
}
