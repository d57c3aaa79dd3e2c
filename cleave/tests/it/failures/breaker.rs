//! A replica that fails is left alone for a while, and taken back when it is well again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use crate::support::{Exchange, Request, Router, Scripted, eventually, json_answer};

/// A replica that resets until `well` is set.
async fn moody(well: &Arc<AtomicBool>) -> Scripted {
    let well = Arc::clone(well);
    Scripted::start(move |mut exchange: Exchange| {
        let well = Arc::clone(&well);
        async move {
            exchange.body().await;
            if well.load(Relaxed) {
                exchange.send(json_answer(200, "{}")).await;
            } else {
                exchange.reset();
            }
        }
    })
    .await
}

#[tokio::test]
async fn a_failing_replica_is_left_alone_after_failures_in_a_row() {
    let failing = moody(&Arc::default()).await;
    let well = Scripted::answering(json_answer(200, "{}")).await;
    let settings = "policy = \"round_robin\"\nhealth.interval = \"1h\"\n\
                    breaker.failures_max = 3\nbreaker.open = \"1h\"\nbreaker.open_max = \"1h\"";
    let router = Router::start(&[failing.url(), well.url()], settings).await;
    for _ in 0..20 {
        assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    }
    assert_eq!(failing.hits(), 3);
    let status = router.status().await;
    let replica = status.replica(failing.address);
    assert_eq!((replica.state.as_str(), replica.reason.as_deref()), ("out", Some("unreachable")));
}

#[tokio::test]
async fn a_replica_that_is_well_again_is_taken_back() {
    let mended = Arc::default();
    let failing = moody(&mended).await;
    let well = Scripted::answering(json_answer(200, "{}")).await;
    let settings = "policy = \"round_robin\"\nhealth.interval = \"1h\"\n\
                    breaker.failures_max = 1\nbreaker.open = \"20ms\"\nbreaker.open_max = \"40ms\"";
    let router = Router::start(&[failing.url(), well.url()], settings).await;
    let ask = async || assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    eventually("it is out", async || {
        ask().await;
        router.status().await.replica(failing.address).state == "out"
    })
    .await;
    mended.store(true, Relaxed);
    eventually("it is up", async || {
        ask().await;
        router.status().await.replica(failing.address).state == "up"
    })
    .await;
}

#[tokio::test]
async fn a_replica_that_fails_its_health_checks_is_left_alone() {
    let sick = Scripted::answering(json_answer(200, "{}")).await;
    let well = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[sick.url(), well.url()], "health.interval = \"20ms\"").await;
    let address = sick.address;
    drop(sick);
    router.until("it is out", |it| it.replica(address).state == "out").await;
    assert_eq!(router.status().await.replica(address).reason.as_deref(), Some("unreachable"));
    for number in 0..10 {
        let request = Request::chat("hi").session(&number.to_string());
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    assert_eq!(well.hits(), 10);
}

#[tokio::test]
async fn errors_of_a_request_that_fails_everywhere_are_no_replicas_fault() {
    let one = Scripted::answering(json_answer(500, "{}")).await;
    let other = Scripted::answering(json_answer(500, "{}")).await;
    let settings = "policy = \"round_robin\"\nbreaker.failures_max = 2";
    let router = Router::start(&[one.url(), other.url()], settings).await;
    for _ in 0..10 {
        assert_eq!(router.ask(&Request::chat("poison")).await.status(), 500);
    }
    assert_eq!(router.status().await.count(|it| it.state == "up"), 2);
}
