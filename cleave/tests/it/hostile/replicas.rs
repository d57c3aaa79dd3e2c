//! Replicas that send what is no HTTP: the client gets a clear error, and no other client is
//! affected.

use crate::support::{Request, Router, Scripted, Wire, json_answer};

/// Has the only replica answer `bytes`, and returns status and code of the refusal.
async fn refusal_of(bytes: impl Into<Vec<u8>>) -> (u16, String) {
    let replica = Scripted::answering(bytes).await;
    let router = Router::start(&[replica.url()], "health.interval = \"1h\"").await;
    let answer = router.ask(&Request::chat("hi")).await;
    assert_eq!(replica.hits(), 1);
    (answer.status(), answer.refusal().code)
}

#[tokio::test]
async fn an_answer_that_is_no_http_is_a_502() {
    let huge = format!("HTTP/1.1 200 OK\r\nx-huge: {}\r\n\r\n", "x".repeat(200_000));
    let endless = format!("HTTP/1.1 200 OK\r\n{}", "x-a: 1\r\n".repeat(30_000));
    let many = format!("HTTP/1.1 200 OK\r\n{}\r\n", "x-a: 1\r\n".repeat(1_000));
    for (what, bytes) in [
        ("nothing", String::new()),
        ("garbage", "\0\x01\x02 this is no HTTP\r\n\r\n".to_owned()),
        ("a bad status", "HTTP/1.1 2000 Yes\r\n\r\n".to_owned()),
        ("a switch of protocols", "HTTP/1.1 101 Switching\r\nupgrade: h2c\r\n\r\n".to_owned()),
        (
            "lengths that differ",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nab".to_owned(),
        ),
        ("a signed length", "HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\nab".to_owned()),
        ("a huge header", huge),
        ("a head without end", endless),
        ("many headers", many),
        ("interim answers without end", "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(100_000)),
    ] {
        let refusal = refusal_of(bytes).await;
        assert_eq!(refusal, (502, "replica_failed".to_owned()), "{what}");
    }
}

#[tokio::test]
async fn a_bad_chunk_cuts_its_own_answer_and_no_other() {
    let head =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n";
    let bad = Scripted::answering(format!("{head}2\r\n{{}}\r\nzz\r\n")).await;
    let well = Scripted::answering(json_answer(200, "{\"well\":1}")).await;
    let settings = "policy = \"round_robin\"\nbreaker.failures_max = 1000";
    let router = Router::start(&[bad.url(), well.url()], settings).await;
    let (mut whole, mut cut) = (0, 0);
    for _ in 0..10 {
        let mut client = Wire::connect(router.address).await;
        client.send(&Request::chat("hi").bytes()).await;
        match client.try_answer().await {
            Ok(answer) => {
                assert_eq!((answer.status(), answer.text()), (200, "{\"well\":1}"));
                whole += 1;
            }
            Err(_) => cut += 1,
        }
    }
    assert_eq!((whole, cut), (5, 5));
}

#[tokio::test]
async fn garbage_in_place_of_the_first_chunk_is_tried_elsewhere() {
    let heads = [
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n",
    ];
    for head in heads {
        for garbage in ["zz\r\n", "\0\x01\x02", "\r\n", "-1\r\nx\r\n", "5"] {
            let bad = Scripted::answering(format!("{head}{garbage}")).await;
            let well = Scripted::answering(json_answer(200, "{\"well\":1}")).await;
            let settings = "policy = \"round_robin\"\nbreaker.failures_max = 1000";
            let router = Router::start(&[bad.url(), well.url()], settings).await;
            for _ in 0..2 {
                let answer = router.ask(&Request::chat("hi")).await;
                assert_eq!((answer.status(), answer.text()), (200, "{\"well\":1}"), "{garbage:?}");
            }
            assert_eq!((0 < bad.hits(), well.hits()), (true, 2), "{garbage:?}");
        }
    }
}

#[tokio::test]
async fn an_interim_answer_is_passed_over() {
    let answer = format!("HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n{}", json_answer(200, "{}"));
    let replica = Scripted::answering(answer).await;
    let router = Router::start(&[replica.url()], "").await;
    let answer = router.ask(&Request::chat("hi")).await;
    assert_eq!((answer.status(), answer.text()), (200, "{}"));
}
