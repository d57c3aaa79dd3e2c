//! Generators keep their parameters, tenants keep their order, and a seed is a seed.

use std::collections::BTreeSet;
use std::time::Duration;

use cleave_core::domain::Moment;

use super::super::*;
use super::{play, sample};

fn preset(name: &str, replay: &Replay) -> Workload {
    Workload::synthetic(&presets::named(name).unwrap(), replay)
}

fn described(name: &str, replay: &Replay) -> TraceSummary {
    let summary = TraceSummary::of(preset(name, replay)).unwrap();
    println!("{name}: {summary:?}");
    summary
}

fn about(found: f64, expected: f64, tolerance: f64) {
    assert!((found / expected - 1.0).abs() < tolerance, "{found} is not about {expected}");
}

fn at_most(requests_max: u64) -> Replay {
    Replay { requests_max, ..Replay::default() }
}

#[test]
fn every_preset_generates_the_same_from_the_same_seed() {
    for name in presets::names() {
        let print = |seed| {
            let replay = Replay { seed, ..at_most(300) };
            let requests = play(preset(name, &replay));
            requests.iter().map(|it| format!("{it:?}")).collect::<Vec<_>>()
        };
        assert_eq!(print(1), print(1), "{name}");
        assert_ne!(print(1), print(2), "{name}");
        assert_eq!(print(1).len(), 300, "{name}");
    }
}

#[test]
fn b2b_saas_has_the_published_working_set_and_load() {
    let summary = described("b2b-saas", &Replay::default());
    // 150 prefixes of 6,000 tokens and 750 questions of 1,200: 1.8 million tokens.
    assert_eq!(summary.unique_blocks, 150 * 375 + 750 * 75);
    let requests = [
        (15, 50),
        (3, 20),
        (10, 20),
        (15, 20),
        (20, 38),
        (22, 34),
        (25, 30),
        (30, 25),
        (35, 21),
        (40, 38),
        (43, 36),
        (46, 33),
        (49, 30),
        (52, 29),
        (55, 27),
        (57, 26),
        (60, 25),
    ];
    let expected: u32 = requests.iter().map(|(rate, lasts)| rate * lasts).sum();
    about(f64::from(u32::try_from(summary.requests).unwrap()), f64::from(expected), 0.03);
    assert_eq!(summary.input.max, 7_200);
}

#[test]
fn smg_asks_each_of_600_prefixes_three_times() {
    let summary = described("smg-600-prefixes", &Replay::default());
    about(f64::from(u32::try_from(summary.requests).unwrap()), 1_800.0, 0.06);
    about(summary.per_second, 32.0, 0.06);
    // Two of three requests find their prefix: 2/3 of 1,024 in 1,280 tokens.
    about(summary.ideal_hit, 2.0 / 3.0 * 0.8, 0.06);
}

#[test]
fn code_generation_has_the_published_means() {
    let summary = described("code-generation", &Replay::default());
    about(f64::from(u32::try_from(summary.requests).unwrap()), 6_000.0, 0.1);
    about(summary.output.mean, 800.0, 0.05);
    assert_eq!(summary.sessions, 1_000);
    assert!(0.7 < summary.ideal_hit);
}

#[test]
fn half_of_the_agentic_requests_come_from_sub_agents() {
    let requests = play(preset("agentic", &at_most(20_000)));
    let subs = requests.iter().filter(|it| it.stream != 0).count();
    let share = f64::from(u32::try_from(subs).unwrap()) / 20_000.0;
    assert!((0.4..0.6).contains(&share), "{share}");
}

#[test]
fn heavy_tails_are_heavy() {
    let summary = described("heavy-tail", &at_most(20_000));
    assert!(summary.input.p50 < 100.0 && 50_000 < summary.input.max, "{summary:?}");
    assert!(summary.ideal_hit < 1e-9);
}

#[test]
fn turns_of_a_generated_conversation_build_on_each_other() {
    let requests = play(preset("multi-turn", &at_most(3_000)));
    let mut last = std::collections::BTreeMap::new();
    for request in requests {
        let mut seen = Seen::default();
        if let Some(before) = last.insert(request.session, request.prompt.clone()) {
            seen.insert(&before);
            assert_eq!(seen.cached_tokens(&request.prompt), before.covered_tokens());
        }
    }
}

#[test]
fn a_million_requests_are_generated_without_being_held() {
    let mut workload = preset("b2b-saas", &Replay::default());
    let stages = vec![Stage {
        per_second: 1_000.0,
        lasts: Duration::from_secs(1_100),
        pause: Duration::ZERO,
    }];
    if let Some(Synthetic::SharedPrefix(recipe)) = presets::named("b2b-saas") {
        let recipe = Synthetic::SharedPrefix(SharedPrefix { stages, ..recipe });
        workload = Workload::synthetic(&recipe, &at_most(1_000_000));
    }
    let mut requests = 0;
    let mut before = Moment::ZERO;
    while let Some(request) = workload.take().unwrap() {
        assert!(before <= request.arrival);
        before = request.arrival;
        requests += 1;
    }
    assert_eq!(requests, 1_000_000);
}

fn composed(replay: &Replay, content: &str) -> Workload {
    let classes = [
        ClassShare { class: Class(0), share: 1.0, deadline: Some(Duration::from_secs(2)) },
        ClassShare { class: Class(2), share: 1.0, deadline: None },
    ];
    let clients = sample("servegen-clients.jsonl");
    Workload::compose(&clients, &sample(content), &classes, replay).unwrap()
}

#[test]
fn tenants_send_recorded_content_at_their_own_pace() {
    for pace in [Loop::Open, Loop::Closed] {
        let replay = Replay { pace, until: Duration::from_secs(3_600), ..at_most(2_000) };
        let requests = play(composed(&replay, "mooncake-conversation.jsonl"));
        assert!(1_000 < requests.len());
        assert!(requests.is_sorted_by_key(|it| it.arrival));
        let tenants: BTreeSet<_> = requests.iter().map(|it| it.tenant).collect();
        assert!(2 < tenants.len());
        for &tenant in &tenants {
            let classes = requests.iter().filter(|it| it.tenant == tenant);
            let classes: BTreeSet<_> = classes.map(|it| (it.class, it.deadline)).collect();
            assert_eq!(classes.len(), 1, "a tenant is of one class");
        }
    }
}

#[test]
fn tenants_never_share_a_block() {
    let replay = Replay { until: Duration::from_secs(3_600), ..at_most(1_000) };
    let requests = play(composed(&replay, "mooncake-conversation.jsonl"));
    let blocks = |wanted: bool| {
        let first = requests[0].tenant;
        let chosen = requests.iter().filter(move |it| (it.tenant == first) == wanted);
        chosen
            .flat_map(|it| it.prompt.runs().to_vec())
            .map(|run| run.space)
            .collect::<BTreeSet<_>>()
    };
    assert!(blocks(true).is_disjoint(&blocks(false)));
}

#[test]
fn content_dealt_again_is_new_content() {
    let replay = Replay { until: Duration::from_secs(7_200), ..at_most(4_000) };
    let once = super::summary("mooncake-conversation.jsonl", &Replay::default());
    let many = TraceSummary::of(composed(&replay, "mooncake-conversation.jsonl")).unwrap();
    assert!(10 * once.unique_blocks < many.unique_blocks, "{many:?}");
}
