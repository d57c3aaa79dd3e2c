//! A mock replica in this process, calibrated over loopback. What is asserted is what came of it, never
//! how exact it is: that depends on how busy the machine is, and the fit has tests of its own.

use std::future;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::routing::get;
use bytes::Bytes;
use clap::Parser as _;
use futures_util::TryStreamExt as _;
use http_body_util::BodyExt as _;
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::replica::{Calibration, calibrate};
use super::*;
use crate::mock;

#[derive(clap::Parser)]
struct Cli {
    #[command(flatten)]
    args: Args,
}

fn parse(words: &[&str]) -> Args {
    Cli::try_parse_from(["calibrate"].iter().chain(words)).unwrap().args
}

/// A mock replica; dropping it ends it.
struct Rig {
    url: String,
    replica: mock::Replica,
    _task: JoinSet<mock::Ended>,
}

impl Rig {
    async fn start(settings: mock::Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let replica = mock::Replica::new("one".to_owned(), settings);
        let mut task = JoinSet::new();
        let server = replica.clone();
        task.spawn(async move { server.serve(listener, future::pending()).await });
        Self { url, replica, _task: task }
    }

    async fn calibrate(&self, more: &[&str]) -> anyhow::Result<Calibration> {
        let words: Vec<&str> = ["--replica", &self.url].iter().chain(more).copied().collect();
        calibrate(&self.url, &parse(&words), &CancellationToken::new()).await
    }
}

fn hurried() -> mock::Settings {
    mock::Settings { speed: 5.0, ..mock::Settings::default() }
}

#[tokio::test]
async fn a_replica_is_calibrated_from_outside() {
    let rig = Rig::start(hurried()).await;
    let Calibration { coefficients, fit, findings } = rig.calibrate(&["--quick"]).await.unwrap();
    assert_eq!((coefficients.model.as_str(), coefficients.class.as_str()), ("mock-8b", "default"));
    let cached =
        |it: &&measure::Measured| matches!(it.cell, grid::Cell::Prompt { cached: 1.., .. });
    assert!(findings.cells.iter().any(|it| cached(&it)), "{:?}", findings.notes);
    assert!(10 <= fit.rows && fit.rows == findings.cells.len());
    assert!(4 <= findings.rungs.len());
    assert!(findings.rungs.iter().any(|it| it.concurrency == coefficients.knee.concurrency));
    assert!(coefficients.error.is_some());
    // All that was asked for was answered and nothing is left behind.
    let stats = rig.replica.stats();
    assert_eq!((stats.running, stats.waiting), (0, 0));
    let calibration = Calibration { coefficients, fit, findings };
    let svg = plot::draw(&calibration);
    assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
    assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    assert!(calibration.findings.cells.len() < svg.matches("<circle").count());
}

#[tokio::test]
async fn a_busy_replica_is_refused() {
    let rig = Rig::start(hurried()).await;
    let client = client::ReplicaClient::new(&rig.url).unwrap();
    let dialect = client::RequestForm { api: client::Api::Chat, ignore_eos: true };
    let ask = client::Question { prompt: "go on".to_owned(), output_tokens: 400_000 };
    let mut others = JoinSet::new();
    others.spawn(async move { client.ask("mock-8b", dialect, &ask).await.is_ok() });
    while rig.replica.stats().running == 0 {
        tokio::task::yield_now().await;
    }
    let error = rig.calibrate(&["--quick"]).await.unwrap_err().to_string();
    assert!(error.contains("serving others") && error.contains("--force"), "{error}");
}

