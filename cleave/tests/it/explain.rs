//! Why a request went where it went: what is kept of decisions, who may see it, and how it is shown.

use std::process::Command;

use crate::support::{
    Answer, Mock, Request, Router, Scripted, Wire, ask, config, eventually, json_answer,
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

#[tokio::test]
async fn a_client_that_asks_is_shown_the_decision_and_an_operator_all_of_it() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let router = Router::start(&urls, "explain.sample = 0").await;
    let answer = router.ask(&chat("r-1")).await;
    let decision = answer.header("x-cleave-decision").expect("it was asked for");
    let home = answer.header("x-mock-replica").unwrap();
    assert!(decision.contains(" try=1 candidates=3"), "{decision}");
    assert!(urls.iter().any(|it| decision.starts_with(it) && it.contains(home)), "{decision}");

    let page = explained(&router, "/explain/r-1").await;
    let text = page.text();
    assert_eq!(page.status(), 200, "{text}");
    for wanted in [
        r#""request_id":"r-1","pool":"default""#,
        r#""candidates_total":3"#,
        r#""policy":"round_robin""#,
        r#""policy":"power_of_two""#,
        r#""outcome":{"outcome":"done","status":200"#,
        r#""input_tokens":"#,
    ] {
        assert!(text.contains(wanted), "{wanted} is not in {text}");
    }
    let (shown, _) = command(&router, &["r-1"]);
    for wanted in ["request r-1 in pool default", "→", "what others would have done", "status 200"]
    {
        assert!(shown.contains(wanted), "{wanted} is not in {shown}");
    }
    let (json, _) = command(&router, &["r-1", "--json"]);
    assert!(json.starts_with("{\"request_id\":\"r-1\""), "{json}");
}

#[tokio::test]
async fn a_second_turn_goes_where_its_cache_is_and_says_so() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let router = Router::start(&urls, "policy = \"priced\"\nexplain.sample = 0").await;
    let long = Request::chat(&"one two ".repeat(2000)).header("x-cleave-explain", "1");
    let decision = async || {
        let answer = router.ask(&long).await;
        answer.header("x-cleave-decision").expect("it was asked for").to_owned()
    };
    let (first, second) = (decision().await, decision().await);
    assert!(first.contains(" why=cheapest ") && first.contains(" cached_tokens=0 "), "{first}");
    assert!(second.contains(" why=cache "), "{second}");
    assert_eq!(first.split(' ').next(), second.split(' ').next(), "the same replica");
    let metrics = ask(router.admin, &Request::get("/metrics")).await;
    let shadows = "cleave_shadow_decisions_total{pool=\"default\"} 2";
    assert!(metrics.text().contains(shadows), "{}", metrics.text());
}

#[tokio::test]
async fn who_does_not_ask_is_shown_nothing_and_kept_by_lot() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "explain.sample = 1").await;
    let quiet = Request::chat("a secret word").header("x-request-id", "q-1");
    let answer = router.ask(&quiet).await;
    assert_eq!(answer.header("x-cleave-decision"), None);
    let list = explained(&router, "/explain").await.text().to_owned();
    assert!(list.starts_with("[{\"request_id\":\"q-1\""), "{list}");
    assert!(list.contains("\"why\":\"only\""), "{list}");
    assert!(!list.contains("secret"), "no text is kept: {list}");
    assert!(command(&router, &[]).0.contains("q-1"));
}

#[tokio::test]
async fn a_decision_that_was_not_kept_is_a_404_that_says_how_to_keep_it() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "explain.sample = 0").await;
    router.ask(&Request::chat("hi").header("x-request-id", "r/2")).await;
    let page = explained(&router, "/explain/r/2").await;
    assert_eq!(page.status(), 404);
    for wanted in ["0% of all are (explain.sample)", "x-cleave-explain: 1"] {
        assert!(page.text().contains(wanted), "{}", page.text());
    }
    assert!(command(&router, &["r/2"]).1.contains("no decision is kept under this id"));
}

#[tokio::test]
async fn every_try_is_explained() {
    let well = Scripted::answering(json_answer(200, "{}")).await;
    let ill = Scripted::answering(json_answer(503, "{}")).await;
    let router = Router::start(&[ill.url(), well.url()], "policy = \"round_robin\"").await;
    // One of the first two comes to the one that is not well.
    for number in 0..2 {
        assert_eq!(router.ask(&chat(&format!("r-{number}"))).await.status(), 200);
    }
    let list = explained(&router, "/explain").await.text().to_owned();
    assert!(list.contains("\"why\":\"retry\""), "{list}");
}

#[tokio::test]
async fn a_refused_request_is_explained_too() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let settings = "breaker.failures_max = 1\nhealth.interval = \"50ms\"";
    let router = Router::start(&[replica.url()], settings).await;
    drop(replica);
    router.until("it is out", |it| it.count(|it| it.state == "out") == 1).await;
    let refused = async || router.ask(&chat("r-1")).await.status() == 503;
    eventually("a request is refused", refused).await;
    let page = explained(&router, "/explain/r-1").await;
    assert!(page.text().contains("\"refusal\":\"no_replica\""), "{}", page.text());
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
