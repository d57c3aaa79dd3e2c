//! The line over HTTP: which request goes first, which is refused and why, and what answers say of
//! it. One replica is played by hand and every prompt is large enough to fill the replica until it
//! is answered, so the order is that of the test's own steps and no clock decides anything.

use std::fmt::Write as _;

use crate::support::{
    Json, Request, Requests, Router, Scripted, Wire, ask, config, json_answer, sse_head,
};

/// Takes most of a minute to read, by any prediction: longer than any of these tests.
const LONG_BYTES: usize = 1_000_000;

fn long(class: &str) -> Request {
    Request::chat(&"word ".repeat(LONG_BYTES / 5)).header("x-cleave-class", class)
}

/// The SHA-256 of `key-a`, `key-b` and `key-c`.
const KEYS: [(&str, &str); 3] = [
    ("a", "f10f781241e2246678b6b45c857069208152a53863e47fac33f607ab405006f4"),
    ("b", "a30534a53b23547377ddccbd1ac85a8a84c13db43493c16e55a6abc7b0eba634"),
    ("c", "49043acf9056472a214242c2d15f3087c2d024b0d39ee858c60712b2354f3926"),
];

/// The same of `key-d`.
const KEY_D: &str = "762e6ad0dcc69a239e15262882e6a8e08671002b9f355cba6da005e3a8f677ca";

fn tenants(lines: &str) -> String {
    let mut text = String::new();
    for (name, hash) in KEYS {
        write!(text, "[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{hash}\"]\n{lines}\n")
            .unwrap();
    }
    text
}

struct Bench {
    router: Router,
    requests: Requests,
    replica: Scripted,
}

impl Bench {
    async fn start(settings: &str) -> Self {
        let (replica, requests) = Scripted::by_hand().await;
        let settings = format!("line.hold = true\n{settings}");
        let router = Router::start(&[replica.url()], &settings).await;
        Self { router, requests, replica }
    }

    /// Sends a request that finds the replica free, and sees it there; returns the client that waits
    /// for its answer.
    async fn send(&self, request: &Request) -> Wire {
        let client = self.ask(request).await;
        let arrived = |it: &crate::support::Status| it.pools[0].replicas[0].in_flight == 1;
        self.router.until("it is at the replica", arrived).await;
        client
    }

    async fn ask(&self, request: &Request) -> Wire {
        let mut client = Wire::connect(self.router.address).await;
        client.send(&request.bytes()).await;
        client
    }

    /// Sends a request that must wait, and sees it wait.
    async fn join(&self, request: &Request, place: usize) -> Wire {
        let client = self.ask(request).await;
        self.until_waiting(place).await;
        client
    }

    async fn until_waiting(&self, count: usize) {
        let waiting = |it: &crate::support::Status| it.pools[0].queue.waiting == count;
        self.router.until("enough requests wait", waiting).await;
    }

    async fn until_idle(&self) {
        let idle = |it: &crate::support::Status| it.pools[0].replicas[0].in_flight == 0;
        self.router.until("nothing is at the replica", idle).await;
    }

    /// Answers what the replica has; returns the value of a header of that request.
    async fn answer(&mut self, header: &str) -> String {
        let exchange = self.requests.next().await;
        let value = exchange.head.header(header).unwrap_or_default().to_owned();
        exchange.answer(json_answer(200, USAGE)).await;
        value
    }
}

const USAGE: &str = r#"{"usage":{"prompt_tokens":40000,"completion_tokens":16}}"#;

#[tokio::test]
async fn classes_go_by_weight_and_the_least_is_not_forgotten() {
    let mut bench = Bench::start("").await;
    let mut clients = vec![bench.send(&long("batch")).await];
    let mut waiting = 0;
    for class in ["batch", "standard", "interactive"] {
        for _ in 0..4 {
            waiting += 1;
            clients.push(bench.join(&long(class), waiting).await);
        }
    }
    let mut order = Vec::new();
    for _ in 0..clients.len() {
        order.push(bench.answer("x-cleave-class").await);
    }
    let of = |class: &str, among: &[String]| among.iter().filter(|it| *it == class).count();
    assert_eq!(of("interactive", &order[1..7]), 4, "{order:?}");
    assert!(of("standard", &order[1..9]) >= 3, "{order:?}");
    assert_eq!(order.last().map(String::as_str), Some("batch"));
    for (number, mut client) in clients.into_iter().enumerate() {
        let answer = client.answer().await;
        assert_eq!(answer.status(), 200);
        // On a busy machine the decision on the first may take long enough to look like a wait.
        let waited = answer.header("x-cleave-waited-ms").is_some();
        assert!(waited || number == 0, "{number} waited and is not told");
    }
}

