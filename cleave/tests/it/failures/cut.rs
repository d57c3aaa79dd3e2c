//! Replicas that break off in the middle: before anything was passed on, another replica takes
//! over; after that the client is told, in its own stream and in its own API's words.

use serde::Deserialize;

use crate::support::{Request, Router, Scripted, Wire, sse_head};

#[derive(Deserialize)]
struct CutEvent {
    error: CutError,
}

#[derive(Deserialize)]
struct CutError {
    r#type: String,
    code: Option<String>,
    message: String,
}

/// Checks that a stream ends with one well-formed event that says so, after whole events.
pub(super) fn expect_cut_event(text: &str) {
    let before_end = text.strip_suffix("\n\n").unwrap_or_else(|| panic!("unfinished: {text:?}"));
    let last = before_end.rsplit("\n\n").next().unwrap();
    let data = last.lines().find_map(|it| it.strip_prefix("data: ")).expect("it has data");
    let event: CutEvent = serde_json::from_str(data).unwrap_or_else(|it| panic!("{it}: {text:?}"));
    assert!(!event.error.message.is_empty());
    match event.error.code.as_deref() {
        Some(code) => {
            assert_eq!((event.error.r#type.as_str(), code), ("server_error", "replica_lost"));
        }
        None => assert_eq!(event.error.r#type, "api_error"),
    }
    assert_eq!(text.matches("\"error\"").count(), 1 + text.matches("\"type\":\"error\"").count());
}

/// Starts a stream that breaks off after `sent`, and returns what the client gets.
async fn broken_off(path: &str, sent: &str) -> String {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    let (mut client, mut exchange) = requests.ask(router.address, &Request::post(path, body)).await;
    exchange.send(sse_head()).await;
    exchange.chunk(sent).await;
    let head = client.head().await.unwrap();
    assert_eq!(head.status(), 200);
    let first = client.piece().await.unwrap().unwrap();
    exchange.reset();
    let rest = client.body().await.expect("the transfer itself ends well");
    // The connection still serves.
    assert_eq!(client.ask(&Request::get("/v1/models")).await.status(), 200);
    String::from_utf8([first, rest].concat()).unwrap()
}

#[tokio::test]
async fn a_stream_that_breaks_off_ends_with_an_error_event() {
    let text = broken_off("/v1/chat/completions", "data: 1\n\n").await;
    assert!(text.starts_with("data: 1\n\ndata: {\"error\":"), "{text}");
    expect_cut_event(&text);
}

#[tokio::test]
async fn an_event_that_breaks_off_is_closed_before_the_error_event() {
    let text = broken_off("/v1/chat/completions", "data: 1\n\ndata: {\"half").await;
    assert!(text.starts_with("data: 1\n\ndata: {\"half\n\ndata: {\"error\":"), "{text}");
    expect_cut_event(&text);
}

#[tokio::test]
async fn anthropic_clients_are_told_in_their_own_words() {
    let text = broken_off("/v1/messages", "event: ping\ndata: {}\n\n").await;
    assert!(text.contains("event: error\ndata: {\"type\":\"error\",\"error\":"), "{text}");
    expect_cut_event(&text);
}

#[tokio::test]
async fn a_stream_that_falls_silent_ends_with_an_error_event() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "timeouts.idle = \"200ms\"").await;
    let (mut client, mut exchange) = requests.open(router.address, &Request::stream("hi")).await;
    expect_cut_event(client.answer().await.text());
    exchange.wire.closed().await;
}

#[tokio::test]
async fn an_answer_of_known_length_that_breaks_off_is_cut_for_the_client_too() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let (mut client, mut exchange) = requests.ask(router.address, &Request::chat("hi")).await;
    exchange.send("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\nnot all").await;
    assert_eq!(client.head().await.unwrap().status(), 200);
    client.piece().await.unwrap().unwrap();
    exchange.reset();
    assert!(client.body().await.is_err(), "a short answer must not look whole");
}

#[tokio::test]
async fn a_replica_that_is_lost_between_head_and_first_event_is_replaced() {
    // Engines send the head of a stream at once, and the first token after the prefill: most of the
    // time in which a replica may be lost lies between the two.
    let lost = Scripted::start(|mut exchange| async move {
        exchange.body().await;
        exchange.send(sse_head()).await;
        exchange.reset();
    })
    .await;
    let well = Scripted::answering(format!("{}9\r\ndata: 1\n\n\r\n0\r\n\r\n", sse_head())).await;
    let settings = "policy = \"round_robin\"\nbreaker.failures_max = 1000";
    let router = Router::start(&[lost.url(), well.url()], settings).await;
    for _ in 0..4 {
        let answer = router.ask(&Request::stream("hi")).await;
        assert_eq!((answer.status(), answer.text()), (200, "data: 1\n\n"));
    }
    assert!(0 < lost.hits());
}

#[tokio::test]
async fn a_stream_goes_on_when_another_replica_dies() {
    let (dying, mut last_requests) = Scripted::by_hand().await;
    let (staying, mut requests) = Scripted::by_hand().await;
    let replicas = [dying.url(), staying.url()];
    let router = Router::start(&replicas, "policy = \"round_robin\"").await;
    let mut clients = [Wire::connect(router.address).await, Wire::connect(router.address).await];
    for client in &mut clients {
        client.send(&Request::stream("hi").bytes()).await;
    }
    let mut exchanges = [last_requests.next().await, requests.next().await];
    for exchange in &mut exchanges {
        exchange.body().await;
        exchange.send(sse_head()).await;
        exchange.chunk("data: 1\n\n").await;
    }
    for client in &mut clients {
        client.head().await.unwrap();
        client.piece().await.unwrap().unwrap();
    }
    let [lost, mut kept] = exchanges;
    lost.reset();
    drop(dying);
    kept.chunk("data: 2\n\n").await;
    kept.send("0\r\n\r\n").await;
    let mut texts = Vec::new();
    for mut client in clients {
        texts.push(String::from_utf8(client.body().await.unwrap()).unwrap());
    }
    texts.sort();
    assert_eq!(texts[0], "data: 2\n\n");
    expect_cut_event(&texts[1]);
}
