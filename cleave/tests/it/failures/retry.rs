//! Before the first byte a failed request goes elsewhere by itself, as often as it may and no more.

use std::future::pending;

use crate::support::{Exchange, Request, Router, Scripted, config, deaf, json_answer};

/// Requests alternate, and no breaker gets in the way.
const ALTERNATE: &str =
    "policy = \"round_robin\"\nbreaker.failures_max = 1000\nhealth.interval = \"1h\"";

/// A replica that has not begun to answer by then hangs; a sound one on a busy machine begins much
/// earlier.
const HASTY: &str = "\ntimeouts.first_byte = \"1s\"";

async fn well() -> Scripted {
    Scripted::answering(json_answer(200, "{\"well\":1}")).await
}

async fn resetting() -> Scripted {
    Scripted::start(|mut exchange: Exchange| async move {
        exchange.body().await;
        exchange.reset();
    })
    .await
}

async fn hanging() -> Scripted {
    Scripted::start(|exchange: Exchange| async move {
        pending::<()>().await;
        drop(exchange);
    })
    .await
}

/// Puts a failing replica beside a sound one: every request is answered by the sound one.
async fn check_replaced(failing: &Scripted, settings: &str) {
    let well = well().await;
    let router =
        Router::start(&[failing.url(), well.url()], &format!("{ALTERNATE}{settings}")).await;
    for _ in 0..2 {
        let answer = router.ask(&Request::chat("hi")).await;
        assert_eq!((answer.status(), answer.text()), (200, "{\"well\":1}"));
    }
    assert_eq!(well.hits(), 2);
    assert!(0 < failing.hits(), "the failing one was asked");
}

#[tokio::test]
async fn a_replica_that_resets_is_replaced() {
    check_replaced(&resetting().await, "").await;
}

#[tokio::test]
async fn a_replica_that_hangs_up_in_the_middle_of_its_head_is_replaced() {
    check_replaced(&Scripted::answering("HTTP/1.1 200 OK\r\ncontent-le").await, "").await;
}

#[tokio::test]
async fn a_replica_that_hangs_up_in_the_middle_of_a_short_answer_is_replaced() {
    let short = "HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{\"half";
    check_replaced(&Scripted::answering(short).await, "").await;
}

#[tokio::test]
async fn a_replica_that_answers_500_is_replaced() {
    check_replaced(&Scripted::answering(json_answer(500, "{}")).await, "").await;
}

#[tokio::test]
async fn a_replica_that_answers_503_is_replaced() {
    check_replaced(&Scripted::answering(json_answer(503, "{}")).await, "").await;
}

#[tokio::test]
async fn a_replica_that_is_full_is_replaced() {
    check_replaced(&Scripted::answering(json_answer(429, "{}")).await, "").await;
}

#[tokio::test]
async fn a_replica_that_hangs_is_replaced() {
    check_replaced(&hanging().await, HASTY).await;
}

