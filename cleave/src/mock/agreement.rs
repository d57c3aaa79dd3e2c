//! The mock's driver in real time and the simulator in virtual time must tell the same story of the same
//! arrivals. Time is tokio's, paused and moved on by hand of the runtime, so that the test needs no
//! quiet machine: what is compared is the drivers, not the scheduler of the day.

use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain;
use cleave_core::domain::Moment;
use cleave_core::policy::PolicyKind;
use cleave_sim::engine::{self, Job};
use cleave_sim::measure::Histogram;
use cleave_sim::traces::{Replay, SharedPrefix, Stage, Synthetic, Workload};
use cleave_sim::world::{ReplicaSettings, Unwatched, World, WorldSettings};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::driver::{Clock, Driver};

const BLOCK_TOKENS: u32 = 16;

/// Conversations that queue: six a second for one replica.
fn workload() -> Workload {
    let stage = Stage { per_second: 6.0, lasts: Duration::from_secs(80), pause: Duration::ZERO };
    let synthetic = Synthetic::SharedPrefix(SharedPrefix {
        groups: 30,
        prompts_per_group: None,
        prefix_tokens: 2_000,
        question_tokens: 3_000,
        output_tokens: 120,
        stages: vec![stage],
    });
    Workload::synthetic(&synthetic, &Replay { seed: 9, ..Replay::default() })
}

fn engine() -> engine::EngineSettings {
    engine::EngineSettings { block_tokens: BLOCK_TOKENS, ..engine::EngineSettings::default() }
}

/// Plays the arrivals to the driver that stands behind HTTP; returns times to the first token.
async fn in_real_time() -> Histogram {
    let driver = Arc::new(Driver::new(engine(), Clock::new(1.0)));
    let zero = Instant::now();
    let mut requests = JoinSet::new();
    let mut workload = workload();
    while let Some(request) = workload.take().unwrap() {
        let arrival = zero + request.arrival.since(Moment::ZERO);
        let job = Job {
            id: 0,
            block_hashes: request.prompt.hashes(BLOCK_TOKENS.try_into().unwrap()).collect(),
            prompt_tokens: request.prompt.tokens(),
            output_tokens: request.output_tokens,
            given_tokens: 0,
        };
        let driver = Arc::clone(&driver);
        requests.spawn(async move {
            tokio::time::sleep_until(arrival).await;
            let mut ticket = driver.submit(job).unwrap();
            assert!(matches!(ticket.next().await, Some(engine::Event::FirstToken { .. })));
            let first = arrival.elapsed();
            while ticket.next().await.is_some() {}
            first
        });
    }
    let mut times = Histogram::default();
    tokio::select! {
        () = driver.drive() => {}
        () = async {
            while let Some(time) = requests.join_next().await {
                times.record(time.unwrap());
            }
        } => {}
    }
    times
}

/// Plays the same arrivals to a world of one replica.
fn in_virtual_time() -> Histogram {
    let policy = PolicyKind::ROUND_ROBIN;
    let mut world = World::new(WorldSettings {
        replicas: vec![ReplicaSettings { engine: engine(), weight: 1.0 }],
        brain: brain::Settings::without_line(policy),
        ..WorldSettings::default()
    });
    world.start_measuring();
    world.run(&mut workload(), &mut Unwatched).unwrap();
    world.measures().ttft.clone()
}

#[tokio::test(start_paused = true)]
async fn the_mock_in_real_time_agrees_with_the_simulator_within_three_per_cent() {
    let (real, simulated) = (in_real_time().await, in_virtual_time());
    assert_eq!(real.count(), simulated.count());
    assert!(300 < real.count());
    for per_mille in [100, 250, 500, 750, 900, 990] {
        let (one, other) = (real.quantile_s(per_mille), simulated.quantile_s(per_mille));
        // The runtime's timers tick once a millisecond.
        assert!(
            (one - other).abs() <= 0.03 * other + 0.002,
            "{per_mille}: {one:.4} s in real time, {other:.4} s simulated"
        );
    }
    assert!(0.05 < simulated.quantile_s(900), "nothing queued, so nothing was compared");
}
