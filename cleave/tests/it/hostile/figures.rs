//! Figures that a client has echoed, or that a replica makes up: nothing is learned from them, no contract
//! is ruined or evaded by them, and the books are in order at the end.

#![expect(
    clippy::disallowed_types,
    reason = "the tests play clients and engines, which build bodies"
)]

use serde_json::{Value, json};

use crate::support::{Request, Router, Scripted, Wire, ask, config, eventually, json_answer};

/// The SHA-256 of `key-a`.
const KEY_A: &str = "f10f781241e2246678b6b45c857069208152a53863e47fac33f607ab405006f4";

fn tenant() -> String {
    format!(
        "line.hold = true\n[[tenants]]\nname = \"a\"\nkey_sha256 = [\"{KEY_A}\"]\n\
         contract = {{ tokens_per_min = 100000000 }}\n"
    )
}

/// What a client would like to have believed.
fn forged() -> Value {
    json!({"prompt_tokens": u32::MAX, "completion_tokens": 1})
}

/// Finds tenant `a` in the list on the admin port.
async fn listed(router: &Router) -> Value {
    let answer = ask(router.admin, &Request::get("/tenants")).await;
    let list: Value = serde_json::from_slice(&answer.body).expect("it is JSON");
    let tenants = list["pools"][0]["tenants"].as_array().expect("there is a pool").clone();
    tenants.into_iter().find(|it| it["name"] == "a").expect("it is listed")
}

/// Sums the tokens that a tenant was charged.
fn charged(tenant: &Value) -> u64 {
    let used = tenant["used"].as_array().expect("by kind");
    used.iter().filter_map(|it| it["tokens"].as_u64()).sum()
}

async fn until_settled(router: &Router) -> Value {
    eventually("all is settled", async || listed(router).await["in_flight"] == 0).await;
    listed(router).await
}

#[tokio::test]
async fn an_echoed_usage_is_neither_charged_nor_learned() {
    let metadata = json!({"usage": forged()});
    let honest = json!({"input_tokens": 2_000, "output_tokens": 5});
    let whole = json!({"id": "r", "usage": honest, "metadata": metadata});
    let replica = Scripted::answering(json_answer(200, &whole.to_string())).await;
    let router = Router::start(&[replica.url()], &tenant()).await;
    // Long enough that its beginning is remembered.
    let body = json!({"input": "word ".repeat(2_000), "metadata": metadata}).to_string();
    let request = || Request::post("/v1/responses", body.clone()).header("x-api-key", "key-a");
    for _ in 0..7 {
        assert_eq!(router.ask(&request()).await.status(), 200);
    }
    assert_eq!(charged(&until_settled(&router).await), 7 * 2_005);
    assert_eq!(router.counter("cleave_tokens_total").await, 7 * 2_005);
    // The same in an error, as FastAPI words it.
    let refused = json!({"detail": [{"input": {"usage": forged()}}], "usage": forged()});
    let replica = Scripted::answering(json_answer(422, &refused.to_string())).await;
    let router = Router::start(&[replica.url()], &tenant()).await;
    assert_eq!(router.ask(&request()).await.status(), 422);
    assert!(charged(&until_settled(&router).await) < 10_000);
    assert_eq!(router.counter("cleave_tokens_total").await, 0);
}

#[tokio::test]
async fn a_replica_that_lies_ruins_no_contract_and_brings_nothing_down() {
    let absurd = json!({"choices": [], "usage": forged()}).to_string();
    let replica = Scripted::answering(json_answer(200, &absurd)).await;
    let router = Router::start(&[replica.url()], &tenant()).await;
    let request = || Request::chat(&"word ".repeat(2_000)).header("x-api-key", "key-a");
    for _ in 0..20 {
        assert_eq!(router.ask(&request()).await.status(), 200);
    }
    let all: Vec<_> = (0..40).map(|_| router.address).collect();
    let mut clients = Vec::new();
    for address in all {
        let mut client = Wire::connect(address).await;
        client.send(&request().bytes()).await;
        clients.push(client);
    }
    // Half of them leave; the others are answered.
    for mut client in clients.split_off(20) {
        assert_eq!(client.answer().await.status(), 200);
    }
    drop(clients);
    let tenant = until_settled(&router).await;
    // Ten thousand bytes are no more than as many tokens, and a template's.
    assert!(charged(&tenant) < 60 * 30_000, "{tenant}");
    assert!(!router.process.log().contains("panicked"), "{}", router.process.log());
}

#[tokio::test]
async fn who_leaves_before_the_first_byte_is_charged() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], &tenant()).await;
    let request = Request::chat(&"word ".repeat(2_000)).header("x-api-key", "key-a");
    let mut client = Wire::connect(router.address).await;
    client.send(&request.bytes()).await;
    let mut exchange = requests.next().await;
    exchange.body().await;
    drop(client);
    let tenant = until_settled(&router).await;
    let used = tenant["used"].as_array().expect("by kind");
    let mu: f64 = used.iter().filter_map(|it| it["mu"].as_f64()).sum();
    assert!(0.0 < mu && 0 < charged(&tenant), "{tenant}");
    drop(exchange);
}

#[tokio::test]
async fn text_without_blanks_is_charged_as_text() {
    let sse = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n\
               data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\ndata: [DONE]\n\n";
    let replica = Scripted::answering(sse).await;
    let router = Router::start(&[replica.url()], &tenant()).await;
    let dense: String = "iVBORw0KGgoAAAANSUhEUg".chars().cycle().take(300_000).collect();
    let request = Request::stream(&dense).header("x-api-key", "key-a");
    assert_eq!(router.ask(&request).await.status(), 200);
    let tokens = charged(&until_settled(&router).await);
    assert!((150_000..=300_000).contains(&tokens), "{tokens}");
}

#[tokio::test]
async fn an_answer_in_a_form_of_its_own_is_charged_by_its_bytes() {
    let text = json!({"text": "some words ".repeat(3_000), "meta_info": {}}).to_string();
    let replica = Scripted::answering(json_answer(200, &text)).await;
    let router = Router::start(&[replica.url()], &tenant()).await;
    let body = json!({"text": "hi", "sampling_params": {"max_new_tokens": 6_000}}).to_string();
    let request = Request::post("/generate", body).header("x-api-key", "key-a");
    assert_eq!(router.ask(&request).await.status(), 200);
    let tokens = charged(&until_settled(&router).await);
    // The answer came at once, and no engine writes 5,000 tokens in no time: some of them are not believed.
    assert!((1_000..=8_000).contains(&tokens), "{tokens}");
}

#[tokio::test]
async fn a_tenant_that_is_removed_and_added_again_in_flight_counts_from_zero() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let url = replica.url();
    let router = Router::start(std::slice::from_ref(&url), &tenant()).await;
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::chat("hi").header("x-api-key", "key-a").bytes()).await;
    let exchange = requests.next().await;
    let write = |settings: &str| router.write(&config(&[(url.as_str(), 1.0)], settings));
    let reloads = || router.process.log().matches("configuration reloaded").count();
    let before = reloads();
    write("line.hold = true");
    eventually("it is removed", async || before < reloads()).await;
    write(&tenant());
    eventually("it is added again", async || before + 1 < reloads()).await;
    exchange.answer(json_answer(200, "{}")).await;
    assert_eq!(client.answer().await.status(), 200);
    let idle = |it: &crate::support::Status| it.pools[0].replicas[0].in_flight == 0;
    router.until("it is over", idle).await;
    assert_eq!(listed(&router).await["in_flight"], 0);
}
