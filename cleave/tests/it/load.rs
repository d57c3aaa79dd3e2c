//! What weighs on a replica: what is booked while a request is in flight, and what engines say.

use std::time::Instant;

use serde::Deserialize;

use crate::support::{Mock, Request, Router, Scripted, Wire, ask, eventually, sse_head};

async fn load(router: &Router) -> String {
    ask(router.admin, &Request::get("/load")).await.text().to_owned()
}

async fn until_load_shows(router: &Router, wanted: &[&str]) {
    let shown = async || {
        let load = load(router).await;
        wanted.iter().all(|it| load.contains(it))
    };
    eventually(&format!("/load shows {wanted:?}"), shown).await;
}

#[tokio::test]
async fn a_stream_weighs_as_waiting_and_then_as_being_answered() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    let mut client = Wire::connect(router.address).await;
    // 4,000 bytes of text, and the role before it.
    client.send(&Request::stream(&"one two ".repeat(500)).bytes()).await;
    let mut exchange = requests.next().await;
    let waiting = "\"waiting_prompt_tokens\":100";
    until_load_shows(&router, &["\"in_flight\":1", waiting, "\"output_tokens\":16}"]).await;
    exchange.send(sse_head()).await;
    exchange.send("9\r\ndata: 1\n\n\r\n").await;
    until_load_shows(&router, &["\"waiting_prompt_tokens\":0", "\"answering_prompt_tokens\":100"])
        .await;
    exchange.send("0\r\n\r\n").await;
    until_load_shows(&router, &["\"in_flight\":0", "\"output_tokens\":0}", "\"report\":null"])
        .await;
}

/// Reads the sum of a histogram of the only pool.
async fn sum_s(router: &Router, name: &str) -> f64 {
    let metrics = ask(router.admin, &Request::get("/metrics")).await;
    let name = format!("{name}_sum{{pool=\"default\"}} ");
    let found = metrics.text().lines().find_map(|it| it.strip_prefix(&name)?.parse().ok());
    found.unwrap_or_else(|| panic!("{name} is not in {}", metrics.text()))
}

#[tokio::test]
async fn the_first_token_is_the_first_word_and_not_the_role_before_it() {
    let role = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n";
    let word = "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\n";
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "explain.sample = 1").await;
    let mut client = Wire::connect(router.address).await;
    // A prompt that takes a minute to read by prediction, so that no timer takes it for read.
    let long = Request::stream(&"one two ".repeat(150_000)).header("x-request-id", "r-1");
    client.send(&long.bytes()).await;
    let mut exchange = requests.next().await;
    exchange.body().await;
    exchange.send(sse_head()).await;
    exchange.chunk(format!(": keep-alive\n\n{role}")).await;
    client.head().await.unwrap();
    let came = client.piece().await.unwrap().unwrap();
    assert_eq!(came, format!(": keep-alive\n\n{role}").into_bytes(), "nothing is held back");
    let role_at = Instant::now();
    let shown = load(&router).await;
    assert!(shown.contains("\"answering_prompt_tokens\":0"), "no token came: {shown}");
    let between_s = role_at.elapsed().as_secs_f64();
    exchange.chunk(word).await;
    assert_eq!(client.piece().await.unwrap().unwrap(), word.as_bytes());
    let shown = load(&router).await;
    assert!(shown.contains("\"waiting_prompt_tokens\":0"), "a token came: {shown}");
    exchange.send("0\r\n\r\n").await;
    client.body().await.unwrap();
    until_load_shows(&router, &["\"in_flight\":0"]).await;

    let first_byte_s = sum_s(&router, "cleave_first_byte_seconds").await;
    let first_token_s = sum_s(&router, "cleave_first_token_seconds").await;
    assert!(between_s <= first_token_s - first_byte_s, "{first_byte_s} {first_token_s}");
    let explained = ask(router.admin, &Request::get("/explain/r-1")).await.json();
    let ttft_ms = explained["outcome"]["ttft_ms"].as_f64().expect("it is known");
    assert!(between_s * 1e3 <= ttft_ms, "{explained}");
}

