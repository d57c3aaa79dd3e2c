//! The page of metrics as scrapers read it, in both formats, and the figures that answer questions.

use std::io::Write as _;
use std::process::{Command, Stdio};

use crate::support::{Mock, Request, Router, ask, eventually};

async fn page(router: &Router, accept: &str) -> (String, String) {
    let request = Request::get("/metrics").header("accept", accept);
    let answer = ask(router.admin, &request).await;
    let kind = answer.header("content-type").unwrap().to_owned();
    (kind, answer.text().to_owned())
}

#[tokio::test]
async fn what_a_replica_and_a_tenant_got_and_what_the_router_refused_is_counted() {
    let mock = Mock::start(&["--speed", "inf"]);
    let router = Router::start(&[mock.url()], "").await;
    for _ in 0..2 {
        assert_eq!(router.ask(&Request::stream("hi")).await.status(), 200);
    }
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    assert_eq!(router.ask(&Request::get("/metrics")).await.status(), 404);
    let bad = Request::post("/v1/chat/completions", "{");
    assert_eq!(router.ask(&bad).await.status(), 400);
    let of = format!("{{pool=\"default\",replica=\"{}\"", mock.url());
    let lines = [
        format!("cleave_replica_first_token_seconds_count{of}}} 2"),
        format!("cleave_replica_request_seconds_count{of},stream=\"true\"}} 2"),
        format!("cleave_replica_request_seconds_count{of},stream=\"false\"}} 1"),
        "cleave_tenant_requests_total{pool=\"default\",tenant=\"default\",class=\"standard\",\
         status_class=\"2xx\"} 3"
            .to_owned(),
        "cleave_router_errors_total{code=\"path_not_served\",status_class=\"4xx\"} 1".to_owned(),
        "cleave_router_errors_total{code=\"invalid_body\",status_class=\"4xx\"} 1".to_owned(),
        "cleave_build_info{version=".to_owned(),
    ];
    eventually("all is counted", async || {
        let (_, text) = page(&router, "").await;
        lines.iter().all(|it| text.contains(it.as_str()))
    })
    .await;
}

#[tokio::test]
async fn both_formats_are_served() {
    let (router, _mock) = asked_once().await;
    let (kind, text) = page(&router, "application/openmetrics-text;version=1.0.0").await;
    assert!(kind.starts_with("application/openmetrics-text") && text.ends_with("# EOF\n"));
    let (kind, text) = page(&router, "text/plain").await;
    assert!(kind.starts_with("text/plain; version=0.0.4") && !text.contains("# EOF"));
}

#[tokio::test]
#[ignore = "needs promtool, which `cargo xtask test --only promtool` brings"]
async fn promtool_finds_nothing_to_say_of_the_metrics() {
    let (router, _mock) = asked_once().await;
    let (_, text) = page(&router, "text/plain").await;
    let mut check = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool is on the path");
    check.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let found = check.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&found.stderr).into_owned();
    assert!(found.status.success() && said.is_empty(), "{said}");
}

/// Starts a router that has streamed one answer.
async fn asked_once() -> (Router, Mock) {
    let mock = Mock::start(&["--speed", "inf"]);
    let router = Router::start(&[mock.url()], "").await;
    assert_eq!(router.ask(&Request::stream("hi")).await.status(), 200);
    (router, mock)
}
