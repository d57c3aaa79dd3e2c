//! The full traces against their published statistics: the real test of the readers. The traces are too
//! large for the repository, so `cargo xtask test --only traces` runs these tests, and they fail where
//! the files are absent.

use std::path::PathBuf;

use super::super::*;

/// What is published of a trace: requests, input mean, p50, p99, max, output mean, p50, p99, max, ideal
/// hit, unique blocks.
struct Published {
    file: &'static str,
    requests: u64,
    input: [f64; 4],
    output: [f64; 4],
    hit: f64,
    unique_blocks: u64,
}

const PUBLISHED: [Published; 7] = [
    Published {
        file: "mooncake-conversation.dev.jsonl.gz",
        requests: 7_689,
        input: [12_449.0, 7_284.0, 89_976.0, 124_847.0],
        output: [348.0, 356.0, 1_166.0, 2_000.0],
        hit: 0.357,
        unique_blocks: 123_815,
    },
    Published {
        file: "mooncake-synthetic.dev.jsonl.gz",
        requests: 2_599,
        input: [13_191.0, 5_824.0, 57_582.0, 191_374.0],
        output: [184.0, 135.0, 776.0, 842.0],
        hit: 0.438,
        unique_blocks: 39_239,
    },
    Published {
        file: "mooncake-toolagent-first1000.dev.jsonl.gz",
        requests: 1_000,
        input: [9_792.0, 6_558.0, 77_828.0, 121_290.0],
        output: [199.0, 34.0, 831.0, 2_000.0],
        hit: 0.391,
        unique_blocks: 12_207,
    },
    Published {
        file: "claude-code-sessions.dev.jsonl.gz",
        requests: 30_994,
        input: [117_359.0, 98_912.0, 520_463.0, 894_371.0],
        output: [435.0, 218.0, 3_711.0, 16_681.0],
        hit: 0.962,
        unique_blocks: 2_127_455,
    },
    Published {
        file: "tau-airline-gpt4o.dev.jsonl.gz",
        requests: 2_454,
        input: [2_781.0, 2_349.0, 7_440.0, 9_821.0],
        output: [66.0, 46.0, 289.0, 470.0],
        hit: 0.920,
        unique_blocks: 7_210,
    },
    Published {
        file: "azure2023-code.dev.jsonl.gz",
        requests: 7_148,
        input: [2_028.0, 1_460.0, 7_436.0, 7_437.0],
        output: [27.0, 13.0, 249.0, 1_899.0],
        hit: 0.0,
        unique_blocks: 0,
    },
    Published {
        file: "azure2023-conv.dev.jsonl.gz",
        requests: 13_828,
        input: [1_203.0, 1_016.0, 4_122.0, 14_050.0],
        output: [201.0, 115.0, 598.0, 1_000.0],
        hit: 0.0,
        unique_blocks: 0,
    },
];

/// A full trace.
fn full(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/traces").join(name)
}

fn near(found: Lengths, published: [f64; 4], what: &str) {
    let found = [found.mean, found.p50, found.p99, f64::from(found.max)];
    for (found, published) in found.into_iter().zip(published) {
        let error = (found - published).abs();
        assert!(error <= 1.0 + published * 1e-3, "{what}: {found} is not {published}");
    }
}

#[test]
#[ignore = "reads full traces: cargo xtask test --only traces"]
fn the_readers_find_the_published_statistics() {
    for published in PUBLISHED {
        let path = full(published.file);
        let found =
            TraceSummary::of(Workload::open(&path, None, &Replay::default()).unwrap()).unwrap();
        println!("{}: {found:?}", published.file);
        assert_eq!(found.requests, published.requests, "{}", published.file);
        near(found.input, published.input, published.file);
        near(found.output, published.output, published.file);
        assert!((found.ideal_hit - published.hit).abs() < 6e-4, "{}: {found:?}", published.file);
        if published.unique_blocks != 0 {
            assert_eq!(found.unique_blocks, published.unique_blocks, "{}", published.file);
        }
    }
}