#[tokio::test]
async fn a_replica_that_takes_no_more_of_a_large_body_is_replaced() {
    let (hanging, well) = (hanging().await, well().await);
    let settings = format!("{ALTERNATE}{HASTY}");
    let router = Router::start(&[hanging.url(), well.url()], &settings).await;
    // More than any socket buffers: without an answer and without an end the sender would wait.
    let body = format!("{{\"model\":\"m\",\"pad\":\"{}\"}}", "x".repeat(24 << 20));
    let request = Request::post("/v1/embeddings", body);
    for _ in 0..2 {
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    assert_eq!(well.hits(), 2);
    assert!(0 < hanging.hits(), "the hanging one was asked");
}

#[tokio::test]
async fn a_replica_that_refuses_connections_is_replaced_for_bodies_that_pass_too() {
    let (refusing, well) = (well().await, well().await);
    let router = Router::start(&[refusing.url(), well.url()], ALTERNATE).await;
    drop(refusing);
    let form = "--x\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\nhello\r\n--x--\r\n";
    let kind = "multipart/form-data; boundary=x";
    for _ in 0..3 {
        assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
        let request = Request::post_as("/v1/audio/transcriptions", kind, form);
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    assert_eq!(well.hits(), 6);
}

#[tokio::test]
async fn a_body_that_passes_is_not_sent_twice() {
    let failing = resetting().await;
    let well = well().await;
    let router = Router::start(&[failing.url(), well.url()], ALTERNATE).await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let request = Request::post_as("/v1/files", "application/octet-stream", "abc");
        statuses.push(router.ask(&request).await.status());
    }
    statuses.sort_unstable();
    assert_eq!(statuses, [200, 200, 502, 502]);
    assert_eq!((failing.hits(), well.hits()), (2, 2));
}

#[tokio::test]
async fn when_all_replicas_fail_the_client_is_told_after_bounded_tries() {
    for (tries_max, hits) in [(1, 1), (3, 3), (16, 4)] {
        let replicas = [resetting().await, resetting().await, resetting().await, resetting().await];
        let urls: Vec<String> = replicas.iter().map(Scripted::url).collect();
        let settings = format!("{ALTERNATE}\nretries.tries_max = {tries_max}");
        let router = Router::start(&urls, &settings).await;
        let answer = router.ask(&Request::chat("hi").session("mine")).await;
        assert_eq!(answer.status(), 502);
        let refusal = answer.refusal();
        assert_eq!(
            (refusal.code.as_str(), refusal.r#type.as_str()),
            ("replica_failed", "server_error")
        );
        assert_eq!(answer.header("x-session-id"), Some("mine"));
        assert_eq!(replicas.iter().map(Scripted::hits).sum::<usize>(), hits);
    }
}

#[tokio::test]
async fn when_all_replicas_hang_the_client_is_told_with_504() {
    let (one, other) = (hanging().await, hanging().await);
    let settings = format!("{ALTERNATE}{HASTY}");
    let router = Router::start(&[one.url(), other.url()], &settings).await;
    let answer = router.ask(&Request::chat("hi")).await;
    assert_eq!((answer.status(), answer.refusal().r#type.as_str()), (504, "timeout_error"));
    assert_eq!((one.hits(), other.hits()), (1, 1));
}

#[tokio::test]
async fn when_all_replicas_answer_with_errors_the_last_answer_is_passed_on() {
    let error = r#"{"error":{"message":"out of memory","type":"server_error","code":"oom"}}"#;
    let one = Scripted::answering(json_answer(500, error)).await;
    let other = Scripted::answering(json_answer(500, error)).await;
    let router = Router::start(&[one.url(), other.url()], ALTERNATE).await;
    let answer = router.ask(&Request::chat("hi")).await;
    assert_eq!((answer.status(), answer.text()), (500, error));
    assert_eq!(one.hits() + other.hits(), 2);
}

#[tokio::test]
async fn an_error_that_is_the_clients_own_is_not_tried_elsewhere() {
    let one = Scripted::answering(json_answer(400, "{}")).await;
    let other = Scripted::answering(json_answer(400, "{}")).await;
    let router = Router::start(&[one.url(), other.url()], ALTERNATE).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 400);
    assert_eq!(one.hits() + other.hits(), 1);
}

#[tokio::test]
async fn without_any_replica_the_client_is_told_when_to_come_again() {
    let (_socket, address) = deaf();
    let router = Router::start_with(&config(
        &[(&format!("http://{address}"), 0.0)],
        "health.interval = \"1h\"",
    ));
    let answer = router.ask(&Request::chat("hi")).await;
    assert_eq!((answer.status(), answer.refusal().code.as_str()), (503, "no_replica"));
    assert_eq!(answer.header("retry-after"), Some("1"));
}

#[tokio::test]
async fn retries_end_when_their_budget_is_spent() {
    let (failing, well) = (resetting().await, well().await);
    let settings = format!("{ALTERNATE}\nretries.share = 0.0\nretries.reserve = 2");
    let router = Router::start(&[failing.url(), well.url()], &settings).await;
    let mut refused = 0;
    for _ in 0..20 {
        refused += usize::from(router.ask(&Request::chat("hi")).await.status() == 502);
    }
    assert_eq!(failing.hits() - refused, 2, "two of its failures were tried again");
    assert_eq!(well.hits(), 20 - refused);
    assert!(0 < refused);
}
