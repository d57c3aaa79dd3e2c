//! Known results come out. Each test is a published finding, replayed here; those on the recorded
//! trace, which is too large for the repository, are run by `cargo xtask test --only traces` and fail
//! without it.

use std::path::Path;
use std::time::Duration;

use cleave_core::brain;
use cleave_core::policy::PolicyKind;
use cleave_sim::results::Results;
use cleave_sim::traces::{
    MultiTurn, Replay, Scale, SharedPrefix, Spread, Stage, Starts, Synthetic, Workload,
};
use cleave_sim::world::{ReplicaSettings, Unwatched, World, WorldSettings};

fn run(name: &str, replicas: usize, kv_tokens: u32, workload: &mut Workload) -> Results {
    let policy: PolicyKind =
        PolicyKind::among(cleave_sim::policies::ALL, name).expect("the policy exists");
    let mut replica = ReplicaSettings::default();
    replica.engine.kv_tokens = kv_tokens;
    let mut world = World::new(WorldSettings {
        replicas: vec![replica; replicas],
        brain: brain::Settings::without_line(policy),
        ..WorldSettings::default()
    });
    world.start_measuring();
    world.run(workload, &mut Unwatched).expect("the world comes to its end");
    Results::of(&world, name)
}

/// Plays the first ten minutes of the Mooncake conversation trace at twice its rate, on 8 replicas.
fn conversation(policy: &str) -> Results {
    let traces = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces");
    let trace = traces.join("mooncake-conversation.dev.jsonl.gz");
    let replay = Replay {
        rate_scale: Scale::new(2.0).expect("above zero"),
        until: Duration::from_secs(600),
        ..Replay::default()
    };
    let mut workload = Workload::open(&trace, None, &replay).expect("the trace can be read");
    run(policy, 8, 524_288, &mut workload)
}

/// Plays agents with a repository of 40,000 tokens each, `at_once` at a time, on 4 replicas.
fn agents(policy: &str, at_once: u32) -> Results {
    let agents = MultiTurn {
        sessions: u64::from(at_once) * 2,
        starts: Starts::Concurrent { sessions: at_once },
        shared_tokens: 3_000,
        system_tokens: Spread::Fixed(40_000),
        turns: Spread::Between { min: 4, mean: 12, max: 24 },
        input_tokens: Spread::LogNormal { mean: 1_500.0, cv: 1.0, min: 50, max: 10_000 },
        output_tokens: Spread::LogNormal { mean: 200.0, cv: 1.0, min: 10, max: 2_000 },
        think_ms: Spread::LogNormal { mean: 9_000.0, cv: 1.0, min: 500, max: 60_000 },
        sub_agents: None,
        context_tokens_max: 200_000,
    };
    let synthetic = Synthetic::MultiTurn(Box::new(agents));
    run(policy, 4, 524_288, &mut Workload::synthetic(&synthetic, &Replay::default()))
}

#[test]
#[ignore = "reads a full trace: cargo xtask test --only traces"]
fn on_conversations_random_is_far_behind_least_load_and_that_behind_cache_aware() {
    let [random, least, mooncake, dynamo, lmetric] =
        ["random", "least_requests", "mooncake", "dynamo_16", "lmetric"]
            .map(|policy| conversation(policy).ttft_s.mean);
    assert!(2.0 * least < random, "random {random:.3} s, least requests {least:.3} s");
    for (name, cache_aware) in [("mooncake", mooncake), ("dynamo_16", dynamo), ("lmetric", lmetric)]
    {
        assert!(cache_aware < least, "{name} {cache_aware:.3} s, least requests {least:.3} s");
    }
}

#[test]
#[ignore = "reads a full trace: cargo xtask test --only traces"]
fn dynamo_is_better_with_a_prefill_weight_of_16_than_of_1() {
    let (one, sixteen) = (conversation("dynamo"), conversation("dynamo_16"));
    assert!(sixteen.ttft_s.mean < one.ttft_s.mean);
    assert!(one.hit < sixteen.hit);
}

#[test]
fn a_consistent_hash_loses_its_hits_when_sessions_exceed_a_replicas_kv() {
    let (few, many) = (agents("consistent_hash", 8), agents("consistent_hash", 80));
    assert!(0.8 < few.hit, "{}", few.hit);
    assert!(many.hit < 0.5 * few.hit, "{} with few sessions, {} with many", few.hit, many.hit);
}

#[test]
fn one_common_prefix_makes_a_naive_cache_aware_rule_herd() {
    let shared = |policy| {
        let stage =
            Stage { per_second: 12.0, lasts: Duration::from_secs(120), pause: Duration::ZERO };
        let synthetic = Synthetic::SharedPrefix(SharedPrefix {
            groups: 1,
            prompts_per_group: None,
            prefix_tokens: 6_000,
            question_tokens: 1_000,
            output_tokens: 200,
            stages: vec![stage],
        });
        run(policy, 8, 524_288, &mut Workload::synthetic(&synthetic, &Replay::default()))
    };
    let (herding, even) = (shared("sglang_cache_aware"), shared("least_requests"));
    assert!(even.load_max_over_mean < 1.3, "{}", even.load_max_over_mean);
    assert!(4.0 < herding.load_max_over_mean, "{}", herding.load_max_over_mean);
    assert!(even.ttft_s.mean < herding.ttft_s.mean);
}

#[test]
fn least_work_without_a_cache_term_is_poor_on_agents() {
    let (blind, keeping) = (agents("least_work", 24), agents("session", 24));
    assert!(blind.hit < 0.5 * keeping.hit, "{} and {}", blind.hit, keeping.hit);
    assert!(2.0 * keeping.ttft_s.mean < blind.ttft_s.mean);
}
