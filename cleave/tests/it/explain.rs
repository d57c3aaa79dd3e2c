//! Why a request went where it went: what is kept of decisions, what opens it, and how it is shown.

use std::process::Command;
use std::time::Duration;

use crate::support::{
    Answer, Json, Mock, Request, Router, Scripted, Wire, ask, config, eventually, json_answer,
    sse_head,
};

async fn explained(router: &Router, path: &str) -> Answer {
    ask(router.admin, &Request::get(path)).await
}

/// Runs `cleave explain` against the router; returns what it prints, and what it complains of.
fn command(router: &Router, arguments: &[&str]) -> (String, String) {
    let admin = format!("http://{}", router.admin);
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.arg("explain").args(["--admin", &admin]).args(arguments);
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (text(output.stdout), text(output.stderr))
}

/// A chat that must be explained.
fn chat(id: &str) -> Request {
    Request::chat("hi").header("x-request-id", id).header("x-cleave-explain", "1")
}

/// Lets clients ask, and keeps nothing else.
const CLIENTS_ASK: &str = "explain.sample = 0\nexplain.clients = true\n";

#[tokio::test]
async fn a_client_that_may_ask_is_shown_what_is_its_own_and_an_operator_all_of_it() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let router = Router::start(&urls, CLIENTS_ASK).await;
    let answer = router.ask(&chat("r-1")).await;
    let decision = answer.header("x-cleave-decision").expect("it was asked for");
    assert!(decision.starts_with("sent try=1 prompt_tokens="), "{decision}");

    let page = explained(&router, "/explain/r-1").await;
    assert_eq!(page.status(), 200, "{}", page.text());
    let it = page.json();
    assert_eq!((&it["request_id"], &it["pool"]), (&"r-1".into(), &"default".into()), "{it}");
    let placed = &it["tries"][0];
    assert_eq!(placed["candidates_total"], 3, "{it}");
    let others = placed["what_if"].as_array().expect("there are others");
    for policy in ["round_robin", "power_of_two"] {
        assert!(others.iter().any(|it| it["policy"] == policy), "{policy} is not in {it}");
    }
    let came = &it["outcome"];
    assert_eq!((&came["outcome"], &came["status"]), (&"done".into(), &200.into()), "{it}");
    assert!(came["input_tokens"].is_number(), "{it}");
    let (shown, _) = command(&router, &["r-1"]);
    for wanted in ["request r-1 in pool default", "→", "what others would have done", "status 200"]
    {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    let (json, _) = command(&router, &["r-1", "--json"]);
    let json: Json = serde_json::from_str(&json).unwrap();
    assert_eq!(json["request_id"], "r-1", "{json}");
}

#[tokio::test]
async fn a_second_turn_goes_where_its_cache_is_and_says_so() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let token = "policy = \"priced\"\nadmin.token = \"hunter2\"\nexplain.sample = 0";
    let weighed: Vec<_> = urls.iter().map(|it| (it.as_str(), 1.0)).collect();
    let router = Router::start_with(&config(&weighed, token));
    let ready = async || ask(router.admin, &Request::get("/readyz")).await.status() == 200;
    eventually("it is ready", ready).await;
    let long = Request::chat(&"one two ".repeat(2000)).header("x-cleave-explain", "hunter2");
    let decision = async || {
        let answer = router.ask(&long).await;
        answer.header("x-cleave-decision").expect("it was asked for").to_owned()
    };
    let (first, second) = (decision().await, decision().await);
    assert!(first.contains(" cached_tokens=0 "), "{first}");
    for shown in [&first, &second] {
        let term = |name: &str| -> f64 {
            let mut words = shown.split(' ').filter_map(|it| it.strip_prefix(name));
            words.find_map(|it| it.strip_prefix("_ms=")).unwrap().parse().unwrap()
        };
        let terms = ["wait", "prefill", "late", "evict", "crowd", "slow", "weight"];
        let sum: f64 = terms.into_iter().map(term).sum();
        assert!((sum - term("price")).abs() < 1e-6, "{shown}");
    }
    assert!(second.contains(" why=cache ") || second.contains(" why=only "), "{second}");
    let home = |it: &str| it.split(' ').next().map(str::to_owned);
    assert!(urls.iter().any(|it| Some(it) == home(&first).as_ref()), "{first}");
    assert_eq!(home(&first), home(&second), "the same replica");
    let metrics = Request::get("/metrics").header("authorization", "Bearer hunter2");
    let metrics = ask(router.admin, &metrics).await;
    let shadows = "cleave_shadow_decisions_total{pool=\"default\"} 2";
    assert!(metrics.text().contains(shadows), "{}", metrics.text());
}

