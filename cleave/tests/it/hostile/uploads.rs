//! Clients that announce bodies and do not send them, or send them byte by byte: they lose their
//! own requests, and no other request waits.

use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{interval, timeout};

use super::sound;
use crate::support::{Answer, Request, Router, Scripted, WAIT_MAX, Wire, json_answer};

const JSON: &str = "content-type: application/json";
const BYTES: &str = "content-type: application/octet-stream";
const PAUSE: Duration = Duration::from_millis(100);

fn head(headers: &str) -> String {
    format!("POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n\r\n")
}

#[tokio::test]
async fn idle_uploads_of_the_largest_size_hold_nobody_up() {
    // Eight announce together as much as all bodies may take, and have time.
    let (router, replica) = sound("timeouts.body = \"1h\"").await;
    let mut idle = Vec::new();
    for _ in 0..8 {
        let mut client = Wire::connect(router.address).await;
        let head = head(&format!("{JSON}\r\ncontent-length: 33554432"));
        client.send(format!("{head}{{").as_bytes()).await;
        idle.push(client);
    }
    router.until("they are accepted", |it| 8 <= it.connections).await;
    for _ in 0..20 {
        assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    }
    assert_eq!(replica.hits(), 20);
}

/// Sends `bytes` again and again, with a pause between, until an answer comes.
async fn dribble(client: &mut Wire<TcpStream>, bytes: &[u8]) -> Answer {
    let mut ticks = interval(PAUSE);
    timeout(WAIT_MAX, async {
        loop {
            ticks.tick().await;
            // It may have been answered and closed by now.
            let taken = client.try_send(bytes).await.is_ok();
            if !taken || timeout(PAUSE, client.stream.readable()).await.is_ok() {
                break;
            }
        }
    })
    .await
    .expect("a body that dribbles is refused in time");
    client.answer().await
}

#[tokio::test]
async fn a_body_that_dribbles_is_refused_with_408_however_it_is_sent() {
    let (router, _replica) = sound("timeouts.body = \"1s\"").await;
    for (headers, bytes) in [
        (format!("{JSON}\r\ncontent-length: 33554432"), " "),
        (format!("{JSON}\r\ntransfer-encoding: chunked"), "1\r\n \r\n"),
        (format!("{BYTES}\r\ncontent-length: 33554432"), " "),
        (format!("{BYTES}\r\ntransfer-encoding: chunked"), "1\r\n \r\n"),
    ] {
        let mut client = Wire::connect(router.address).await;
        client.send(head(&headers).as_bytes()).await;
        let answer = dribble(&mut client, bytes.as_bytes()).await;
        let refused = (answer.status(), answer.refusal().code);
        assert_eq!(refused, (408, "body_too_slow".to_owned()), "{headers}");
    }
    router.until("nothing is in flight", |it| it.pools[0].requests_in_flight == 0).await;
}

#[tokio::test]
async fn no_body_may_take_longer_than_all_of_it_may() {
    let (router, _replica) = sound("timeouts.body_whole = \"1s\"").await;
    let mut client = Wire::connect(router.address).await;
    client.send(head(&format!("{JSON}\r\ncontent-length: 33554432")).as_bytes()).await;
    let answer = dribble(&mut client, &[b' '; 2048]).await;
    assert_eq!((answer.status(), answer.refusal().code.as_str()), (408, "body_timeout"));
}

/// A chat of a little more than 1 MiB.
fn large(id: &str) -> Vec<u8> {
    Request::chat(&"x".repeat(1 << 20)).header("x-request-id", id).bytes()
}

#[tokio::test]
async fn bodies_that_are_held_for_one_address_leave_room_for_another() {
    let settings = "limits.body_mib_max = 4\nlimits.buffered_mib_max = 8\ntimeouts.body = \"1s\"\n\
                    line.hold = false";
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], settings).await;
    let mut greedy = Vec::new();
    for _ in 0..12 {
        let mut client = Wire::connect_from(2, router.address).await;
        client.send(&large("greedy")).await;
        greedy.push(client);
    }
    // Held until the replica answers, which it does not.
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(requests.next().await);
    }
    let mut other = Wire::connect_from(3, router.address).await;
    other.send(&large("other")).await;
    let mut exchange = loop {
        let exchange = requests.next().await;
        if exchange.head.header("x-request-id") == Some("other") {
            break exchange;
        }
        held.push(exchange);
    };
    exchange.body().await;
    exchange.send(json_answer(200, "{}")).await;
    assert_eq!(other.answer().await.status(), 200);
    assert!(held.len() < 8, "{} bodies of one address are held", held.len());
    // What found no room is told so, and nothing else is answered.
    let mut answers: JoinSet<_> =
        greedy.into_iter().map(|mut it| async move { it.answer().await }).collect();
    let refused = answers.join_next().await.expect("there are twelve").unwrap();
    assert_eq!((refused.status(), refused.refusal().code.as_str()), (503, "buffers_full"));
    assert_eq!(refused.header("retry-after"), Some("1"));
}
