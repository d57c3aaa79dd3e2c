//! Routers that are told the wrong hardware, in whole worlds.

use std::time::Duration;

use cleave_core::brain;
use cleave_core::cost::StepTimes;
use cleave_sim::traces::{Replay, Synthetic, Workload, presets};
use cleave_sim::world::*;

/// Prompts that share prefixes, `per_second` for two minutes.
fn workload(per_second: f64) -> Workload {
    let Some(Synthetic::SharedPrefix(mut it)) = presets::named("smg-600-prefixes") else {
        panic!("the preset is there")
    };
    it.groups = 200;
    it.stages[0].per_second = per_second;
    it.stages[0].lasts = Duration::from_secs(120);
    Workload::synthetic(&Synthetic::SharedPrefix(it), &Replay { seed: 5, ..Replay::default() })
}

/// Four replicas with `times`, of which routers believe that they are an 8B on an H200.
fn fleet(times: StepTimes, learns_costs: bool) -> WorldSettings {
    let mut replica = ReplicaSettings::default();
    replica.engine.times = times;
    WorldSettings {
        replicas: vec![replica; 4],
        belief: Belief { steps: Some(StepTimes::LLAMA_8B), ..Belief::default() },
        brain: brain::Settings { learns_costs, ..brain::Settings::default() },
        ..WorldSettings::default()
    }
}

fn scaled(factor: f64) -> StepTimes {
    let it = StepTimes::LLAMA_8B;
    StepTimes {
        floor_ms: it.floor_ms * factor,
        new_token_ms: it.new_token_ms * factor,
        attention_ms: it.attention_ms * factor,
        context_ms: it.context_ms * factor,
    }
}

fn play(settings: WorldSettings, per_second: f64) -> World {
    let mut world = World::new(settings);
    world.start_measuring();
    world.run(&mut workload(per_second), &mut Unwatched).expect("the world comes to its end");
    world
}

#[test]
fn first_tokens_are_predicted_where_the_hardware_is_not_known() {
    for (times, per_second) in
        [(scaled(0.5), 40.0), (scaled(3.0), 10.0), (StepTimes::LLAMA_70B, 4.0)]
    {
        let error = |learns| play(fleet(times, learns), per_second).ttft_error().error_share(0.5);
        let (given, learned) = (error(false), error(true));
        assert!(learned < 0.25 && learned < 0.6 * given, "{times:?}: {given} {learned}");
    }
}

#[test]
fn a_replica_that_turns_slow_is_sent_less_while_costs_are_learned() {
    let kind = FaultKind::Slow { replica: 0, factor: 4.0 };
    let faults = vec![Fault { at: Duration::ZERO, lasts: None, kind }];
    let world = play(WorldSettings { faults, ..fleet(scaled(2.0), true) }, 15.0);
    let sent: Vec<u64> = world.measures().replicas.iter().map(|it| it.requests).collect();
    assert!(sent[1..].iter().all(|it| 2 * sent[0] < *it), "{sent:?}");
}
