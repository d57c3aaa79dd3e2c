//! Clients that ask and do not read: what they asked for is cancelled, and nothing stays booked.

use std::time::Duration;

use http_body_util::BodyExt as _;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::sleep;

use crate::support::{
    Exchange, Http2, Request, Requests, Router, Scripted, Wire, json_answer, next_piece, sse_head,
};

/// Short for a test, long for a client that reads.
const HASTY: &str = "timeouts.write = \"1s\"";
const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// Takes the next request and begins a stream.
async fn begun(requests: &mut Requests) -> Exchange {
    let mut exchange = requests.next().await;
    exchange.body().await;
    exchange.send(sse_head()).await;
    exchange.chunk("data: 1\n\n").await;
    exchange
}

/// Sends events until the client takes no more.
async fn pour(exchange: &mut Exchange) {
    let event = format!("data: {}\n\n", "x".repeat(16 << 10));
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    while exchange.wire.try_send(chunk.as_bytes()).await.is_ok() {}
}

#[tokio::test]
async fn a_client_with_a_full_socket_is_given_up_and_its_request_cancelled() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], HASTY).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(16 << 10).unwrap();
    let mut client = Wire::over(socket.connect(router.address).await.unwrap());
    client.send(&Request::stream("hi").bytes()).await;
    pour(&mut begun(&mut requests).await).await;
    router.says("outcome=cancelled").await;
    router.until("nothing is in flight", |it| it.pools[0].requests_in_flight == 0).await;
    router.until("the connection is gone", |it| it.connections == 0).await;
    assert!(0 < router.counter("cleave_clients_cut_total").await);
    // Leaving is not the replica's fault.
    assert_eq!(router.status().await.replica(replica.address).state, "up");
    drop(client);
}

#[tokio::test]
async fn a_stuck_http2_stream_is_cancelled_and_no_other_on_its_connection() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], HASTY).await;
    let stream = TcpStream::connect(router.address).await.unwrap();
    let mut client = Http2::with_window(65_535, stream).await;
    let asked = client.post("/v1/chat/completions", STREAM);
    let (stuck, mut poured) = tokio::join!(asked, begun(&mut requests));
    let asked = client.post("/v1/chat/completions", STREAM);
    let (read, mut other) = tokio::join!(asked, begun(&mut requests));
    let mut read = read.into_body();
    next_piece(&mut read).await.unwrap();
    pour(&mut poured).await;
    router.until("one is in flight", |it| it.pools[0].requests_in_flight == 1).await;
    other.chunk("data: 2\n\n").await;
    assert_eq!(next_piece(&mut read).await.unwrap(), "data: 2\n\n");
    other.send("0\r\n\r\n").await;
    assert!(next_piece(&mut read).await.is_none());
    assert!(stuck.into_body().collect().await.is_err(), "the stream was reset");
}

#[tokio::test]
async fn a_client_that_takes_no_byte_at_all_is_given_up_too() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], HASTY).await;
    let stream = TcpStream::connect(router.address).await.unwrap();
    let mut client = Http2::with_window(0, stream).await;
    let asked = client.post("/v1/chat/completions", STREAM);
    let (_stuck, mut exchange) = tokio::join!(asked, begun(&mut requests));
    exchange.wire.closed().await;
    router.says("outcome=cancelled").await;
}

#[tokio::test]
async fn a_slow_replica_is_not_taken_for_a_slow_client() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], HASTY).await;
    let (mut client, mut exchange) = requests.begin(router.address, &Request::stream("hi")).await;
    sleep(Duration::from_secs(4)).await;
    exchange.chunk("data: 2\n\n").await;
    exchange.send("0\r\n\r\n").await;
    assert_eq!(client.body().await.unwrap(), b"data: 2\n\n");
}

#[tokio::test]
async fn an_answer_is_off_the_books_when_its_replica_is_done_though_it_is_not_taken() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "timeouts.write = \"1h\"").await;
    let stream = TcpStream::connect(router.address).await.unwrap();
    let mut client = Http2::with_window(0, stream).await;
    let _stuck = client.post("/v1/chat/completions", STREAM).await;
    router.until("nothing is in flight", |it| it.pools[0].requests_in_flight == 0).await;
}