#[tokio::test]
async fn costs_are_shown_with_what_was_seen_and_how_far_off_they_are() {
    let mock = Mock::start(&["--speed", "inf"]);
    let router = Router::start(&[mock.url()], "explain.sample = 1.0").await;
    for number in 0..3 {
        let answer = router.ask(&Request::stream(&format!("tell me {number}"))).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
    }
    until_load_shows(&router, &["\"class\":\"h200\",\"used\":\"given\"", "\"first_token\":{"])
        .await;
    let explained = ask(router.admin, &Request::get("/explain")).await;
    assert!(explained.text().contains("\"costs\":{\"class\":\"h200\""), "{}", explained.text());
    let metrics = ask(router.admin, &Request::get("/metrics")).await;
    assert!(metrics.text().contains("cleave_cost_error_ratio{"), "{}", metrics.text());
}

#[tokio::test]
async fn what_engines_say_of_themselves_is_shown() {
    let mock = Mock::start(&[]);
    let router = Router::start(&[mock.url()], "health.report_interval = \"20ms\"").await;
    until_load_shows(&router, &["\"waiting\":0,\"running\":0", "\"kv_tokens_max\":524288"]).await;
    let metrics = ask(router.admin, &Request::get("/metrics")).await;
    assert!(metrics.text().contains("cleave_replica_report_age_seconds{"), "{}", metrics.text());
}

#[derive(Deserialize)]
struct Load {
    pools: Vec<PoolLoad>,
}

#[derive(Deserialize)]
struct PoolLoad {
    replicas: Vec<ReplicaLoad>,
}

#[derive(Deserialize)]
struct ReplicaLoad {
    in_flight: u32,
    in_flight_mu: f64,
    booked: Booked,
}

#[derive(Deserialize)]
struct Booked {
    prefill_ms: f64,
    decode_ms: f64,
    kv_tokens: u64,
    kv_growth_tokens: u64,
}

impl ReplicaLoad {
    fn is_idle(&self) -> bool {
        let times = [self.in_flight_mu, self.booked.prefill_ms, self.booked.decode_ms];
        let tokens = self.booked.kv_tokens + self.booked.kv_growth_tokens;
        times.iter().all(|it| it.abs() < 1e-12) && (self.in_flight, tokens) == (0, 0)
    }
}

async fn until_booked(router: &Router, what: &str, holds: impl Fn(&ReplicaLoad) -> bool) {
    eventually(what, async || {
        let load: Load = serde_json::from_str(&load(router).await).unwrap();
        holds(&load.pools[0].replicas[0])
    })
    .await;
}

#[tokio::test]
async fn work_is_booked_in_model_units_and_gone_after_a_cancellation_or_a_cut() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "").await;
    for cancels in [true, false] {
        let mut client = Wire::connect(router.address).await;
        client.send(&Request::stream(&"one two ".repeat(500)).bytes()).await;
        let mut exchange = requests.next().await;
        // A thousand tokens take an H200 about 25 ms, of which 600 are a model unit.
        until_booked(&router, "a prompt is booked", |it| {
            let booked = &it.booked;
            (0.03..0.1).contains(&it.in_flight_mu)
                && 20.0 < booked.prefill_ms
                && 900 < booked.kv_tokens
                && 0 < booked.kv_growth_tokens
        })
        .await;
        exchange.send(sse_head()).await;
        let event = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n";
        exchange.chunk(event.repeat(10)).await;
        // Of 16 tokens at most, the first eight are there.
        until_booked(&router, "its answer is written", |it| {
            it.booked.prefill_ms.abs() < 1e-12 && it.booked.kv_growth_tokens < 9
        })
        .await;
        if cancels {
            drop(client);
        } else {
            exchange.reset();
        }
        until_booked(&router, "nothing is left", ReplicaLoad::is_idle).await;
    }
}
