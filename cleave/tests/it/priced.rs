//! The default policy: sessions stay with their cache, and work follows what replicas can do.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::process::{Command, Output};

use serde::Deserialize;
use tokio::task::JoinSet;

use crate::support::{Mock, Request, Router, Scripted, ask, json_answer};

#[derive(Deserialize)]
struct Chat {
    usage: Usage,
}

#[derive(Deserialize)]
struct Usage {
    prompt_tokens_details: Details,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: u32,
}

/// Starts a router that is told nothing of policies.
async fn by_default(replicas: &str, count: usize) -> Router {
    let router = Router::start_with(&format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nthreads = 2\n\
         health.interval = \"100ms\"\nreplicas = [{replicas}]\n"
    ));
    router.until("all replicas are up", |it| it.count(|it| it.state == "up") == count).await;
    router
}

fn chat(messages: &str) -> Request {
    let body = format!("{{\"model\":\"m\",\"max_tokens\":4,\"messages\":[{messages}]}}");
    Request::post("/v1/chat/completions", body)
}

fn said(role: &str, text: &str) -> String {
    format!("{{\"role\":\"{role}\",\"content\":\"{text}\"}}")
}

#[tokio::test]
async fn a_session_stays_with_its_cache_though_nothing_names_it() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "50"])).collect();
    let urls: Vec<String> = mocks.iter().map(|it| format!("\"{}\"", it.url())).collect();
    let router = by_default(&urls.join(","), 3).await;
    let status = ask(router.admin, &Request::get("/status")).await.json();
    assert_eq!(status["pools"][0]["policy"], "priced", "{status}");
    let mut homes = BTreeSet::new();
    for session in 0..24 {
        // About a thousand tokens that no other session has.
        let mut messages = said("system", &format!("{session} is a number. ").repeat(250));
        let mut home = None;
        for turn in 0..4 {
            write!(messages, ",{}", said("user", &format!("turn {turn}"))).unwrap();
            let answer = router.ask(&chat(&messages)).await;
            let replica = answer.header("x-mock-replica").unwrap().to_owned();
            assert_eq!(home.get_or_insert(replica.clone()), &replica, "{session}, turn {turn}");
            let chat: Chat = serde_json::from_slice(&answer.body).unwrap();
            let cached = chat.usage.prompt_tokens_details.cached_tokens;
            assert!(turn == 0 || 500 < cached, "{}", answer.text());
            write!(messages, ",{}", said("assistant", "yes")).unwrap();
        }
        homes.extend(home);
    }
    assert_eq!(homes.len(), 3, "no replica is without a session");
}

#[tokio::test]
async fn an_adapter_stays_where_it_is_loaded_and_the_model_without_one_goes_anywhere() {
    let answers = || Scripted::start(|it| it.answer(json_answer(200, "{}")));
    let replicas = [answers().await, answers().await];
    let urls = replicas.each_ref().map(|it| format!("\"http://{}\"", it.address)).join(",");
    let router = by_default(&urls, 2).await;
    let mut counts = Vec::new();
    for model in ["m", "m-sql"] {
        let before = replicas.each_ref().map(Scripted::hits);
        for session in 0..16 {
            let body = format!(
                "{{\"model\":\"{model}\",\"messages\":[{}]}}",
                said("user", &format!("question {session}"))
            );
            let asked = router.ask(&Request::post("/v1/chat/completions", body)).await;
            assert_eq!(asked.status(), 200, "{}", asked.text());
        }
        let hits = replicas.each_ref().map(Scripted::hits);
        counts.push([0, 1].map(|it| hits[it] - before[it]));
    }
    assert!(!counts[0].contains(&0), "sessions of the model are spread: {counts:?}");
    assert!(counts[1].contains(&16), "those of the adapter are not: {counts:?}");
}

#[tokio::test]
async fn in_a_mixed_pool_each_replica_gets_what_it_can_do() {
    // An L40S has a little less than a fifth of an H200's memory bandwidth.
    let fast = Mock::start(&["--speed", "5"]);
    let slow = Mock::start(&["--speed", "5", "--slow-factor", "5.5"]);
    let replicas = format!(
        "{{ url = \"{}\", class = \"h200\" }}, {{ url = \"{}\", class = \"l40s\" }}",
        fast.url(),
        slow.url()
    );
    let router = by_default(&replicas, 2).await;
    let mut clients = JoinSet::new();
    for client in 0..16 {
        let address = router.address;
        clients.spawn(async move {
            let mut counts = BTreeMap::new();
            for number in 0..12 {
                let text = format!("{client} and {number} ").repeat(400);
                let answer = ask(address, &chat(&said("user", &text))).await;
                assert_eq!(answer.status(), 200, "{}", answer.text());
                let replica = answer.header("x-mock-replica").unwrap().to_owned();
                *counts.entry(replica).or_insert(0) += 1;
            }
            counts
        });
    }
    let mut counts = BTreeMap::new();
    for (replica, count) in clients.join_all().await.into_iter().flatten() {
        *counts.entry(replica).or_insert(0) += count;
    }
    let of = |mock: &Mock| counts.get(&mock.address.to_string()).copied().unwrap_or(0);
    assert!(3 * of(&slow) <= of(&fast), "{counts:?}");
    assert!(0 < of(&slow), "it does what it can: {counts:?}");
}

#[test]
fn a_file_of_coefficients_that_is_wrong_is_named_with_key_and_remedy() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let name = format!("cleave-priced-{}", std::process::id());
    let (costs, config) = (folder.join(format!("{name}-costs.toml")), folder.join(name));
    std::fs::write(&costs, "[[coefficients]]\nmodel = \"m\"\n").unwrap();
    let text = format!("costs = {:?}\nreplicas = [\"http://a:1\"]\n", costs.to_str().unwrap());
    std::fs::write(&config, text).unwrap();
    let program = env!("CARGO_BIN_EXE_cleave");
    let arguments = ["check-config", "--config", config.to_str().unwrap()];
    let Output { status, stderr, .. } = Command::new(program).args(arguments).output().unwrap();
    _ = std::fs::remove_file(&costs);
    _ = std::fs::remove_file(&config);
    let said = String::from_utf8(stderr).unwrap();
    assert_eq!(status.code(), Some(64), "{said}");
    for part in ["costs: ", "-costs.toml: ", "missing field", "remedy: ", "cleave calibrate"] {
        assert!(said.contains(part), "{said} has no {part}");
    }
}