#[tokio::test]
async fn a_client_learns_nothing_of_replicas_or_of_what_others_sent() {
    let mocks: Vec<Mock> = (0..2).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let long = || Request::chat(&"a word of somebody else ".repeat(500));
    let asks = || long().header("authorization", "Bearer b").header("x-cleave-explain", "1");
    for settings in ["", CLIENTS_ASK] {
        let router = Router::start(&urls, settings).await;
        router.ask(&long().header("authorization", "Bearer a")).await;
        let answer = router.ask(&asks()).await;
        let shown = answer.header("x-cleave-decision");
        assert_eq!(shown.is_some(), !settings.is_empty(), "only where an operator allows it");
        let telling = ["http", "127.0.0.1", "cached", "why=", "_ms=", "candidates"];
        let shown = shown.unwrap_or_default();
        assert!(telling.iter().all(|it| !shown.contains(it)), "{shown}");
    }
}

#[tokio::test]
async fn where_tenants_are_apart_a_client_sees_what_it_has_cached_itself() {
    let mock = Mock::start(&["--speed", "inf"]);
    let file = format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n{CLIENTS_ASK}[[pools]]\n\
         name = \"chat\"\ncache = \"per_tenant\"\nreplicas = [\"{}\"]\n",
        mock.url()
    );
    let router = Router::start_with(&file);
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    let cached = async |key: &str| {
        let long = Request::chat(&"one two ".repeat(2000)).header("x-cleave-explain", "1");
        let answer = router.ask(&long.header("authorization", key)).await;
        let decision = answer.header("x-cleave-decision").unwrap().to_owned();
        let figure = decision.split(' ').find_map(|it| it.strip_prefix("cached_tokens="));
        figure.expect("its own").parse::<u32>().unwrap()
    };
    assert_eq!(cached("Bearer a").await, 0);
    assert_eq!(cached("Bearer b").await, 0, "another's is not its own");
    assert!(0 < cached("Bearer a").await);
}

#[tokio::test]
async fn who_does_not_ask_is_shown_nothing_and_kept_by_lot() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "explain.sample = 1").await;
    let quiet = Request::chat("a secret word").header("x-request-id", "q-1");
    let answer = router.ask(&quiet).await;
    assert_eq!(answer.header("x-cleave-decision"), None);
    let page = explained(&router, "/explain").await;
    let list = page.json();
    assert_eq!(list[0]["request_id"], "q-1", "{list}");
    assert_eq!(list[0]["tries"][0]["why"], "only", "{list}");
    assert!(!page.text().contains("secret"), "no text is kept: {list}");
    assert!(command(&router, &[]).0.contains("q-1"));
}

#[tokio::test]
async fn a_decision_that_was_not_kept_is_a_404_that_says_how_to_keep_it() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "explain.sample = 0").await;
    router.ask(&Request::chat("hi").header("x-request-id", "r/2")).await;
    let page = explained(&router, "/explain/r/2").await;
    assert_eq!(page.status(), 404);
    for wanted in ["0% of all are (explain.sample)", "x-cleave-explain"] {
        assert!(page.text().contains(wanted), "{}", page.text());
    }
    assert!(command(&router, &["r/2"]).1.contains("no decision is kept under this id"));
}

