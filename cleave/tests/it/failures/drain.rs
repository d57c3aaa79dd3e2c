//! SIGTERM: no new connections, streams finish, and the router says what it had to cut.

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::{
    Mock, Request, Router, Scripted, Status, Wire, config, eventually, json_answer, reached,
    sse_head,
};

const STREAMS: usize = 60;

#[tokio::test]
async fn sigterm_under_load_breaks_no_stream() {
    let mocks = [Mock::start(&["--speed", "1"]), Mock::start(&["--speed", "1"])];
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let mut router = Router::start(&urls, "").await;
    let (begun, mut beginning) = tokio::sync::watch::channel(0);
    let mut streams = JoinSet::new();
    for number in 0..STREAMS {
        let (address, begun) = (router.address, begun.clone());
        let body = "{\"model\":\"m\",\"stream\":true,\"max_tokens\":64,\"ignore_eos\":true,\
                    \"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}";
        let request = Request::post("/v1/chat/completions", body).session(&number.to_string());
        streams.spawn(async move {
            let mut client = Wire::connect(address).await;
            client.send(&request.bytes()).await;
            assert_eq!(client.head().await.unwrap().status(), 200);
            let first = client.piece().await.unwrap().unwrap();
            begun.send_modify(|it| *it += 1);
            let rest = client.body().await.expect("the stream is whole");
            String::from_utf8([first, rest].concat()).unwrap()
        });
    }
    reached(&mut beginning, STREAMS).await;
    router.process.signal("TERM");
    let refused = async || TcpStream::connect(router.address).await.is_err();
    eventually("new connections are refused", refused).await;
    for text in streams.join_all().await {
        assert!(text.ends_with("data: [DONE]\n\n"), "{text}");
    }
    assert!(router.process.ended().await.success());
    let log = router.process.log();
    assert!(log.contains("drained, nothing cut"), "{log}");
    assert_eq!(log.matches("outcome=done").count(), STREAMS, "{log}");
}

#[tokio::test]
async fn a_request_that_waits_for_its_first_byte_is_finished_too() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let mut router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    let mut idle = Wire::connect(router.address).await;
    assert_eq!(idle.ask(&Request::get("/v1/models")).await.status(), 200);
    client.send(&Request::stream("hi").bytes()).await;
    let mut exchange = requests.next().await;
    exchange.body().await;
    router.process.signal("TERM");
    // Connections without a request end at once.
    idle.closed().await;
    router.until_not_ready().await;
    exchange.send(sse_head()).await;
    exchange.chunk("data: [DONE]\n\n").await;
    exchange.send("0\r\n\r\n").await;
    assert_eq!(client.answer().await.text(), "data: [DONE]\n\n");
    client.closed().await;
    assert!(router.process.ended().await.success());
}

#[tokio::test]
async fn what_does_not_finish_in_time_is_cut_and_counted() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let mut router = Router::start(&[replica.url()], "timeouts.drain = \"200ms\"").await;
    let mut running = Vec::new();
    for _ in 0..3 {
        let (client, exchange) = requests.begin(router.address, &Request::stream("hi")).await;
        running.push((client, exchange));
    }
    router.process.signal("TERM");
    assert!(router.process.ended().await.success());
    let log = router.process.log();
    assert!(log.contains("requests_cut=3"), "{log}");
    for (mut client, mut exchange) in running {
        assert!(client.body().await.is_err(), "a cut stream must not look whole");
        exchange.wire.closed().await;
    }
}

#[tokio::test]
async fn a_router_whose_log_nobody_reads_goes_on_and_can_be_stopped() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let mut router = Router::start(&[replica.url()], "").await;
    let ask = async || assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    tokio::join!(router.process.hang_up_on_log(), ask());
    // Both say what they do before and after they do it.
    for weight in [2.0, 3.0] {
        router.write(&config(&[(&replica.url(), weight)], ""));
        router.process.signal("HUP");
        let weighs = |it: &Status| weight - 0.5 < it.replica(replica.address).weight;
        router.until("the file is taken on", weighs).await;
        ask().await;
    }
    router.process.signal("TERM");
    assert!(router.process.ended().await.success());
}

#[tokio::test]
async fn a_second_signal_does_not_wait() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let mut router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::stream("hi").bytes()).await;
    let _exchange = requests.next().await;
    router.process.signal("TERM");
    router.says("draining").await;
    router.process.signal("TERM");
    assert!(router.process.ended().await.success());
    let log = router.process.log();
    assert!(log.contains("requests_cut=1"), "{log}");
}

#[tokio::test]
async fn with_a_delay_sigterm_first_says_not_ready_and_goes_on_accepting() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let mut router = Router::start(&[replica.url()], "timeouts.drain_delay = \"1h\"").await;
    router.process.signal("TERM");
    router.until_not_ready().await;
    let health = router.ask(&Request::get("/health")).await;
    assert_eq!((health.status(), health.text()), (503, "{\"status\":\"draining\"}"));
    for _ in 0..3 {
        assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200, "it goes on");
    }
    router.process.signal("TERM");
    assert!(router.process.ended().await.success(), "a second signal does not wait");

    let mut router = Router::start(&[replica.url()], "timeouts.drain_delay = \"100ms\"").await;
    router.process.signal("TERM");
    assert!(router.process.ended().await.success());
    assert!(router.process.log().contains("not ready"), "{}", router.process.log());
    let mut router = Router::start(&[replica.url()], "timeouts.drain_delay = \"1h\"").await;
    router.process.signal("INT");
    assert!(router.process.ended().await.success(), "people at a terminal do not wait");
}
