//! A log that nothing reads: the router goes on, counts what it drops, says so, and ends in time.

use crate::support::{Json, Request, Router, Scripted, ask, json_answer};

/// A request whose access line is long: a pipe holds 64 KiB, the router's queue 4 MiB.
fn long_line() -> Request {
    Request::get(&format!("/v1/files/{}", "x".repeat(30_000)))
}

async fn fill_log(router: &Router) {
    for _ in 0..400 {
        assert_eq!(router.ask(&long_line()).await.status(), 200);
    }
}

#[tokio::test]
async fn a_log_that_nothing_reads_stops_nobody_and_says_later_what_it_dropped() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "").await;
    router.process.stall_log(true);
    fill_log(&router).await;
    assert_eq!(ask(router.admin, &Request::get("/healthz")).await.status(), 200);
    assert!(0 < router.counter("cleave_log_lines_dropped_total").await);
    router.process.stall_log(false);
    router.says(" log lines dropped").await;
    let dropped = router.counter("cleave_log_lines_dropped_total").await;
    assert_eq!(
        router.ask(&Request::chat("after").header("x-request-id", "after-all")).await.status(),
        200
    );
    router.says("request_id=after-all").await;
    assert_eq!(router.counter("cleave_log_lines_dropped_total").await, dropped);
}

#[tokio::test]
async fn a_log_that_nothing_reads_does_not_keep_the_router_from_ending() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let mut router = Router::start(&[replica.url()], "").await;
    router.process.stall_log(true);
    fill_log(&router).await;
    router.process.signal("TERM");
    assert!(router.process.gone().await.success());
}

#[tokio::test]
async fn an_access_line_says_what_was_asked_for_and_why_it_was_refused() {
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n".repeat(5);
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{stream}",
        stream.len()
    );
    let replica = Scripted::answering(answer).await;
    let settings = "log.format = \"json\"\nexplain.sample = 1";
    let mut router = Router::start(&[replica.url()], settings).await;
    let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let asked = Request::stream("hi").header("traceparent", trace).header("x-request-id", "r-1");
    assert_eq!(router.ask(&asked).await.status(), 200);
    let decision = ask(router.admin, &Request::get("/explain/r-1")).await.json();
    let unknown = Request::post("/v1/chat/completions", "{\"model\":\"no-such\"}");
    assert_eq!(router.ask(&unknown.header("x-request-id", "r-2")).await.status(), 404);
    router.process.signal("TERM");
    router.process.ended().await;
    let log = router.process.log();
    let line = |id: &str| -> Json {
        let own = log.lines().find(|it| it.contains(&format!("\"request_id\":\"{id}\"")));
        serde_json::from_str(own.expect("it has a line")).expect("a line is JSON")
    };
    let served = line("r-1");
    assert_eq!((&served["level"], &served["target"]), (&"INFO".into(), &"access".into()));
    assert_eq!((&served["model"], &served["class"]), (&"m".into(), &"standard".into()));
    assert_eq!((&served["client"], &served["tries"]), (&"127.0.0.1".into(), &1.into()));
    assert_eq!(served["trace_id"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(served["output_tokens_estimated"], true);
    assert_eq!(served["input_tokens_estimated"], true);
    assert_eq!(served["input_tokens"], decision["tries"][0]["prompt_tokens"], "as it was priced");
    assert!(served["output_tokens"].as_u64().is_some_and(|it| (1..=5).contains(&it)), "{served}");
    assert!(served["first_byte_ms"].as_f64() <= served["total_ms"].as_f64());
    let refused = line("r-2");
    assert_eq!((&refused["status"], &refused["code"]), (&404.into(), &"model_not_found".into()));
    assert_eq!((&refused["replica"], &refused["outcome"]), (&"-".into(), &"router".into()));
}