#[test]
#[ignore = "reads full traces: cargo xtask test --only traces"]
fn recorded_spans_and_rates_are_kept() {
    for (file, span_s, rate) in [
        ("mooncake-conversation.dev.jsonl.gz", 2_358.0, 3.3),
        ("mooncake-synthetic.dev.jsonl.gz", 681.0, 3.8),
        ("azure2023-code.dev.jsonl.gz", 2_291.0, 3.1),
        ("azure2023-conv.dev.jsonl.gz", 2_334.0, 5.9),
    ] {
        let path = full(file);
        let found =
            TraceSummary::of(Workload::open(&path, None, &Replay::default()).unwrap()).unwrap();
        assert!((found.span_s - span_s).abs() < 3.1, "{file}: {}", found.span_s);
        assert!((found.per_second - rate).abs() < 0.051, "{file}: {}", found.per_second);
    }
}

#[test]
#[ignore = "reads full traces: cargo xtask test --only traces"]
fn servegen_clients_have_the_published_rates() {
    let path = full("servegen-mlarge-clients.dev.jsonl.gz");
    let clients = Clients::open(&path).unwrap();
    assert_eq!(clients.clients.len(), 162);
    let window_s = f64::from(clients.window_s);
    let sent =
        |client: &Client| client.windows.iter().map(|it| it.per_second * window_s).sum::<f64>();
    let mut sent: Vec<f64> = clients.clients.iter().map(sent).collect();
    sent.sort_by(|a, b| b.total_cmp(a));
    let all: f64 = sent.iter().sum();
    let top = |count: usize| sent[..count].iter().sum::<f64>() / all;
    assert!((all / (7.0 * 86_400.0) - 210.0).abs() < 1.0, "{all}");
    assert!((top(1) - 0.17).abs() < 0.005 && (top(10) - 0.70).abs() < 0.005);
    assert!((top(20) - 0.82).abs() < 0.005, "{}", top(20));
}

#[test]
#[ignore = "reads full traces: cargo xtask test --only traces"]
fn generated_servegen_arrivals_keep_the_rate_of_their_hour() {
    let path = full("servegen-mlarge-clients.dev.jsonl.gz");
    let (from, until) = (36_000, 39_600);
    let clients = Clients::open(&path).unwrap();
    let inside = |window: &&Window| (from..until).contains(&u64::from(window.start_s));
    let rate =
        |client: &Client| client.windows.iter().filter(inside).map(|it| it.per_second).sum::<f64>();
    let expected =
        clients.clients.iter().map(rate).sum::<f64>() * f64::from(clients.window_s) / 10.0;
    let replay = Replay {
        from: std::time::Duration::from_secs(from),
        until: std::time::Duration::from_secs(until),
        rate_scale: Scale::new(0.1).unwrap(),
        ..Replay::default()
    };
    let found = TraceSummary::of(Workload::open(&path, None, &replay).unwrap()).unwrap();
    println!("{found:?}, expected {expected}");
    assert!((found.input.mean - found.input.p50).abs() > 1.0 && found.tenants > 50);
    let requests = f64::from(u32::try_from(found.requests).unwrap());
    assert!((requests - expected).abs() / expected < 0.01, "{requests} is not {expected}");
}

#[test]
#[ignore = "reads full traces: cargo xtask test --only traces"]
fn tenants_over_claude_code_have_classes_and_prefixes() {
    let clients = full("servegen-mlarge-clients.dev.jsonl.gz");
    let content = full("claude-code-sessions.dev.jsonl.gz");
    let classes = [
        ClassShare {
            class: Class(0),
            share: 0.3,
            deadline: Some(std::time::Duration::from_secs(2)),
        },
        ClassShare { class: Class(1), share: 0.7, deadline: None },
    ];
    for pace in [Loop::Open, Loop::Closed] {
        let replay = Replay {
            pace,
            until: std::time::Duration::from_secs(1_800),
            rate_scale: Scale::new(0.02).unwrap(),
            requests_max: 5_000,
            think_max: std::time::Duration::from_secs(120),
            ..Replay::default()
        };
        let found =
            TraceSummary::of(Workload::compose(&clients, &content, &classes, &replay).unwrap());
        let found = found.unwrap();
        println!("{pace:?}: {found:?}");
        assert!(10 < found.tenants && found.tenants < found.sessions);
        assert!(0.5 < found.ideal_hit, "{found:?}");
    }
}
