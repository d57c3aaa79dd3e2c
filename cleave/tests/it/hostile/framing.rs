//! Requests that two parsers could read in two ways, and heads that are none.

use super::sound;
use crate::support::{Request, Router, Scripted, Wire, json_answer};

const BODY: &str = r#"{"model":"m"}"#;

/// Sends raw bytes on a connection of their own; returns the status, if there is an answer.
async fn status_of(router: &Router, bytes: &[u8]) -> Option<u16> {
    let mut client = Wire::connect(router.address).await;
    _ = client.try_send(bytes).await;
    client.head().await.map(|it| it.status())
}

fn post(headers: &str, body: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\n{headers}\r\n{body}")
}

#[tokio::test]
async fn two_lengths_are_never_passed_on_nor_is_a_hidden_request() {
    let hidden = "GET /hidden HTTP/1.1\r\nhost: r\r\n\r\n";
    let chunked = format!("d\r\n{BODY}\r\n0\r\n\r\n");
    for headers in [
        "content-length: 4\r\ntransfer-encoding: chunked\r\n",
        "transfer-encoding: chunked\r\ncontent-length: 4\r\n",
    ] {
        let (replica, mut requests) = Scripted::by_hand().await;
        let router = Router::start(&[replica.url()], "").await;
        let mut client = Wire::connect(router.address).await;
        client.send(post(headers, &format!("{chunked}{hidden}")).as_bytes()).await;
        // The chunks are the body, as RFC 9112 has it, and what goes on has one length.
        let mut exchange = requests.next().await;
        assert_eq!(exchange.head.header("transfer-encoding"), None);
        assert_eq!(exchange.head.header("content-length"), Some("13"));
        assert_eq!(exchange.body().await, BODY.as_bytes());
        exchange.send(json_answer(200, "{}")).await;
        assert_eq!(client.answer().await.status(), 200);
        // What follows may be anything, so nothing more is read from that connection.
        client.closed().await;
        assert_eq!(replica.hits(), 1);
    }
}

#[tokio::test]
async fn malformed_requests_are_refused_with_400() {
    let (router, replica) = sound("").await;
    let length = "content-length: 13\r\n";
    let chunked = "transfer-encoding: chunked\r\n";
    let cases = [
        ("lengths that differ", post("content-length: 13\r\ncontent-length: 12\r\n", BODY)),
        ("a list of lengths", post("content-length: 13, 12\r\n", BODY)),
        ("a signed length", post("content-length: +13\r\n", BODY)),
        ("a length beyond reason", post("content-length: 99999999999999999999999\r\n", BODY)),
        ("an unknown coding last", post("transfer-encoding: chunked, rot13\r\n", BODY)),
        ("chunked under HTTP/1.0", post(chunked, "0\r\n\r\n").replace("HTTP/1.1", "HTTP/1.0")),
        ("no host", post(length, BODY).replace("host: r\r\n", "")),
        ("two hosts", post(&format!("{length}host: other\r\n"), BODY)),
        ("the same host twice", post(&format!("{length}host: r\r\n"), BODY)),
        ("obs-fold", post(&format!("{length}x-a: 1\r\n\tfolded: 1\r\n"), BODY)),
        ("space before the colon", post(&format!("{length}transfer-encoding : chunked\r\n"), BODY)),
        ("a header without a colon", post(&format!("{length}nonsense\r\n"), BODY)),
        ("a NUL in a header", post(&format!("{length}x-a: a\0b\r\n"), BODY)),
        ("a bad chunk size", post(chunked, "xyz\r\n{}\r\n0\r\n\r\n")),
        ("a negative chunk size", post(chunked, "-1\r\n{}\r\n0\r\n\r\n")),
        ("a chunk size beyond reason", post(chunked, "fffffffffffffffff\r\n{}")),
        ("a chunk that runs over", post(chunked, &format!("2\r\n{BODY}\r\n0\r\n\r\n"))),
        ("a method with a space", "GE T / HTTP/1.1\r\nhost: r\r\n\r\n".to_owned()),
        ("a method of symbols", "G@T / HTTP/1.1\r\nhost: r\r\n\r\n".to_owned()),
        ("an unknown version", "GET / HTTP/3.7\r\nhost: r\r\n\r\n".to_owned()),
        ("no HTTP at all", "\x16\x03\x01\x02\x00\x01\x00\x01\r\n\r\n".to_owned()),
    ];
    for (what, bytes) in cases {
        assert_eq!(status_of(&router, bytes.as_bytes()).await, Some(400), "{what}");
    }
    assert_eq!(replica.hits(), 0);
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn heads_beyond_reason_are_refused_with_431_or_414() {
    let (router, replica) = sound("").await;
    let huge = post(&format!("x-huge: {}\r\n", "x".repeat(1 << 20)), "");
    let many = post(&"x-many: 1\r\n".repeat(5_000), "");
    let path = format!("GET /{} HTTP/1.1\r\nhost: r\r\n\r\n", "x".repeat(100_000));
    for (what, bytes, want) in [("huge", huge, 431), ("many", many, 431), ("path", path, 414)] {
        // The router may hang up while the rest is still on its way, which loses its answer.
        let status = status_of(&router, bytes.as_bytes()).await;
        assert!(status.is_none_or(|it| it == want), "{what}: {status:?}");
    }
    assert_eq!(replica.hits(), 0);
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn connect_is_refused_and_the_absolute_form_is_understood() {
    let (router, replica) = sound("").await;
    let connect = b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n";
    assert_eq!(status_of(&router, connect).await, Some(405));
    let absolute = b"GET http://elsewhere/v1/models HTTP/1.1\r\nhost: elsewhere\r\n\r\n";
    assert_eq!(status_of(&router, absolute).await, Some(200));
    assert_eq!(replica.hits(), 0);
}

#[tokio::test]
async fn an_absolute_form_reaches_the_replica_as_its_path() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(b"GET http://elsewhere/v1/files?b HTTP/1.1\r\nhost: elsewhere\r\n\r\n").await;
    let exchange = requests.next().await;
    assert_eq!(exchange.head.first_line, "GET /v1/files?b HTTP/1.1");
    assert_eq!(exchange.head.header("host"), Some(replica.address.to_string().as_str()));
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (router, _replica) = sound("").await;
    let mut client = Wire::connect(router.address).await;
    let mut bytes = Vec::new();
    for number in 0..20 {
        bytes.extend(Request::chat("hi").header("x-request-id", number.to_string()).bytes());
        bytes.extend(Request::post("/v1/chat/completions", "{").bytes());
    }
    client.send(&bytes).await;
    for number in 0..20 {
        let answer = client.answer().await;
        let id = number.to_string();
        assert_eq!((answer.status(), answer.header("x-request-id")), (200, Some(id.as_str())));
        assert_eq!(client.answer().await.status(), 400);
    }
}

#[tokio::test]
async fn a_client_that_waits_for_permission_to_send_gets_it() {
    let (router, _replica) = sound("").await;
    let mut client = Wire::connect(router.address).await;
    let head = post("expect: 100-continue\r\ncontent-length: 13\r\n", "");
    client.send(head.as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status(), 100);
    client.send(BODY.as_bytes()).await;
    assert_eq!(client.answer().await.status(), 200);
}