#[tokio::test]
async fn what_cannot_be_calibrated_says_what_to_do() {
    let rig =
        Rig::start(mock::Settings { models: vec!["a".to_owned(), "b".to_owned()], ..hurried() })
            .await;
    let error = rig.calibrate(&[]).await.unwrap_err().to_string();
    assert!(error.contains("a, b") && error.contains("--model"), "{error}");
    let error = rig.calibrate(&["--model", "c"]).await.unwrap_err().to_string();
    assert!(error.contains("not c"), "{error}");
    let stop = CancellationToken::new();
    let refused = |url: &'static str| {
        let stop = stop.clone();
        async move { format!("{:#}", calibrate(url, &parse(&[]), &stop).await.unwrap_err()) }
    };
    assert!(refused("https://gpu-0").await.contains("plain HTTP"));
    assert!(refused("gpu-0:8000").await.contains("http://"));
    // Nothing listens on port 1.
    assert!(refused("http://127.0.0.1:1").await.contains("is the replica up"));
}

/// Puts an engine in front of `behind` that ends its streams without `[DONE]`, and answers `/v1/models` with
/// `models`; dropping the set ends it.
async fn plain_engine(behind: &str, models: StatusCode) -> (String, JoinSet<()>) {
    let base = behind.to_owned();
    let client = Client::builder(TokioExecutor::new()).build_http::<Body>();
    let pass = move |request: Request| {
        let (base, client) = (base.clone(), client.clone());
        async move {
            let (mut head, body) = request.into_parts();
            head.uri = format!("{base}{}", head.uri.path()).parse().unwrap();
            let answer = client.request(Request::from_parts(head, body)).await.unwrap();
            answer.map(|body| {
                Body::from_stream(body.into_data_stream().map_ok(|it| {
                    let text = String::from_utf8_lossy(&it).replace("data: [DONE]\n\n", "");
                    Bytes::from(text)
                }))
            })
        }
    };
    let list = move || async move { (models, r#"{"data":[{"id":"mock-8b"}]}"#) };
    let routes = Router::new().route("/v1/models", get(list)).fallback(pass);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut task = JoinSet::new();
    task.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    (url, task)
}

async fn calibrate_plain(url: &str) -> anyhow::Result<Calibration> {
    calibrate(url, &parse(&["--replica", url, "--quick"]), &CancellationToken::new()).await
}

#[tokio::test]
async fn an_engine_that_sends_no_done_is_calibrated() {
    let rig = Rig::start(hurried()).await;
    let (url, _task) = plain_engine(&rig.url, StatusCode::OK).await;
    let Calibration { coefficients, findings, .. } = calibrate_plain(&url).await.unwrap();
    assert_eq!(coefficients.model, "mock-8b");
    assert!(10 <= findings.cells.len(), "{:?}", findings.notes);
}

#[tokio::test]
async fn a_list_of_models_that_fails_is_reported_with_its_status_and_path() {
    let (url, _task) = plain_engine("http://127.0.0.1:1", StatusCode::INTERNAL_SERVER_ERROR).await;
    let error = format!("{:#}", calibrate_plain(&url).await.unwrap_err());
    assert!(error.contains("500") && error.contains("/v1/models"), "{error}");
    assert!(!error.contains("cannot reach") && error.contains("--model"), "{error}");
    // One that closes the connection without an answer was reached, too.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Ok((connection, _)) = listener.accept().await {
            drop(connection);
        }
    });
    let error = format!("{:#}", calibrate_plain(&url).await.unwrap_err());
    assert!(error.contains("/v1/models") && !error.contains("cannot reach"), "{error}");
}

#[tokio::test]
async fn stopping_at_once_measures_nothing_and_says_so() {
    let rig = Rig::start(hurried()).await;
    let stop = CancellationToken::new();
    stop.cancel();
    let error = calibrate(&rig.url, &parse(&[]), &stop).await.unwrap_err().to_string();
    assert!(error.contains("stopped"), "{error}");
}

#[test]
fn switches_that_need_a_replica_say_so() {
    for words in [&["--quick"][..], &["--force"], &["--plot", "a.svg"], &["--model", "m"]] {
        assert!(Cli::try_parse_from(["calibrate"].iter().chain(words)).is_err(), "{words:?}");
    }
    assert!(Cli::try_parse_from(["c", "--replica", "http://a", "--table", "b"]).is_err());
}
