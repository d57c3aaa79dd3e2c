//! Which headers pass, and which the router makes.

use crate::support::{Head, Request, Router, Scripted, Wire, json_answer};

/// Passes one request and its answer, and returns both heads as they arrived.
async fn pass(request: Request, answer: &str) -> (Head, Head) {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(&request.bytes()).await;
    let exchange = requests.next().await;
    let head = exchange.head.clone();
    exchange.answer(answer).await;
    (head, client.answer().await.head)
}

#[tokio::test]
async fn headers_of_one_connection_do_not_pass() {
    let request = Request::chat("hi")
        .header("connection", "x-mine, keep-alive")
        .header("x-mine", "1")
        .header("keep-alive", "timeout=9")
        .header("te", "trailers")
        .header("upgrade", "websocket")
        .header("proxy-authorization", "Basic eA==")
        .header("accept", "application/json");
    let answer = "HTTP/1.1 200 OK\r\nconnection: x-theirs, close\r\nx-theirs: 1\r\n\
                  keep-alive: timeout=5\r\nserver: engine\r\nset-cookie: a=1\r\nset-cookie: b=2\r\n\
                  content-length: 2\r\n\r\n{}";
    let (asked, answered) = pass(request, answer).await;
    for gone in ["connection", "x-mine", "keep-alive", "te", "upgrade", "proxy-authorization"] {
        assert_eq!(asked.header(gone), None, "{gone}");
    }
    assert_eq!(asked.header("accept"), Some("application/json"));
    assert_ne!(asked.header("host"), Some("localhost"), "a replica is called by its own name");
    for gone in ["x-theirs", "keep-alive"] {
        assert_eq!(answered.header(gone), None, "{gone}");
    }
    assert_ne!(answered.header("connection"), Some("x-theirs, close"));
    assert_eq!(answered.header("server"), Some("engine"));
    assert_eq!(answered.headers.iter().filter(|it| it.0 == "set-cookie").count(), 2);
}

#[tokio::test]
async fn a_request_id_is_kept_and_reaches_both_sides() {
    let request = Request::chat("hi").header("x-request-id", "mine-42");
    let (asked, answered) = pass(request, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(asked.header("x-request-id"), Some("mine-42"));
    assert_eq!(answered.header("x-request-id"), Some("mine-42"));
}

#[tokio::test]
async fn a_request_id_is_made_where_there_is_none_or_none_of_use() {
    let long = "x".repeat(129);
    for given in [None, Some("has space"), Some(long.as_str())] {
        let mut request = Request::chat("hi");
        if let Some(given) = given {
            request = request.header("x-request-id", given);
        }
        let (asked, answered) = pass(request, "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
        let made = asked.header("x-request-id").unwrap();
        assert_eq!(made.len(), 36, "{made}");
        assert_eq!(answered.header("x-request-id"), Some(made));
    }
}

#[tokio::test]
async fn a_query_and_an_odd_method_pass() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "paths.allow = [\"/pot\"]").await;
    let mut client = Wire::connect(router.address).await;
    client.send(b"BREW /pot?a=%20b&c HTTP/1.1\r\nhost: r\r\n\r\n").await;
    let exchange = requests.next().await;
    assert_eq!(exchange.head.first_line, "BREW /pot?a=%20b&c HTTP/1.1");
    exchange.answer("HTTP/1.1 418 I'm a teapot\r\ncontent-length: 0\r\n\r\n").await;
    assert_eq!(client.answer().await.status(), 418);
}

#[tokio::test]
async fn a_path_that_an_operator_opened_passes_though_it_looks_like_one_of_ours() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "paths.allow = [\"/*\"]").await;
    for path in ["/v1/modelsx", "/status", "/metrics", "/"] {
        let mut client = Wire::connect(router.address).await;
        client.send(&Request::get(path).bytes()).await;
        let exchange = requests.next().await;
        assert_eq!(exchange.head.first_line, format!("GET {path} HTTP/1.1"));
        exchange.answer(json_answer(200, "[1,2]")).await;
        assert_eq!(client.answer().await.text(), "[1,2]");
    }
}

#[tokio::test]
async fn an_answer_to_head_has_a_length_and_no_body() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(b"HEAD /v1/files HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n").await;
    let exchange = requests.next().await;
    exchange.answer("HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n").await;
    assert_eq!(client.head().await.unwrap().header("content-length"), Some("1234"));
    client.closed().await;
}