#[tokio::test]
async fn every_try_is_explained() {
    let well = Scripted::answering(json_answer(200, "{}")).await;
    let ill = Scripted::answering(json_answer(503, "{}")).await;
    let settings = format!("policy = \"round_robin\"\n{CLIENTS_ASK}");
    let router = Router::start(&[ill.url(), well.url()], &settings).await;
    // One of the first two comes to the one that is not well.
    for number in 0..2 {
        assert_eq!(router.ask(&chat(&format!("r-{number}"))).await.status(), 200);
    }
    let list = explained(&router, "/explain").await.json();
    let mut tries = list.as_array().unwrap().iter().flat_map(|it| it["tries"].as_array().unwrap());
    assert!(tries.any(|it| it["why"] == "retry"), "{list}");
}

/// Asks for a stream under an id.
fn streamed(id: &str) -> Request {
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    Request::post("/v1/chat/completions", body).header("x-request-id", id)
}

const TOKEN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";

#[tokio::test]
async fn a_slow_request_is_always_kept_and_its_verdict_says_what_was_slow() {
    // Longer than is noticed, and many times what is expected of an idle replica.
    let pause = Duration::from_millis(800);
    let replica = Scripted::start(move |mut exchange| async move {
        exchange.body().await;
        let first = exchange.head.header("x-request-id") == Some("late");
        exchange.send(sse_head()).await;
        tokio::time::sleep(if first { pause } else { Duration::ZERO }).await;
        exchange.chunk(TOKEN).await;
        tokio::time::sleep(if first { Duration::ZERO } else { pause }).await;
        exchange.chunk(TOKEN).await;
        exchange.send("0\r\n\r\n").await;
    })
    .await;
    let router = Router::start(&[replica.url()], "explain.sample = 0").await;
    for (id, verdict) in [("late", "slow first token: "), ("slow", "slow replica: ")] {
        assert_eq!(router.ask(&streamed(id)).await.status(), 200);
        let page = explained(&router, &format!("/explain/{id}")).await;
        let it = page.json();
        assert_eq!(it["kept_for"], "slow", "{it}");
        assert!(it["verdict"].as_str().unwrap().starts_with(verdict), "{it}");
        let stages = it["life"].as_array().unwrap().iter();
        let stages: Vec<&str> = stages.map(|it| it["stage"].as_str().unwrap()).collect();
        let (begin, rest) = stages.split_at(5);
        assert_eq!(begin, ["arrival", "line", "try", "answer", "first_token"], "{it}");
        assert!(rest.contains(&"gaps") && rest.last() == Some(&"end"), "{it}");
        let at = |it: &Json| it["at_ms"].as_f64().unwrap();
        let life = it["life"].as_array().unwrap();
        assert!(life[..5].is_sorted_by(|a, b| at(a) <= at(b)), "{it}");
        assert!(life[4]["expected_ms"].is_number() && life[4]["took_ms"].is_number(), "{it}");
        let (shown, _) = command(&router, &[id]);
        assert!(shown.contains(&format!("verdict: {verdict}")), "{shown}");
    }
    let (list, _) = command(&router, &["--kept-for", "slow"]);
    assert!(list.contains("late") && list.contains("slow replica: "), "{list}");
    assert!(!command(&router, &["--kept-for", "held"]).0.contains("late"));
}

#[tokio::test]
async fn failed_and_retried_requests_are_always_kept() {
    let well = Scripted::answering(json_answer(200, "{}")).await;
    let ill = Scripted::answering(json_answer(503, "{}")).await;
    let settings = "policy = \"round_robin\"\nexplain.sample = 0";
    let router = Router::start(&[ill.url(), well.url()], settings).await;
    // One of the first two comes to the one that is not well, if not both.
    for number in 0..2 {
        let request = Request::chat("hi").header("x-request-id", format!("r-{number}"));
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    let list = explained(&router, "/explain?kept_for=retried").await.json();
    assert!(!list.as_array().unwrap().is_empty(), "{list}");
    let tries = &list[0]["tries"];
    assert_eq!((&tries[0]["failed"], &tries[0]["why"]), (&"status".into(), &"unexplained".into()));
    assert_eq!(tries[0]["replica"], ill.url());
    assert_eq!((&tries[1]["why"], &tries[1]["replica"]), (&"retry".into(), &well.url().into()));
    assert!(list[0]["verdict"].is_string(), "{list}");
    drop(well);
    let alone = Router::start(&[ill.url()], "explain.sample = 0").await;
    alone.ask(&Request::chat("hi").header("x-request-id", "f")).await;
    let it = explained(&alone, "/explain/f").await.json();
    assert_eq!(it["life"].as_array().unwrap().last().unwrap()["stage"], "end", "{it}");
    assert!(["failed", "retried"].contains(&it["kept_for"].as_str().unwrap()), "{it}");
}

#[tokio::test]
async fn a_refused_request_is_explained_too() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let settings = format!("breaker.failures_max = 1\nhealth.interval = \"50ms\"\n{CLIENTS_ASK}");
    let router = Router::start(&[replica.url()], &settings).await;
    drop(replica);
    router.until("it is out", |it| it.count(|it| it.state == "out") == 1).await;
    let refused = async || router.ask(&chat("r-1")).await.status() == 503;
    eventually("a request is refused", refused).await;
    let page = explained(&router, "/explain/r-1").await;
    let refusal = page.json()["refusal"].as_str().unwrap().to_owned();
    // It may have been the one that tried whether the replica is back.
    assert!(["no_replica", "tries_spent"].contains(&refusal.as_str()), "{}", page.text());
}

