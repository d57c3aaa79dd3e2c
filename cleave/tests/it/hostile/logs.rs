//! A log that nothing reads: the router goes on, counts what it drops, says so, and ends in time.

use crate::support::{Request, Router, Scripted, ask, json_answer};

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