#[tokio::test]
async fn tenants_of_a_class_get_the_same_work_however_much_they_ask_for() {
    let mut bench = Bench::start(&tenants("")).await;
    let of = |tenant: &str| {
        long("standard").header("x-api-key", format!("key-{tenant}")).header("x-who", tenant)
    };
    let mut clients = vec![bench.send(&of("c")).await];
    for number in 0..10 {
        clients.push(bench.join(&of("a"), number + 1).await);
    }
    clients.push(bench.join(&of("b"), 11).await);
    clients.push(bench.join(&of("b"), 12).await);
    let mut order = Vec::new();
    for _ in 0..clients.len() {
        order.push(bench.answer("x-who").await);
    }
    let first_four = order[1..5].iter().filter(|it| *it == "b").count();
    assert_eq!(first_four, 2, "{order:?}");
}

#[tokio::test]
async fn beyond_a_contract_only_idle_capacity_is_used() {
    let settings = tenants("contract = { requests_per_min = 20 }");
    let mut bench = Bench::start(&settings).await;
    let of =
        |tenant: &str| Request::chat("hi").header("authorization", format!("Bearer key-{tenant}"));
    for _ in 0..3 {
        let mut client = bench.send(&of("a")).await;
        bench.answer("x-who").await;
        let answer = client.answer().await;
        assert_eq!(
            (answer.status(), answer.header("x-ratelimit-limit-requests")),
            (200, Some("20"))
        );
        let remaining = answer.header("x-ratelimit-remaining-requests");
        assert_eq!(remaining, Some("20"), "what is idle would be served");
    }
    let busy = bench.send(&long("standard").header("x-api-key", "key-b")).await;
    let held = bench.requests.next().await;
    let refused = bench.router.ask(&of("a")).await;
    assert_eq!((refused.status(), refused.refusal().code.as_str()), (429, "over_contract"));
    let seconds: u32 = refused.header("retry-after").unwrap().parse().unwrap();
    assert!((1..=3).contains(&seconds), "{seconds}");
    let used = tenant(&bench, "a").await["used"].take();
    assert!(used.as_array().unwrap().iter().any(|it| it["kind"] == "best_effort"), "{used}");
    drop((held, busy));
}

#[tokio::test]
async fn deadlines_that_cannot_be_met_are_refused_at_once() {
    let bench = Bench::start("").await;
    for header in ["x-request-timeout-ms", "x-llm-d-slo-ttft-ms", "x-slo-ttft-ms"] {
        let refused = bench.router.ask(&long("standard").header(header, "5")).await;
        assert_eq!(
            (refused.status(), refused.refusal().code.as_str()),
            (504, "deadline_unmeetable")
        );
    }
    let late = Request::chat("hi").header("x-llm-d-inference-ttl", "-3");
    assert_eq!(bench.router.ask(&late).await.status(), 504);
    assert_eq!(bench.replica.hits(), 0, "nothing of it reached an engine");
}

#[tokio::test]
async fn a_client_that_leaves_the_line_frees_its_place() {
    let mut bench = Bench::start("").await;
    let mut first = bench.send(&long("standard")).await;
    let leaves = bench.join(&long("standard").header("x-who", "gone"), 1).await;
    let mut stays = bench.join(&long("standard").header("x-who", "here"), 2).await;
    drop(leaves);
    bench.until_waiting(1).await;
    bench.answer("x-who").await;
    assert_eq!(bench.answer("x-who").await, "here");
    assert_eq!((first.answer().await.status(), stays.answer().await.status()), (200, 200));
    assert_eq!(bench.replica.hits(), 2);
}

#[tokio::test]
async fn keys_are_rotated_while_requests_wait() {
    let mut bench = Bench::start(&tenants("")).await;
    let of = |key: &str| long("standard").header("x-api-key", key);
    let mut first = bench.send(&of("key-a")).await;
    let mut waits = bench.join(&of("key-b"), 1).await;
    assert_eq!(bench.router.ask(&of("key-d")).await.status(), 401);
    let url = bench.replica.url();
    bench.router.write(&config(&[(url.as_str(), 1.0)], &tenants("").replace(KEYS[1].1, KEY_D)));
    bench.router.says("configuration reloaded").await;
    let refused = bench.router.ask(&of("key-b")).await;
    assert_eq!((refused.status(), refused.refusal().code.as_str()), (401, "unknown_key"));
    bench.answer("x-who").await;
    bench.answer("x-who").await;
    assert_eq!((first.answer().await.status(), waits.answer().await.status()), (200, 200));
    let mut renewed = bench.send(&of("key-d")).await;
    bench.answer("x-who").await;
    assert_eq!(renewed.answer().await.status(), 200);
}

#[tokio::test]
async fn a_class_that_does_not_exist_is_an_error_that_lists_those_that_do() {
    let bench = Bench::start("").await;
    let refused = bench.router.ask(&Request::chat("hi").header("x-cleave-class", "gold")).await;
    assert_eq!((refused.status(), refused.refusal().code.as_str()), (400, "unknown_class"));
    assert!(refused.refusal().message.contains("interactive, standard, batch"));
}