#[tokio::test]
async fn where_there_is_a_token_neither_port_shows_anything_without_it() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start_with(&config(
        &[(&replica.url(), 1.0)],
        "admin.token = \"hunter2\"\nexplain.sample = 0",
    ));
    let mut asked = async |token: &str| {
        let request =
            Request::chat("hi").header("x-request-id", "r").header("x-cleave-explain", token);
        let answer = async {
            let mut client = Wire::connect(router.address).await;
            client.ask(&request).await
        };
        let serve = async {
            let exchange = requests.next().await;
            assert_eq!(exchange.head.header("x-cleave-explain"), None, "it goes no further");
            exchange.answer(json_answer(200, "{}")).await;
        };
        tokio::join!(answer, serve).0
    };
    assert_eq!(asked("1").await.header("x-cleave-decision"), None);
    assert!(asked("hunter2").await.header("x-cleave-decision").is_some());
    assert_eq!(explained(&router, "/explain/r").await.status(), 401);
    let with = Request::get("/explain/r").header("authorization", "Bearer hunter2");
    assert_eq!(ask(router.admin, &with).await.status(), 200);
    assert!(command(&router, &["r"]).1.contains("--token-file"));
}

#[tokio::test]
async fn a_request_that_its_contract_refused_says_which_limit_and_when_there_is_room() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    // The SHA-256 of `key-a`.
    let key = "f10f781241e2246678b6b45c857069208152a53863e47fac33f607ab405006f4";
    let settings = format!(
        "explain.sample = 0\n[[tenants]]\nname = \"acme\"\nkey_sha256 = [\"{key}\"]\n\
         contract = {{ requests_per_min = 1, hard = true }}\n"
    );
    let router = Router::start(&[replica.url()], &settings).await;
    let of = |id: &str| {
        Request::chat("hi").header("authorization", "Bearer key-a").header("x-request-id", id)
    };
    assert_eq!(router.ask(&of("c-1")).await.status(), 200);
    assert_eq!(router.ask(&of("c-2")).await.refusal().code, "over_contract");
    let it = explained(&router, "/explain/c-2").await.json();
    let line = &it["line"];
    assert_eq!(
        (&line["tenant"], &line["waited_for"]),
        (&"acme".into(), &"contract".into()),
        "{it}"
    );
    let contract = &line["contract"];
    assert_eq!((&contract["limit"], &contract["hard"]), (&"requests".into(), &true.into()), "{it}");
    let figure = |name: &str| contract[name].as_f64().unwrap_or_else(|| panic!("{name}: {it}"));
    assert_eq!((figure("per_min"), figure("needed")), (1.0, 1.0));
    assert!(0.0 < figure("used") && figure("room_in_ms") <= 60_000.0, "{it}");
    let (shown, _) = command(&router, &["c-2"]);
    for wanted in ["class standard, tenant acme", "refused by its contract: 1 requests a minute"] {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    assert!(command(&router, &[]).0.contains("refused: over_contract: 1 requests a minute"));
}
