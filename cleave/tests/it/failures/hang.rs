//! Replicas that fall silent, requests that bring replicas down, processes that come back at the
//! same address. Timeouts are left as long as they are by default: a test that waited for one would
//! not finish.

use std::future::pending;

use crate::support::{
    Exchange, Happened, Mock, News, Request, Router, Scripted, ask, config, eventually, json_answer,
};

use super::cut::expect_cut_event;

/// Requests alternate, and health checks say nothing.
const ALTERNATE: &str = "policy = \"round_robin\"\nhealth.interval = \"1h\"";

/// Takes requests and says nothing.
async fn silent() -> Scripted {
    Scripted::start(|exchange: Exchange| async move {
        pending::<()>().await;
        drop(exchange);
    })
    .await
}

#[tokio::test]
async fn requests_that_wait_for_a_silent_replica_move_on_and_it_is_put_out() {
    let silent = silent().await;
    let well = Scripted::answering(json_answer(200, "{\"well\":1}")).await;
    let router = Router::start(&[silent.url(), well.url()], ALTERNATE).await;
    let mut news = News::after(router.admin, 0).await;
    for _ in 0..2 {
        let answer = router.ask(&Request::stream("hi")).await;
        assert_eq!((answer.status(), answer.text()), (200, "{\"well\":1}"));
    }
    assert_eq!((silent.hits(), well.hits()), (1, 2));
    let status = router.status().await;
    let replica = status.replica(silent.address);
    assert_eq!((replica.state.as_str(), replica.reason.as_deref()), ("out", Some("hung")));
    let url = silent.url();
    let suspect = news.until(|it| it.replica.as_ref() == Some(&url) && it.alert).await;
    assert_eq!((suspect.state.as_str(), suspect.reason.as_deref()), ("suspect", Some("hung")));
    assert!(suspect.detail.is_some_and(|it| it.contains("nothing came from it")));
}

#[tokio::test]
async fn a_stream_of_a_replica_that_falls_silent_ends_with_an_error_event() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let well = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "").await;
    let both = [(replica.url(), 1.0), (well.url(), 1.0)];
    let both: Vec<(&str, f64)> = both.iter().map(|it| (it.0.as_str(), it.1)).collect();
    let (mut client, _exchange) = requests.open(router.address, &Request::stream("hi")).await;
    client.head().await.unwrap();
    // No replica is given up before there is another one.
    router.write(&config(&both, ""));
    router.process.signal("HUP");
    let text = String::from_utf8(client.body().await.expect("it ends well")).unwrap();
    assert!(text.starts_with("data: 1\n\n"), "{text}");
    expect_cut_event(&text);
    router
        .until("it is out", |it| it.replica(replica.address).reason.as_deref() == Some("hung"))
        .await;
}

#[tokio::test]
async fn a_frozen_process_is_found_and_taken_back_when_it_thaws() {
    let (frozen, well) = (Mock::start(&["--speed", "inf"]), Mock::start(&["--speed", "inf"]));
    let settings =
        "policy = \"round_robin\"\nbreaker.open = \"100ms\"\nbreaker.open_max = \"200ms\"";
    let router = Router::start(&[frozen.url(), well.url()], settings).await;
    frozen.signal("STOP");
    for _ in 0..4 {
        assert_eq!(router.ask(&Request::stream("hi")).await.status(), 200);
    }
    router.until("it is out", |it| it.replica(frozen.address).state == "out").await;
    frozen.signal("CONT");
    eventually("it is up", async || {
        assert_eq!(router.ask(&Request::stream("hi")).await.status(), 200);
        router.status().await.replica(frozen.address).state == "up"
    })
    .await;
}

#[tokio::test]
async fn a_request_that_crashes_replicas_takes_two_however_often_it_comes() {
    let fleet: Vec<Mock> = (0..6).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = fleet.iter().map(Mock::url).collect();
    let router = Router::start(&urls, "policy = \"round_robin\"").await;
    let mut news = News::after(router.admin, 0).await;
    // From here on there are kept connections, and to lose one of those may mean nothing.
    for number in 0..12 {
        assert_eq!(router.ask(&Request::chat(&number.to_string())).await.status(), 200);
    }
    for replica in &fleet {
        let faults = Request::post("/mock/faults", "{\"poison\":true}");
        assert_eq!(ask(replica.address, &faults).await.status(), 200);
    }
    for session in ["one", "another", "yet another"] {
        let answer = router.ask(&Request::chat("<|crash|>").session(session)).await;
        assert_eq!((answer.status(), answer.refusal().code.as_str()), (422, "quarantined"));
    }
    let is_dead = |it: &&Mock| std::net::TcpStream::connect(it.address).is_err();
    assert_eq!(fleet.iter().filter(is_dead).count(), 2);
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    let told = news.until(|it| it.kind == "quarantine").await;
    assert_eq!((told.reason.as_deref(), told.alert), (Some("request"), true));
    let metrics = ask(router.admin, &Request::get("/metrics")).await;
    assert!(metrics.text().contains("cleave_quarantined_total{pool=\"default\"} 1"));
}

#[tokio::test]
async fn another_process_at_the_same_address_is_noticed() {
    let (mortal, well) = (Mock::start(&["--speed", "inf"]), Mock::start(&["--speed", "inf"]));
    let router = Router::start(&[mortal.url(), well.url()], "").await;
    let (url, port) = (mortal.url(), mortal.address.port());
    let mut news = News::after(router.admin, 0).await;
    let of_it = |it: &Happened, state: &str| it.replica.as_ref() == Some(&url) && it.state == state;
    drop(mortal);
    news.until(|it| of_it(it, "out")).await;
    let _reborn = Mock::start_on(port, &["--speed", "inf"]);
    news.until(|it| of_it(it, "restarted")).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn a_replica_with_another_model_is_not_used() {
    let well = Mock::start(&["--speed", "inf"]);
    let router = Router::start(&[well.url()], "").await;
    let stranger = Mock::start_for("another", &["--speed", "inf"]);
    let weighed = [(well.url(), 1.0), (stranger.url(), 1.0)];
    let weighed: Vec<(&str, f64)> = weighed.iter().map(|it| (it.0.as_str(), it.1)).collect();
    router.write(&config(&weighed, ""));
    router.process.signal("HUP");
    router.until("it is known", |it| it.count(|_| true) == 2).await;
    for number in 0..20 {
        let request = Request::chat("hi").session(&number.to_string());
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    assert_ne!(router.status().await.replica(stranger.address).state, "up");
}

#[tokio::test]
async fn an_idle_replica_is_asked_for_a_token_that_nobody_is_charged_for() {
    let idle = Mock::start(&["--speed", "inf"]);
    let router = Router::start(&[idle.url()], "health.token_after = \"50ms\"").await;
    eventually("it generates", async || {
        let page = ask(idle.address, &Request::get("/metrics")).await;
        let line = page.text().lines().find(|it| it.starts_with("vllm:generation_tokens_total"));
        line.is_some_and(|it| !it.ends_with(" 0"))
    })
    .await;
    let metrics = ask(router.admin, &Request::get("/metrics")).await;
    let sent = "cleave_replica_sent_total";
    let sent = metrics.text().lines().find(|it| it.starts_with(sent)).unwrap().to_owned();
    assert!(sent.ends_with(" 0"), "{sent}");
    assert!(!router.process.log().contains("ACCESS"));
}
