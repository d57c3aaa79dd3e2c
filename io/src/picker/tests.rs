//! Exchanges as a proxy plays them, over a real connection. Whatever the proxy does, each request is settled once.

mod bench;

use std::collections::BTreeSet;

use super::messages::{
    BUFFERED, BodyChange, HttpHeaders, HttpTrailers, NONE, NOT_SERVING, PickerMessage,
    ProxyMessage, SERVING,
};
use bench::{
    Bench, PATH, answer_body, answer_head, get, head, header, mutation, request_body, streamed,
    told,
};

const BODY: &str = r#"{"model":"m","stream":true,"messages":[{"role":"user","content":"hello"}]}"#;
const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
const USAGE: &str = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":3}}\n\n\
                     data: [DONE]\n\n";

fn counted(bench: &Bench, line: &str) -> bool {
    bench.router.write_metrics().lines().any(|it| it == line)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_gets_a_destination_and_its_answer_is_counted() {
    let bench = Bench::start().await;
    let mut exchange = bench.call().await;
    let headers = [("x-session-id", "s"), ("authorization", "Bearer k"), ("x-cleave-explain", "t")];
    exchange.send(head(PATH, &headers));
    let (one, rest) = BODY.split_at(20);
    exchange.send(request_body(one, false));
    exchange.send(request_body(rest, true));
    let message = exchange.next().await.unwrap();
    let Some(PickerMessage::RequestHeaders(part)) = &message.response else {
        panic!("{message:?}")
    };
    let to = told(&message).unwrap();
    assert!(bench.replicas.contains(&to), "{to}");
    // The client's key and what is between it and the router do not reach the replica.
    let removed: BTreeSet<&str> =
        mutation(part).remove_headers.iter().map(String::as_str).collect();
    assert_eq!(removed, BTreeSet::from(["authorization", "x-cleave-explain"]));
    assert!(header(mutation(part), "x-request-id").is_some());
    assert_eq!(streamed(&exchange.next().await.unwrap()), (BODY.to_owned(), true));
    assert_eq!(bench.router.in_flight(), 1);
    let signed = exchange.answer(&[EVENT, EVENT, EVENT, USAGE]).await;
    assert_eq!(header(&signed, "x-session-id").as_deref(), Some("s"));
    assert_eq!(header(&signed, "x-accel-buffering").as_deref(), Some("no"));
    bench.until("it is settled", || bench.router.in_flight() == 0).await;
    exchange.close();
    assert_eq!(exchange.next().await, None);
    assert!(counted(&bench, "cleave_requests_total{pool=\"p\",status_class=\"2xx\"} 1"));
    let tokens =
        |kind, count| format!("cleave_tokens_total{{pool=\"p\",token_type=\"{kind}\"}} {count}");
    assert!(counted(&bench, &tokens("input", 7)), "{}", bench.router.write_metrics());
    assert!(counted(&bench, &tokens("output", 3)));
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_stay_where_they_are_and_are_spread_over_replicas() {
    let bench = Bench::start().await;
    let mut used = BTreeSet::new();
    for session in 0..12 {
        let name = session.to_string();
        let mut first = None;
        for _ in 0..3 {
            let mut exchange = bench.call().await;
            let to = exchange.ask(&[("x-session-id", &name)], BODY).await;
            exchange.answer(&[EVENT, USAGE]).await;
            assert_eq!(first.get_or_insert(to.clone()), &to, "session {session}");
            used.insert(to);
        }
    }
    assert_eq!(used.len(), 2);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_buffered_body_is_answered_with_the_destination_and_what_changes_in_it() {
    let bench = Bench::start().await;
    for (model, edited) in [("m", None), ("alias", Some("\"model\":\"m\""))] {
        let exchange = &mut bench.call().await;
        exchange.send_with(head(PATH, &[]), BUFFERED, None);
        let message = exchange.next().await.unwrap();
        let Some(PickerMessage::RequestHeaders(part)) = message.response else { panic!() };
        assert_eq!(part.response.unwrap().header_mutation, None, "the body decides");
        let body = BODY.replace("\"m\"", &format!("\"{model}\""));
        exchange.send_with(request_body(&body, true), BUFFERED, None);
        let message = exchange.next().await.unwrap();
        assert!(bench.replicas.contains(&told(&message).unwrap()));
        let Some(PickerMessage::RequestBody(part)) = message.response else { panic!() };
        let change = part.response.unwrap().body_mutation.and_then(|it| it.mutation);
        let text = change.map(|it| match it {
            BodyChange::Whole(body) => String::from_utf8(body.to_vec()).unwrap(),
            BodyChange::Streamed(it) => panic!("{it:?}"),
        });
        assert_eq!(text.is_some(), edited.is_some());
        assert!(edited.is_none_or(|it| text.unwrap().contains(it)));
        exchange.close();
        assert_eq!(exchange.next().await, None);
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_its_body_a_request_is_picked_for_by_its_head() {
    let bench = Bench::start().await;
    let mut exchange = bench.call().await;
    exchange.send_with(head(PATH, &[]), NONE, None);
    assert!(bench.replicas.contains(&exchange.destination().await));
    exchange.send_with(answer_head(200, "application/json"), NONE, None);
    let message = exchange.next().await.unwrap();
    assert!(matches!(message.response, Some(PickerMessage::ResponseHeaders(_))), "{message:?}");
    bench
        .until("its end is not seen, so its head is the end", || bench.router.in_flight() == 0)
        .await;
    drop(exchange);
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_served_is_answered_in_the_words_of_the_router() {
    let bench = Bench::start().await;
    let large = format!("{{\"model\":\"m\",\"prompt\":\"{}\"}}", "x".repeat(1 << 20));
    for (path, body, status, code) in [
        (PATH, "{\"model\":", 400, "invalid_body"),
        (PATH, "[1, 2", 400, "invalid_body"),
        (PATH, large.as_str(), 413, "body_too_large"),
        (PATH, "{\"model\":\"other\"}", 404, "model_not_found"),
        ("/admin/secrets", BODY, 404, "path_not_served"),
        ("/v1/../x", BODY, 400, "invalid_path"),
    ] {
        let mut exchange = bench.call().await;
        exchange.send(head(path, &[]));
        exchange.send(request_body(body, true));
        let answer = exchange.immediate().await;
        assert_eq!(answer.status.unwrap().code, status, "{path} {code}");
        let text = String::from_utf8(answer.body.to_vec()).unwrap();
        assert!(text.contains(&format!("\"{code}\"")), "{text}");
        let kind = header(answer.headers.as_ref().unwrap(), "content-type");
        assert_eq!(kind.as_deref(), Some("application/json"));
    }
    let mut exchange = bench.call().await;
    exchange.send(get("/v1/models"));
    let models = exchange.immediate().await;
    assert_eq!(models.status.unwrap().code, 200);
    assert!(String::from_utf8_lossy(&models.body).contains("\"alias\""));
    let mut exchange = bench.call().await;
    exchange.send(ProxyMessage::RequestHeaders(HttpHeaders::default()));
    exchange.send(request_body(BODY, true));
    assert_eq!(exchange.immediate().await.status.unwrap().code, 404, "nothing is at its path");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_exchange_that_ends_at_any_message_leaves_nothing_on_the_books() {
    let bench = Bench::start().await;
    let play = || {
        [
            head(PATH, &[]),
            request_body(BODY, false),
            ProxyMessage::RequestTrailers(HttpTrailers::default()),
            answer_head(200, "text/event-stream"),
            answer_body(EVENT, false),
            answer_body(USAGE, false),
            ProxyMessage::ResponseTrailers(HttpTrailers::default()),
        ]
    };
    let mut asked = 0;
    for count in 0..=play().len() {
        // Closed properly, and dropped without a word.
        for is_dropped in [false, true] {
            let mut exchange = bench.call().await;
            for message in play().into_iter().take(count) {
                exchange.send(message);
            }
            asked += u64::from(0 < count);
            if is_dropped {
                drop(exchange);
            } else {
                exchange.close();
                while exchange.next().await.is_some() {}
            }
        }
    }
    bench.until("the books are empty", || bench.router.in_flight() == 0).await;
    let ended = || {
        let metrics = bench.router.write_metrics();
        let value = |name: &str| -> u64 {
            let line = metrics.lines().find(|it| it.starts_with(name));
            line.map_or(0, |it| it.rsplit(' ').next().unwrap().parse().unwrap())
        };
        let whole = value("cleave_requests_total{pool=\"p\",status_class=\"2xx\"}");
        (whole, whole + value("cleave_cancelled_total{pool=\"p\"}"))
    };
    // A request that was placed is counted once; those that ended before were never in a pool.
    let is_counted = || 1 <= ended().0 && ended().1 <= asked;
    bench.until("all that were placed are counted", is_counted).await;
    // The one that was closed at its end, and perhaps the one that was dropped there after all had been read.
    assert!((1..=2).contains(&ended().0), "{}", bench.router.write_metrics());
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_the_proxy_cannot_reach_is_blamed_and_one_that_answers_is_not() {
    let bench = Bench::start().await;
    let failed = || -> u64 {
        let pools = bench.router.pools();
        pools[0].snapshot().replicas.iter().map(|it| it.failed_total).sum()
    };
    let reset = "upstream_reset_before_response_started{remote_connection_failure}";
    for (details, status, want) in
        [(reset, 503, 1), ("via_upstream", 400, 1), ("ext_authz_denied", 403, 1)]
    {
        let mut exchange = bench.call().await;
        exchange.ask(&[], BODY).await;
        let head = answer_head(status, "text/plain");
        exchange.send_with(head, super::messages::FULL_DUPLEX_STREAMED, Some(details));
        let message = exchange.next().await.unwrap();
        assert!(matches!(message.response, Some(PickerMessage::ResponseHeaders(_))), "{message:?}");
        exchange.send(answer_body("no", true));
        assert_eq!(streamed(&exchange.next().await.unwrap()), ("no".to_owned(), true));
        bench.until("it is settled", || bench.router.in_flight() == 0).await;
        assert_eq!(failed(), want, "{details}");
    }
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_says_whether_the_picker_serves() {
    let bench = Bench::start().await;
    for service in
        ["", "readiness", "inference-extension", "envoy.service.ext_proc.v3.ExternalProcessor"]
    {
        assert_eq!(bench.health(service).await.unwrap(), SERVING, "{service}");
    }
    assert_eq!(bench.health("other").await.unwrap_err().code(), tonic::Code::NotFound);
    bench.router.start_draining();
    assert_eq!(bench.health("readiness").await.unwrap(), NOT_SERVING);
    assert_eq!(bench.health("liveness").await.unwrap(), SERVING);
    bench.end().await;
}
