//! The world against queueing theory, where theory is exact: an engine that runs one sequence at a time
//! and answers with one token is a server with one line. Chance is seeded, so the runs are long
//! enough for a few per cent and always give the same figures.

use std::time::Duration;

use cleave_core::brain;
use cleave_core::cost::StepTimes;
use cleave_core::policy::PolicyKind;
use cleave_sim::engine;
use cleave_sim::results::Results;
use cleave_sim::traces::{HeavyTail, Replay, Spread, Stage, Synthetic, Workload};
use cleave_sim::world::{ReplicaSettings, Unwatched, View, World, WorldSettings};

const REQUESTS: u64 = 200_000;

/// A server that needs `floor_ms` for a request and `new_token_ms` for a token.
fn server(floor_ms: f64, new_token_ms: f64) -> ReplicaSettings {
    let times = StepTimes { floor_ms, new_token_ms, attention_ms: 0.0, context_ms: 0.0 };
    let engine = engine::EngineSettings {
        times,
        kv_tokens: 1 << 20,
        block_tokens: 1 << 10,
        batched_tokens_max: 1 << 20,
        seqs_max: 1,
    };
    ReplicaSettings { engine, weight: 1.0 }
}

/// Plays requests that come at random and returns their mean time to the first token, in seconds.
fn mean_s(servers: &[ReplicaSettings], policy: PolicyKind, per_second: f64, input: Spread) -> f64 {
    let stage = Stage { per_second, lasts: Duration::MAX / 4, pause: Duration::ZERO };
    let output = Spread::Fixed(1);
    let workload = Synthetic::HeavyTail(HeavyTail { input, output, stages: vec![stage] });
    let replay = Replay { seed: 1, requests_max: REQUESTS, ..Replay::default() };
    let mut world = World::new(WorldSettings {
        replicas: servers.to_vec(),
        brain: brain::Settings::without_line(policy),
        view: View { interval: Duration::from_secs(60), delay: Duration::ZERO },
        ..WorldSettings::default()
    });
    world.start_measuring();
    world
        .run(&mut Workload::synthetic(&workload, &replay), &mut Unwatched)
        .expect("the world comes to its end");
    let results = Results::of(&world, policy.as_str());
    assert_eq!(results.finished, REQUESTS);
    results.ttft_s.mean
}

fn assert_near(found: f64, expected: f64, what: &str) {
    let off = found / expected - 1.0;
    assert!(off.abs() < 0.03, "{what}: {found:.4} s, expected {expected:.4} s, off by {off:.3}");
}

#[test]
fn equal_requests_wait_as_in_m_d_1() {
    // Service of 100 ms: the mean wait is ρ S / (2 (1 − ρ)).
    for load in [0.3, 0.6, 0.8] {
        let found =
            mean_s(&[server(100.0, 0.0)], PolicyKind::ROUND_ROBIN, load * 10.0, Spread::Fixed(1));
        let expected = 0.1 + load * 0.1 / (2.0 * (1.0 - load));
        assert_near(found, expected, &format!("M/D/1 at {load}"));
    }
}

#[test]
fn uneven_requests_wait_as_in_m_g_1() {
    // One millisecond a token, 20 or 200 tokens: the mean wait is λ E[S²] / (2 (1 − ρ)).
    let input = Spread::Quantiles(vec![(0.0, 20), (0.5, 20), (0.5, 200), (1.0, 200)]);
    let (mean, square) = (0.110, f64::midpoint(0.02 * 0.02, 0.2 * 0.2));
    for load in [0.5, 0.7] {
        let rate = load / mean;
        let found = mean_s(&[server(0.0, 1.0)], PolicyKind::ROUND_ROBIN, rate, input.clone());
        let expected = mean + rate * square / (2.0 * (1.0 - load));
        assert_near(found, expected, &format!("M/G/1 at {load}"));
    }
}

#[test]
fn a_random_split_makes_each_replica_a_line_of_its_own() {
    let load = 0.7;
    let servers = [server(100.0, 0.0); 4];
    let found = mean_s(&servers, PolicyKind::RANDOM, 4.0 * load * 10.0, Spread::Fixed(1));
    assert_near(found, 0.1 + load * 0.1 / (2.0 * (1.0 - load)), "four times M/D/1");
}

/// Computes the mean wait of M/D/c in units of the service time. A request in service at some time
/// is gone one service time later, and a waiting one is not, so the number there after a service
/// time is the number that waited and those that came meanwhile (Crommelin). Iterated until it
/// stands still, that gives how many are there; how many wait gives how long, by Little's law.
fn m_d_c_wait(servers: u8, load: f64) -> f64 {
    const NUMBERS: usize = 400;
    let arrivals_mean = f64::from(servers) * load;
    let servers = usize::from(servers);
    let next = |before: &f64, count: u32| *before * arrivals_mean / f64::from(count);
    let poisson = std::iter::successors(Some((0, (-arrivals_mean).exp())), |(count, chance)| {
        Some((count + 1, next(chance, count + 1)))
    });
    let poisson: Vec<f64> = poisson.map(|(_, chance)| chance).take(80).collect();
    let mut there = vec![0.0; NUMBERS];
    there[0] = 1.0;
    loop {
        let mut next = vec![0.0; NUMBERS];
        for (number, chance) in there.iter().enumerate() {
            for (came, probability) in poisson.iter().enumerate() {
                let after = (number.saturating_sub(servers) + came).min(NUMBERS - 1);
                next[after] += chance * probability;
            }
        }
        let moved: f64 = next.iter().zip(&there).map(|(a, b)| (a - b).abs()).sum();
        there = next;
        if moved < 1e-12 {
            break;
        }
    }
    let waiting =
        (0_u32..).zip(there.iter().skip(servers)).map(|(n, chance)| f64::from(n) * chance);
    waiting.sum::<f64>() / arrivals_mean
}

#[test]
fn the_formula_for_m_d_c_is_that_of_m_d_1_for_one_server() {
    for load in [0.3, 0.6, 0.8] {
        assert!((m_d_c_wait(1, load) - load / (2.0 * (1.0 - load))).abs() < 1e-6);
    }
}

#[test]
fn equal_requests_in_turn_wait_as_in_m_d_c() {
    // When all take equally long, the next of one line goes to the server that has served longest, so
    // one line for all and turns are the same thing.
    for (count, load) in [(2, 0.7), (4, 0.7), (4, 0.85), (8, 0.8)] {
        let servers = vec![server(100.0, 0.0); usize::from(count)];
        let per_second = f64::from(count) * load * 10.0;
        let found = mean_s(&servers, PolicyKind::ROUND_ROBIN, per_second, Spread::Fixed(1)) - 0.1;
        assert_near(found, 0.1 * m_d_c_wait(count, load), &format!("M/D/{count} at {load}"));
    }
}

#[test]
fn the_shortest_of_several_lines_lies_between_one_line_for_all_and_lines_at_random() {
    let load = 0.7;
    let servers = [server(100.0, 0.0); 4];
    let found = mean_s(&servers, PolicyKind::LEAST_REQUESTS, 4.0 * load * 10.0, Spread::Fixed(1));
    let random = 0.1 + load * 0.1 / (2.0 * (1.0 - load));
    let one_line = 0.1 + 0.1 * m_d_c_wait(4, load);
    assert!(one_line * 0.99 < found && found < random, "{one_line:.4} < {found:.4} < {random:.4}");
}
