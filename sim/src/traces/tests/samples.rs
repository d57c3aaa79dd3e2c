//! Every format is read from a sample, told by its first line, cut, squeezed and looped.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::Duration;

use cleave_core::domain::Moment;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::super::*;
use super::{play, sample, summary};

fn seconds(at: f64) -> Moment {
    Moment::ZERO + Duration::from_secs_f64(at)
}

#[test]
fn every_sample_is_read_by_its_first_line() {
    let expected = [
        ("mooncake-conversation.jsonl", 74, 40),
        ("mooncake-toolagent.jsonl", 40, 26),
        ("azure-code.jsonl", 60, 60),
        ("azure-conv.jsonl", 60, 60),
        ("claude-code-sessions.jsonl", 257, 8),
        ("tau-airline.jsonl", 344, 24),
        ("lmcache-agent.jsonl", 20, 4),
        ("lmcache-agentic.jsonl", 15, 3),
        ("bailian.jsonl", 40, 10),
        ("burstgpt.csv", 25, 25),
        ("burstgpt-sessions.csv", 23, 9),
    ];
    for (name, requests, sessions) in expected {
        let summary = summary(name, &Replay::default());
        assert_eq!((summary.requests, summary.sessions), (requests, sessions), "{name}");
        assert!(0.0 < summary.input.mean && 0.0 < summary.output.mean, "{name}: {summary:?}");
    }
}

#[test]
fn content_is_shared_where_the_format_tells_content() {
    for name in ["mooncake-conversation.jsonl", "claude-code-sessions.jsonl", "tau-airline.jsonl"] {
        assert!(0.1 < summary(name, &Replay::default()).ideal_hit, "{name}");
    }
    for name in ["bailian.jsonl", "lmcache-agent.jsonl", "lmcache-agentic.jsonl"] {
        assert!(0.5 < summary(name, &Replay::default()).ideal_hit, "{name}");
    }
    for name in ["azure-code.jsonl", "burstgpt.csv", "burstgpt-sessions.csv"] {
        assert!(summary(name, &Replay::default()).ideal_hit < 1e-9, "{name}");
    }
}

#[test]
fn a_packed_file_reads_like_a_plain_one() {
    let name = "tau-airline.jsonl";
    let path = std::env::temp_dir().join(format!("cleave-{}-{name}.gz", std::process::id()));
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(&std::fs::read(sample(name)).unwrap()).unwrap();
    std::fs::write(&path, packed.finish().unwrap()).unwrap();
    let unpacked =
        TraceSummary::of(Workload::open(&path, None, &Replay::default()).unwrap()).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(unpacked, summary(name, &Replay::default()));
}

