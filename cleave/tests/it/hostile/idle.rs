//! Clients that take their time, one by one and ten thousand at once.

use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::sound;
use crate::support::{Request, Router, Scripted, Wire, json_answer};

/// Short for a test, long for a busy machine.
const HASTY: &str = "timeouts.header = \"1s\"\ntimeouts.body = \"1s\"";

#[tokio::test]
async fn a_head_that_does_not_come_ends_the_connection() {
    let (router, replica) = sound(HASTY).await;
    let mut clients = Vec::new();
    // Nothing; the beginning of a head; of HTTP/2; of a second request.
    for start in ["", "P", "POST /v1/chat/comp", "PRI * HTTP/2.0\r\n\r\nSM"] {
        let mut client = Wire::connect(router.address).await;
        client.send(start.as_bytes()).await;
        clients.push(client);
    }
    let mut client = Wire::connect(router.address).await;
    assert_eq!(client.ask(&Request::chat("hi")).await.status(), 200);
    client.send(b"GET /v1").await;
    clients.push(client);
    for mut client in clients {
        assert!(client.head().await.is_none_or(|it| it.status() == 408));
    }
    router.until("all connections are gone", |it| it.connections == 0).await;
    assert_eq!(replica.hits(), 1);
}

#[tokio::test]
async fn an_http2_connection_that_asks_nothing_ends() {
    let (router, _replica) = sound(HASTY).await;
    let mut client = Wire::connect(router.address).await;
    client.send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await;
    client.drained().await;
    router.until("the connection is gone", |it| it.connections == 0).await;
}

#[tokio::test]
async fn a_body_that_does_not_come_is_refused_with_408() {
    let (router, replica) = sound(HASTY).await;
    let mut clients = Vec::new();
    for start in [
        "content-type: application/json\r\ncontent-length: 99\r\n\r\n{\"model\":",
        "content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n5\r\n{\"mod",
        "content-type: application/octet-stream\r\ncontent-length: 99\r\n\r\nabc",
    ] {
        let mut client = Wire::connect(router.address).await;
        let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\n";
        client.send(format!("{head}{start}").as_bytes()).await;
        clients.push(client);
    }
    for mut client in clients {
        let answer = client.answer().await;
        assert_eq!((answer.status(), answer.refusal().code.as_str()), (408, "body_timeout"));
    }
    assert!(replica.hits() <= 1, "only the body that passes was begun");
    router.until("nothing is in flight", |it| it.pools[0].requests_in_flight == 0).await;
}

#[tokio::test]
async fn a_body_that_trickles_is_not_cut_while_it_moves() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    let request = Request::chat("slowly").bytes();
    for byte in &request {
        client.send(&[*byte]).await;
    }
    assert!(request.ends_with(&requests.next().await.body().await));
}

#[tokio::test]
async fn connections_that_say_nothing_give_way_to_newcomers_and_busy_ones_do_not() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "limits.connections_max = 8").await;
    let (mut busy, mut exchange) = requests.begin(router.address, &Request::stream("hi")).await;
    let mut silent = Vec::new();
    for number in 0..40 {
        let mut client = Wire::connect(router.address).await;
        if number % 2 == 0 {
            client.send(b"POST /v1").await;
        }
        silent.push(client);
    }
    for _ in 0..3 {
        let mut client = Wire::connect(router.address).await;
        client.send(&Request::chat("hi").bytes()).await;
        requests.next().await.answer(json_answer(200, "{}")).await;
        assert_eq!(client.answer().await.status(), 200);
        // It keeps its connection, and is idle from now on.
        silent.push(client);
    }
    exchange.chunk("data: 2\n\n").await;
    assert_eq!(busy.piece().await.unwrap().unwrap(), b"data: 2\n\n");
    assert!(router.status().await.connections <= 9);
}

#[tokio::test]
async fn ten_thousand_idle_connections_hold_nobody_up() {
    let wanted = 10_000;
    // Each takes a file on this side and one in the router.
    let allowed = rlimit::increase_nofile_limit(wanted + 1_000).unwrap();
    let count = usize::try_from(wanted.min(allowed.saturating_sub(1_000))).unwrap();
    if count < 10_000 {
        println!("only {count} connections: this process may open {allowed} files");
    }
    let (router, _replica) = sound("").await;
    let before = router.process.rss_bytes();
    let mut idle = Vec::with_capacity(count);
    for _ in 0..count {
        idle.push(TcpStream::connect(router.address).await.unwrap());
    }
    let all = i64::try_from(count).unwrap();
    router.until("all are accepted", |it| all <= it.connections).await;
    let asked_at = Instant::now();
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    let took = asked_at.elapsed();
    assert!(took < Duration::from_secs(5), "a request beside them took {took:?}");
    let each = router.process.rss_bytes().saturating_sub(before) / u64::try_from(count).unwrap();
    println!("{each} bytes for each of {count} idle connections, {took:?} for a request");
    assert!(each <= 8 << 10, "{each} bytes for an idle connection");
    drop(idle);
    router.until("they are gone", |it| it.connections == 0).await;
}