#[tokio::test]
async fn who_waited_and_who_was_refused_can_ask_what_for() {
    let mut bench = Bench::start(&format!("explain.clients = true\n{}", tenants(""))).await;
    let of = |id: &str, who: &str| {
        long("standard")
            .header("x-api-key", format!("key-{who}"))
            .header("x-request-id", id)
            .header("x-cleave-explain", "1")
    };
    let mut first = bench.send(&of("first", "a")).await;
    let mut held = bench.join(&of("held", "b"), 1).await;
    let refused = bench.router.ask(&of("late", "c").header("x-slo-ttft-ms", "5")).await;
    let line = refused.header("x-cleave-decision").unwrap();
    assert!(line.starts_with("deadline_unmeetable first_token_within_ms="), "{line}");
    for _ in 0..2 {
        bench.answer("x-who").await;
    }
    let answer = first.answer().await;
    let line = answer.header("x-cleave-decision").unwrap();
    assert!(!line.contains("waited_for"), "{line}");
    let answer = held.answer().await;
    let line = answer.header("x-cleave-decision").unwrap();
    assert!(line.contains(" class=standard waited_for=knee waited_ms="), "{line}");
    let page = ask(bench.router.admin, &Request::get("/explain/held")).await;
    let line = &page.json()["line"];
    assert_eq!((&line["tenant"], &line["waited_for"]), (&"b".into(), &"knee".into()), "{line}");
    assert!(line["waited_ms"].is_number(), "{line}");
    assert!(line["because"].as_str().unwrap().starts_with("every replica"), "{line}");
    let page = ask(bench.router.admin, &Request::get("/explain/late")).await;
    let page = page.json();
    let line = &page["line"];
    assert_eq!((&line["class"], &line["tenant"]), (&"standard".into(), &"c".into()), "{line}");
    assert_eq!(line["waited_ms"], 0.0, "{line}");
    assert!(line["first_token_within_ms"].is_number(), "{line}");
    assert_eq!(page["refusal"], "deadline_unmeetable", "{page}");
}

/// What `/tenants` shows of one tenant in the only pool.
async fn tenant(bench: &Bench, name: &str) -> Json {
    let mut listed = ask(bench.router.admin, &Request::get("/tenants")).await.json();
    let tenants = listed["pools"][0]["tenants"].as_array_mut().expect("it is a list");
    let tenant = tenants.iter_mut().find(|it| it["name"] == name);
    tenant.unwrap_or_else(|| panic!("{name} is not listed")).take()
}

#[tokio::test]
async fn a_contract_counts_what_was_streamed_when_its_client_leaves() {
    const TOKENS: u64 = 500;
    let settings = tenants("contract = { tokens_per_min = 60000 }");
    let mut bench = Bench::start(&settings).await;
    let mut client = bench.ask(&Request::stream("hi").header("x-api-key", "key-a")).await;
    let mut exchange = bench.requests.next().await;
    exchange.body().await;
    exchange.send(sse_head()).await;
    for _ in 0..TOKENS {
        exchange.chunk("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n").await;
    }
    client.head().await.expect("the answer begins");
    let mut seen = 0;
    while seen < TOKENS {
        let piece = client.piece().await.expect("it is not cut").expect("it goes on");
        let events = String::from_utf8_lossy(&piece).matches("data:").count();
        seen += u64::try_from(events).unwrap();
    }
    drop(client);
    bench.until_idle().await;
    let it = tenant(&bench, "a").await;
    assert_eq!((&it["waiting"], &it["in_flight"]), (&0.into(), &0.into()), "{it}");
    let used = it["used"].as_array().unwrap().iter().find(|it| it["kind"] == "guaranteed");
    let used = used.expect("it is told apart")["tokens"].as_u64().expect("in tokens too");
    assert!((TOKENS - 5..TOKENS + 50).contains(&used), "{used}");
}

#[tokio::test]
async fn a_contract_counts_streams_as_they_flow_and_what_was_cancelled() {
    let settings = tenants("contract = { tokens_per_min = 60, burst = \"1h\" }");
    let mut bench = Bench::start(&settings).await;
    let of = || Request::stream("hi").header("x-api-key", "key-a");
    let left = async |bench: &Bench| -> i64 {
        tenant(bench, "a").await["remaining"]["tokens"].as_i64().expect("tokens are limited")
    };
    let mut client = bench.ask(&of()).await;
    let mut exchange = bench.requests.next().await;
    let before = left(&bench).await;
    exchange.send(sse_head()).await;
    for _ in 0..2_000 {
        exchange.chunk("data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n").await;
    }
    // Each token past the prediction is taken from the contract while it streams. An hour's worth was
    // saved up, and the rate gives hardly any of it back meanwhile.
    let counted = async || left(&bench).await <= before - 1_000;
    crate::support::eventually("the stream is counted", counted).await;
    drop((client.head().await, client));
    bench.until_idle().await;
    let it = tenant(&bench, "a").await;
    assert_eq!(it["in_flight"], 0, "{it}");
}