#[test]
fn a_bad_line_is_named() {
    let path = std::env::temp_dir().join(format!("cleave-bad-{}.jsonl", std::process::id()));
    let good = r#"{"timestamp":5,"input_length":10,"output_length":1}"#;
    for (bad, problem) in [
        (r#"{"timestamp":5,"input_length":-1,"output_length":1}"#, "invalid value"),
        (r#"{"timestamp":5,"input_length":10"#, "EOF"),
        (r#"{"timestamp":4,"input_length":10,"output_length":1}"#, "backwards"),
        (r#"{"timestamp":6,"input_length":10,"output_length":1,"hash_ids":[1,2]}"#, "2 hash_ids"),
    ] {
        std::fs::write(&path, format!("{good}\n\n{bad}\n")).unwrap();
        let mut workload = Workload::open(&path, None, &Replay::default()).unwrap();
        let error = loop {
            match workload.take() {
                Ok(Some(_)) => {}
                Ok(None) => panic!("{bad} was read"),
                Err(error) => break error.to_string(),
            }
        };
        assert!(error.contains("line 3") && error.contains(problem), "{error}");
        assert!(error.contains("cleave-bad"), "{error}");
    }
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_unknown_format_is_refused_unless_named() {
    let path = std::env::temp_dir().join(format!("cleave-odd-{}.jsonl", std::process::id()));
    std::fs::write(&path, "{\"odd\":1}\n").unwrap();
    let error = Workload::open(&path, None, &Replay::default()).unwrap_err().to_string();
    assert!(error.contains("mooncake"), "{error}");
    assert!(Workload::open(&path, Some(Format::Azure), &Replay::default()).is_ok());
    std::fs::write(&path, "").unwrap();
    let error = Workload::open(&path, None, &Replay::default()).unwrap_err().to_string();
    assert!(error.contains("no lines"), "{error}");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn ties_are_spread_by_seed_and_stay_in_their_bucket() {
    let read = |seed| {
        let replay = Replay { seed, ..Replay::default() };
        play(Workload::open(&sample("mooncake-conversation.jsonl"), None, &replay).unwrap())
    };
    let (one, again, other) = (read(1), read(1), read(2));
    let arrivals = |requests: &[Request]| requests.iter().map(|it| it.arrival).collect::<Vec<_>>();
    assert_eq!(arrivals(&one), arrivals(&again));
    assert_ne!(arrivals(&one), arrivals(&other));
    assert!(arrivals(&one).is_sorted());
    let distinct: BTreeSet<_> = arrivals(&one).into_iter().collect();
    assert_eq!(distinct.len(), one.len());
    let lengths = |it: &[Request]| it.iter().map(|it| it.prompt.tokens()).collect::<Vec<_>>();
    assert_eq!(lengths(&one), lengths(&other), "spreading keeps the order");
}

#[test]
fn a_window_is_cut_before_time_is_squeezed() {
    let replay = Replay {
        from: Duration::from_secs(6),
        until: Duration::from_secs(15),
        rate_scale: Scale::new(3.0).unwrap(),
        ..Replay::default()
    };
    let whole = summary("mooncake-conversation.jsonl", &Replay::default());
    let part = summary("mooncake-conversation.jsonl", &replay);
    assert!(part.requests < whole.requests && 0 < part.requests);
    assert!(part.span_s < 3.0, "{part:?}");
    let few = Replay { requests_max: 7, prompt_tokens_max: 9_000, ..Replay::default() };
    let few = summary("mooncake-conversation.jsonl", &few);
    assert_eq!(few.requests, 7);
    assert!(few.input.max <= 9_000);
    assert!(Scale::new(0.0).is_err() && Scale::new(f64::NAN).is_err());
}

#[test]
fn in_a_closed_loop_the_next_turn_waits_for_the_end_and_the_think_time() {
    let starts = Starts::Concurrent { sessions: 1 };
    let replay = Replay { pace: Loop::Closed, starts, ..Replay::default() };
    let mut workload = Workload::open(&sample("tau-airline.jsonl"), None, &replay).unwrap();
    let first = workload.take().unwrap().unwrap();
    assert_eq!(workload.next_arrival().unwrap(), None, "one session at a time");
    workload.on_end(seconds(40.0), first.ticket);
    let second = workload.take().unwrap().unwrap();
    assert_eq!(second.session, first.session);
    assert_eq!(second.arrival, seconds(40.0) + second.think.unwrap());
}

#[test]
fn a_closed_loop_plays_every_turn_of_the_recording() {
    for name in ["claude-code-sessions.jsonl", "mooncake-conversation.jsonl", "bailian.jsonl"] {
        let closed = Replay { pace: Loop::Closed, ..Replay::default() };
        let (open, closed) = (summary(name, &Replay::default()), summary(name, &closed));
        assert_eq!(open.requests, closed.requests, "{name}");
        assert_eq!(open.input_tokens, closed.input_tokens, "{name}");
    }
}

#[test]
fn sub_agents_are_streams_of_their_session() {
    let path = sample("claude-code-sessions.jsonl");
    let requests = play(Workload::open(&path, None, &Replay::default()).unwrap());
    let subs: BTreeSet<_> =
        requests.iter().filter(|it| it.stream != 0).map(|it| it.session).collect();
    let mains: BTreeSet<_> =
        requests.iter().filter(|it| it.stream == 0).map(|it| it.session).collect();
    assert_eq!(subs.len(), 2);
    assert!(subs.is_subset(&mains));
}

#[test]
fn tool_definitions_are_shared_on_request() {
    let hit = |share_tools| {
        summary("claude-code-sessions.jsonl", &Replay { share_tools, ..Replay::default() })
            .ideal_hit
    };
    assert!(hit(false) < hit(true));
}
