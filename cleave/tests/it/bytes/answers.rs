//! From replica to client: every byte, however it is framed, and none later than it came.

use tokio::net::TcpStream;

use crate::support::{Http2, Request, Router, Scripted, Wire, next_piece, noise, sse_head};

const STREAM: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;

/// Has a replica send `noise` under `head`, in pieces of odd sizes, and compares what arrives.
async fn check_noise(head: &str, frame: impl Fn(&[u8]) -> Vec<u8>, end: &str) {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    let sent = noise(7, 300_000);
    client.send(&Request::chat("hi").bytes()).await;
    let mut exchange = requests.next().await;
    exchange.body().await;
    let feed = async {
        exchange.send(head).await;
        for piece in sent.chunks(7_919) {
            exchange.send(frame(piece)).await;
        }
        exchange.send(end).await;
        drop(exchange);
    };
    let ((), answer) = tokio::join!(feed, client.answer());
    assert_eq!(answer.status(), 200);
    assert!(answer.body == sent, "{head:?}: {} bytes came", answer.body.len());
}

#[tokio::test]
async fn an_answer_of_known_length_arrives_as_it_was_sent() {
    check_noise("HTTP/1.1 200 OK\r\ncontent-length: 300000\r\n\r\n", <[u8]>::to_vec, "").await;
}

#[tokio::test]
async fn an_answer_in_chunks_arrives_as_it_was_sent() {
    let chunk = |piece: &[u8]| {
        let mut chunk = format!("{:x};ext=1\r\n", piece.len()).into_bytes();
        chunk.extend_from_slice(piece);
        chunk.extend_from_slice(b"\r\n");
        chunk
    };
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    check_noise(head, chunk, "0\r\nx-trailer: 1\r\n\r\n").await;
}

#[tokio::test]
async fn an_answer_that_ends_with_its_connection_arrives_as_it_was_sent() {
    check_noise("HTTP/1.1 200 OK\r\n\r\n", <[u8]>::to_vec, "").await;
}

#[tokio::test]
async fn events_never_wait_for_the_next_one() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::stream("hi").bytes()).await;
    let mut exchange = requests.next().await;
    exchange.send(sse_head()).await;
    for number in 0..50 {
        // The next event is sent only after this one was seen: any gathering would wait for ever.
        let event = format!("data: {{\"n\":{number}}}\n\n");
        exchange.chunk(&event).await;
        if number == 0 {
            assert_eq!(client.head().await.unwrap().status(), 200);
        }
        assert_eq!(client.piece().await.unwrap().unwrap(), event.as_bytes());
    }
    exchange.send("0\r\n\r\n").await;
    assert!(client.piece().await.unwrap().is_none());
}

#[tokio::test]
async fn half_an_event_does_not_wait_for_its_other_half() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::stream("hi").bytes()).await;
    let mut exchange = requests.next().await;
    // One chunk, sent in two halves: the router must not wait for a chunk to be whole either.
    exchange.send(format!("{}9\r\ndata:", sse_head())).await;
    client.head().await.unwrap();
    assert_eq!(client.piece().await.unwrap().unwrap(), b"data:");
    exchange.send(" 1\n\n\r\n0\r\n\r\n").await;
    assert_eq!(client.body().await.unwrap(), b" 1\n\n");
}

#[tokio::test]
async fn events_never_wait_for_the_next_one_over_http2() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Http2::over(TcpStream::connect(router.address).await.unwrap()).await;
    let play = async {
        let mut exchange = requests.next().await;
        exchange.send(sse_head()).await;
        exchange.chunk("data: 0\n\n").await;
        exchange
    };
    let (answer, mut exchange) = tokio::join!(client.post("/v1/chat/completions", STREAM), play);
    assert_eq!(answer.status(), 200);
    let mut body = answer.into_body();
    assert_eq!(next_piece(&mut body).await.unwrap(), "data: 0\n\n");
    for number in 1..50 {
        let event = format!("data: {number}\n\n");
        exchange.chunk(&event).await;
        assert_eq!(next_piece(&mut body).await.unwrap(), event);
    }
    exchange.send("0\r\n\r\n").await;
    assert_eq!(next_piece(&mut body).await, None);
}
