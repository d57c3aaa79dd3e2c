//! Traces: what a collector gets of a request, what the engine is told, and what happens where there is no
//! collector. The collector is in this process and reads the protobuf.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router as Routes;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Response};
use axum::routing::post;
use bytes::Bytes;
use cleave_io::telemetry::otlp::{ExportRequest, Span, Value};
use http_body_util::{BodyExt as _, Full};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::support::{
    Request, Router, Scripted, WAIT_MAX, Wire, ask, deaf, eventually, json_answer, sse_head,
};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const TOKEN: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
const GRPC: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// A collector that takes spans over HTTP and gRPC.
struct Collector {
    address: SocketAddr,
    batches: mpsc::Receiver<(HeaderMap, ExportRequest)>,
    _server: JoinSet<()>,
}

type Sender = Arc<mpsc::Sender<(HeaderMap, ExportRequest)>>;

async fn take_http(State(sender): State<Sender>, headers: HeaderMap, body: Bytes) {
    assert_eq!(headers["content-type"], "application/x-protobuf");
    let read = ExportRequest::read(&body).expect("it is protobuf");
    sender.send((headers, read)).await.unwrap();
}

async fn take_grpc(
    State(sender): State<Sender>,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    assert_eq!(headers["content-type"], "application/grpc");
    let length = u32::from_be_bytes(body[1..5].try_into().unwrap());
    assert_eq!((body[0], usize::try_from(length).unwrap()), (0, body.len() - 5));
    let read = ExportRequest::read(&body[5..]).expect("it is protobuf");
    sender.send((headers, read)).await.unwrap();
    let trailers =
        HeaderMap::from_iter([("grpc-status".parse().unwrap(), HeaderValue::from_static("0"))]);
    let empty = Full::new(Bytes::from_static(&[0; 5])).with_trailers(async { Some(Ok(trailers)) });
    let mut answer = Response::new(Body::new(empty));
    answer.headers_mut().insert("content-type", HeaderValue::from_static("application/grpc"));
    answer
}

impl Collector {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, batches) = mpsc::channel(64);
        let routes = Routes::new()
            .route("/v1/traces", post(take_http))
            .route(GRPC, post(take_grpc))
            .with_state(Arc::new(sender));
        let mut server = JoinSet::new();
        server.spawn(async move { axum::serve(listener, routes).await.unwrap() });
        Self { address, batches, _server: server }
    }

    /// Waits for the spans of a request.
    async fn spans_of(&mut self, request_id: &str) -> Vec<Span> {
        let mut seen: Vec<Span> = Vec::new();
        loop {
            let of = seen.iter().find(|it| text(it, "cleave.request_id") == Some(request_id));
            if let Some(whole) = of {
                let trace = whole.trace_id.clone();
                return seen.into_iter().filter(|it| it.trace_id == trace).collect();
            }
            let (headers, batch) = timeout(WAIT_MAX, self.batches.recv()).await.unwrap().unwrap();
            assert_eq!(headers["x-collector-key"], "Bearer abc");
            seen.extend(batch.spans().cloned());
        }
    }
}

fn text<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    let Value::Text(text) = span.attribute(key)? else { return None };
    Some(text)
}

fn hex(bytes: &[u8]) -> String {
    let digits = bytes.iter().flat_map(|it| [it >> 4, it & 15]);
    digits.filter_map(|it| char::from_digit(it.into(), 16)).collect()
}

fn traces(collector: SocketAddr, more: &str) -> String {
    let more = format!("traces.{}\n", more.replace('\n', "\ntraces."));
    format!(
        "traces.endpoint = \"http://{collector}\"\ntraces.interval = \"20ms\"\n\
         traces.headers.x-collector-key = \"Bearer abc\"\n{more}"
    )
}

fn streamed(id: &str) -> Request {
    let body = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hi"}]}"#;
    Request::post("/v1/chat/completions", body).header("x-request-id", id)
}

