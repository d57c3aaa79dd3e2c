//! Back-pressure and cancellation: a client that leaves ends the request at the replica, a client
//! that does not read stops the replica from sending.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::timeout;

use crate::support::{Http2, Request, Router, Scripted, Wire, json_answer, next_piece, sse_head};

const MIB: usize = 1 << 20;
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

#[tokio::test]
async fn a_client_that_leaves_before_the_first_byte_ends_the_request_at_the_replica() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let (client, mut exchange) = requests.ask(router.address, &Request::chat("hi")).await;
    drop(client);
    exchange.wire.closed().await;
    router.until("nothing is in flight", |it| it.pools[0].requests_in_flight == 0).await;
    // Leaving is not the replica's fault.
    assert_eq!(router.status().await.replica(replica.address).state, "up");
}

#[tokio::test]
async fn a_client_that_leaves_in_mid_stream_ends_the_request_at_the_replica() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let (client, mut exchange) = requests.begin(router.address, &Request::stream("hi")).await;
    drop(client);
    // The replica sends nothing more, so the router learns it from the client's side alone.
    exchange.wire.closed().await;
    router.says("outcome=cancelled").await;
}

#[tokio::test]
async fn a_client_that_closes_its_side_after_the_request_gets_its_answer() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::chat("hi").bytes()).await;
    client.stream.shutdown().await.unwrap();
    let mut exchange = requests.next().await;
    exchange.body().await;
    // Sent to learn whether the client is there.
    assert_eq!(client.head().await.unwrap().status(), 100);
    exchange.send(json_answer(200, "{\"well\":1}")).await;
    let answer = client.answer().await;
    assert_eq!((answer.status(), answer.text()), (200, "{\"well\":1}"));
    client.closed().await;
    router.says("outcome=done").await;
}

#[tokio::test]
async fn a_client_that_closes_its_side_in_mid_stream_gets_the_rest() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let (mut client, mut exchange) = requests.begin(router.address, &Request::stream("hi")).await;
    client.stream.shutdown().await.unwrap();
    // A comment, which readers of events pass over.
    assert_eq!(client.piece().await.unwrap().unwrap(), b":\n\n");
    exchange.chunk("data: 2\n\n").await;
    assert_eq!(client.piece().await.unwrap().unwrap(), b"data: 2\n\n");
    exchange.send("0\r\n\r\n").await;
    assert!(client.piece().await.unwrap().is_none());
    client.closed().await;
    router.says("outcome=done").await;
}

#[tokio::test]
async fn a_client_that_closes_its_side_and_then_leaves_is_noticed() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::chat("hi").bytes()).await;
    client.stream.shutdown().await.unwrap();
    let mut exchange = requests.next().await;
    exchange.body().await;
    assert_eq!(client.head().await.unwrap().status(), 100);
    drop(client);
    exchange.wire.closed().await;
    router.says("outcome=cancelled").await;
}

#[tokio::test]
async fn a_cancelled_http2_stream_ends_the_request_at_the_replica_and_no_other() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Http2::over(TcpStream::connect(router.address).await.unwrap()).await;

    // Before the first byte.
    let waiting = timeout(Duration::MAX, client.post("/v1/chat/completions", STREAM));
    let mut exchange = tokio::select! {
        _ = waiting => unreachable!("nothing answers"),
        exchange = requests.next() => exchange,
    };
    exchange.body().await;
    exchange.wire.closed().await;

    // In mid-stream, with another stream beside it on the same connection.
    let mut bodies = Vec::new();
    let mut exchanges = Vec::new();
    for _ in 0..2 {
        let play = async {
            let mut exchange = requests.next().await;
            exchange.body().await;
            exchange.send(sse_head()).await;
            exchange.chunk("data: 1\n\n").await;
            exchange
        };
        let (answer, exchange) = tokio::join!(client.post("/v1/chat/completions", STREAM), play);
        let mut body = answer.into_body();
        next_piece(&mut body).await.unwrap();
        bodies.push(body);
        exchanges.push(exchange);
    }
    drop(bodies.remove(0));
    exchanges.remove(0).wire.closed().await;
    let mut other = exchanges.remove(0);
    other.chunk("data: 2\n\n").await;
    other.send("0\r\n\r\n").await;
    assert_eq!(bodies.remove(0).collect().await.unwrap().to_bytes(), "data: 2\n\n");
}

/// Reads how large the kernel may make a socket's buffer.
fn kernel_max(name: &str) -> usize {
    let text = std::fs::read_to_string(format!("/proc/sys/net/ipv4/{name}")).unwrap();
    text.split_whitespace().last().unwrap().parse().unwrap()
}

#[tokio::test]
async fn a_client_that_does_not_read_stops_the_replica() {
    // What may be on the way: the router's receive buffer and its send buffer, as large as the
    // kernel lets them grow (6 and 4 MiB by default), the small buffers of both ends, and less than
    // 1 MiB in the router itself.
    let bound = kernel_max("tcp_rmem") + kernel_max("tcp_wmem") + 2 * MIB;
    let offered = 2 * bound;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(64 << 10).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let (sender, mut written) = tokio::sync::watch::channel((0, false));
    let listener: TcpListener = socket.listen(16).unwrap();
    let replica = Scripted::start_on(listener, move |mut exchange| {
        let sender = sender.clone();
        async move {
            exchange.body().await;
            exchange.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {offered}\r\n\r\n")).await;
            let mut written = 0;
            for block in vec![b'x'; offered].chunks(64 << 10) {
                let mut write = std::pin::pin!(exchange.wire.stream.write_all(block));
                // A slow machine may look stalled early, which only makes the count smaller.
                if timeout(Duration::from_millis(500), write.as_mut()).await.is_err() {
                    sender.send_modify(|it| it.1 = true);
                    write.await.unwrap();
                }
                written += block.len();
                sender.send_modify(|it| it.0 = written);
            }
        }
    });
    let router = Router::start(&[replica.url()], "").await;
    let before = router.process.rss_bytes();
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(128 << 10).unwrap();
    let mut client = Wire::over(socket.connect(router.address).await.unwrap());
    client.send(&Request::chat("hi").bytes()).await;
    let stalled = *written.wait_for(|it| it.1).await.unwrap();
    assert!(stalled.0 <= bound, "{} bytes were taken for a client that reads none", stalled.0);
    let held = router.process.rss_bytes().saturating_sub(before);
    assert!(held <= 2 << 20, "the router holds {held} bytes more");

    // Once the client reads, all of it comes.
    assert_eq!(client.answer().await.body.len(), offered);
}
