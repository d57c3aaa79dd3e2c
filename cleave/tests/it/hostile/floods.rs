//! HTTP/2 clients that send frames without content as fast as they can: their connection is closed,
//! and other clients do not notice.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::sound;
use crate::support::{Http2, Request, Router, WAIT_MAX, Wire, next_piece};

/// The preface and empty settings.
const HELLO: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const WINDOW_UPDATE: u8 = 8;
const END_HEADERS: u8 = 4;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [.., a, b, c] = payload.len().to_be_bytes();
    let mut frame = vec![a, b, c, kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend_from_slice(payload);
    frame
}

/// Sends the frames of a thousand calls at a time until the router hangs up.
async fn flood(router: &Router, mut frames: impl FnMut(u32) -> Vec<u8>) {
    let stream = TcpStream::connect(router.address).await.unwrap();
    let (mut reads, mut writes) = stream.into_split();
    let hung_up = async {
        let mut buffer = vec![0; 64 << 10];
        while matches!(reads.read(&mut buffer).await, Ok(1..)) {}
    };
    let pours = async {
        writes.write_all(HELLO).await.unwrap();
        for thousand in 0..100 {
            let bytes: Vec<u8> = (0..1000).flat_map(|it| frames(1000 * thousand + it)).collect();
            if writes.write_all(&bytes).await.is_err() {
                break;
            }
        }
        // All was sent, perhaps into buffers: what counts is that the other side hangs up.
        std::future::pending::<()>().await;
    };
    let closed = timeout(WAIT_MAX, async {
        tokio::select! {
            () = hung_up => {}
            () = pours => {}
        }
    });
    closed.await.expect("the router hangs up");
}

#[tokio::test]
async fn a_flood_of_frames_without_content_ends_its_connection() {
    let (router, replica) = sound("").await;
    flood(&router, |_| frame(PING, 0, 0, &[0; 8])).await;
    flood(&router, |_| frame(SETTINGS, 0, 0, &[])).await;
    flood(&router, |_| frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 16])).await;
    flood(&router, |_| frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])).await;
    // Requests that are taken back before their body comes: POST / over http, then RST_STREAM.
    flood(&router, |number| {
        let stream = 2 * number + 1;
        let mut frames = frame(HEADERS, END_HEADERS, stream, &[0x83, 0x84, 0x86]);
        frames.extend(frame(RESET, 0, stream, &[0, 0, 0, 8]));
        frames
    })
    .await;
    // The first two thirds of a head, and then more of it without end.
    flood(&router, |number| match number {
        0 => frame(HEADERS, 0, 1, &[0x83]),
        _ => frame(9, 0, 1, &[]),
    })
    .await;
    router.until("all are gone", |it| it.connections == 0).await;
    assert!(4 <= router.counter("cleave_clients_cut_total").await);
    assert_eq!(replica.hits(), 0);
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn large_heads_without_a_body_are_charged_to_their_caller() {
    let settings = "limits.body_mib_max = 1\nlimits.buffered_mib_max = 1";
    let (router, _replica) = sound(settings).await;
    let mut waiting = Vec::new();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx-large: {}\r\n\
         content-length: 99\r\n\r\n{{",
        "y".repeat(50_000)
    );
    // Each is charged about 100 kB, and one address may hold 1 MiB.
    let mut refused = 0;
    for _ in 0..16 {
        let mut client = Wire::connect_from(2, router.address).await;
        client.send(head.as_bytes()).await;
        waiting.push(client);
    }
    for client in &mut waiting {
        if timeout(Duration::from_secs(1), client.stream.readable()).await.is_ok() {
            let answer = client.answer().await;
            assert_eq!((answer.status(), answer.refusal().code.as_str()), (503, "buffers_full"));
            refused += 1;
        }
    }
    assert!((4..16).contains(&refused), "{refused} were refused");
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn a_client_that_asks_much_on_one_connection_is_no_flood() {
    let (router, _replica) = sound("").await;
    let stream = TcpStream::connect(router.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    let mut client = Http2::over(stream).await;
    for _ in 0..3_000 {
        let answer = client.post("/v1/chat/completions", r#"{"model":"m"}"#).await;
        assert_eq!(answer.status(), 200);
        assert_eq!(next_piece(&mut answer.into_body()).await.unwrap(), "{}");
    }
    assert_eq!(router.counter("cleave_clients_cut_total").await, 0);
}