#[tokio::test]
async fn a_request_is_told_as_spans_over_http_and_grpc_and_its_trace_goes_on_to_the_engine() {
    for protocol in ["http", "grpc"] {
        let mut collector = Collector::start().await;
        let (replica, mut requests) = Scripted::by_hand().await;
        let settings =
            traces(collector.address, &format!("protocol = \"{protocol}\"\nsample = 0.0"));
        let router = Router::start(&[replica.url()], &settings).await;
        let request = streamed("r-1")
            .header("traceparent", PARENT)
            .header("tracestate", "vendor=1")
            .header("baggage", "user=7");
        let mut client = Wire::connect(router.address).await;
        client.send(&request.bytes()).await;
        let mut exchange = requests.next().await;
        exchange.body().await;
        let told = exchange.head.header("traceparent").unwrap().to_owned();
        assert!(told.starts_with(&format!("00-{TRACE}-")) && told.ends_with("-01"), "{told}");
        assert_eq!(exchange.head.header("tracestate"), Some("vendor=1"));
        assert_eq!(exchange.head.header("baggage"), Some("user=7"));
        exchange.send(sse_head()).await;
        exchange.chunk(TOKEN).await;
        exchange.chunk(TOKEN).await;
        exchange.send("0\r\n\r\n").await;
        assert_eq!(client.head().await.unwrap().status(), 200);
        client.body().await.unwrap();

        let mut spans = collector.spans_of("r-1").await;
        // A busy machine may take its time over a decision.
        spans.retain(|it| it.name != "wait");
        let names: Vec<&str> = spans.iter().map(|it| it.name.as_str()).collect();
        let whole = "POST /v1/chat/completions";
        assert_eq!(names, [whole, "pick", "chat m", "first token", "relay"], "{protocol}");
        assert!(spans.iter().all(|it| hex(&it.trace_id) == TRACE));
        assert_eq!(hex(&spans[0].parent_span_id), "00f067aa0ba902b7", "below the client's span");
        assert_eq!(told.split('-').nth(2), Some(hex(&spans[2].span_id).as_str()));
        assert_eq!(spans[2].parent_span_id, spans[0].span_id);
        assert_eq!(spans[4].parent_span_id, spans[2].span_id);
        assert_eq!(text(&spans[2], "cleave.replica"), Some(replica.url().as_str()));
        assert_eq!(text(&spans[2], "gen_ai.request.model"), Some("m"));
        assert_eq!(text(&spans[0], "cleave.pool"), Some("default"));
        assert!(spans.iter().all(|it| it.start_time_unix_nano <= it.end_time_unix_nano));
    }
}

#[tokio::test]
async fn where_none_is_drawn_what_fails_or_is_asked_about_is_recorded_all_the_same() {
    let mut collector = Collector::start().await;
    let replica = Scripted::start(|mut exchange| async move {
        exchange.body().await;
        let fails = exchange.head.header("x-request-id") == Some("bad");
        exchange.send(json_answer(if fails { 500 } else { 200 }, "{}")).await;
    })
    .await;
    let settings = traces(collector.address, "sample = 0.0\nfollow_parent = false");
    let settings = format!("explain.clients = true\n{settings}");
    let router = Router::start(&[replica.url()], &settings).await;
    let plain = Request::chat("hi").header("traceparent", PARENT);
    assert_eq!(router.ask(&plain.header("x-request-id", "good")).await.status(), 200);
    let asked = Request::chat("hi").header("x-cleave-explain", "1");
    assert_eq!(router.ask(&asked.header("x-request-id", "asked")).await.status(), 200);
    let mut seen = collector.spans_of("asked").await;
    assert!(500 <= router.ask(&Request::chat("hi").header("x-request-id", "bad")).await.status());
    let failed = collector.spans_of("bad").await;
    assert!(failed[0].status.as_ref().is_some_and(|it| it.code == 2), "{:?}", failed[0]);
    assert!(
        text(&failed[0], "error.type").is_some() && text(&failed[0], "cleave.verdict").is_some()
    );
    seen.extend(failed);
    let ids = seen.iter().filter_map(|it| text(it, "cleave.request_id"));
    assert_eq!(ids.collect::<Vec<_>>(), ["asked", "bad"]);
}

#[tokio::test]
async fn a_collector_that_hangs_or_is_away_costs_requests_nothing_and_drops_are_counted() {
    // Connections to it stand, and nothing is ever read.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (_held, away) = deaf();
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    for collector in [silent.local_addr().unwrap(), away] {
        let settings = traces(collector, "sample = 1.0\ntimeout = \"100ms\"");
        let router = Router::start(&[replica.url()], &settings).await;
        for _ in 0..20 {
            assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
        }
        let metrics = ask(router.admin, &Request::get("/metrics")).await;
        assert!(metrics.text().contains("cleave_trace_spans_total{outcome=\"sent\"} 0"));
    }
}

#[tokio::test]
async fn without_traces_the_clients_trace_passes_as_it_stands() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::chat("hi").header("traceparent", PARENT).bytes()).await;
    let exchange = requests.next().await;
    assert_eq!(exchange.head.header("traceparent"), Some(PARENT));
    exchange.answer(json_answer(200, "{}")).await;
}

#[tokio::test]
async fn histograms_name_a_trace_that_was_recorded_as_an_example() {
    let mut collector = Collector::start().await;
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let settings = traces(collector.address, "sample = 1.0");
    let router = Router::start(&[replica.url()], &settings).await;
    router
        .ask(&Request::chat("hi").header("traceparent", PARENT).header("x-request-id", "e"))
        .await;
    collector.spans_of("e").await;
    let open = Request::get("/metrics").header("accept", "application/openmetrics-text");
    let example = format!(" # {{trace_id=\"{TRACE}\"}} ");
    eventually("a bucket has an example", async || {
        let page = ask(router.admin, &open).await;
        let mut lines = page.text().lines();
        lines.any(|it| it.starts_with("cleave_request_seconds_bucket{") && it.contains(&example))
    })
    .await;
    let plain = ask(router.admin, &Request::get("/metrics")).await;
    assert!(!plain.text().contains("trace_id"), "Prometheus' own format has none");
}
