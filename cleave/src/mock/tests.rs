//! Mock replicas in this process, asked over loopback as any client would. Time runs without
//! waiting except where a test must catch an answer midway; no test depends on how long things take.
#![expect(clippy::disallowed_types, reason = "tests look into answers of every shape")]

mod faults;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use std::future;

use super::*;

/// One replica and a client for it; dropping it ends both.
struct Rig {
    base: String,
    client: Client<HttpConnector, Full<Bytes>>,
    replica: Replica,
    task: JoinSet<Ended>,
}

impl Rig {
    async fn start(settings: Settings) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let replica = Replica::new("one".to_owned(), settings);
        let mut task = JoinSet::new();
        let server = replica.clone();
        task.spawn(async move { server.serve(listener, future::pending()).await });
        Self { base, client: Client::builder(TokioExecutor::new()).build_http(), replica, task }
    }

    async fn try_post(&self, path: &str, body: &str) -> Result<http::Response<Incoming>, String> {
        let body = Full::from(body.to_owned());
        let request = Request::post(format!("{}{path}", self.base)).body(body).unwrap();
        self.client.request(request).await.map_err(|error| error.to_string())
    }

    async fn post(&self, path: &str, body: &Value) -> (StatusCode, Value) {
        let response = self.try_post(path, &body.to_string()).await.unwrap();
        let status = response.status();
        assert_eq!(response.headers()["x-mock-replica"], "one");
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&body).unwrap())
    }

    async fn ok(&self, path: &str, body: &Value) -> Value {
        let (status, body) = self.post(path, body).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        body
    }

    async fn get(&self, path: &str) -> (StatusCode, String) {
        let request = Request::get(format!("{}{path}", self.base)).body(Full::default()).unwrap();
        let response = self.client.request(request).await.unwrap();
        let status = response.status();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(body.to_vec()).unwrap())
    }

    /// Streams an answer and returns its events; the event's name, if any, under `event`.
    async fn stream(&self, path: &str, body: &Value) -> Vec<Value> {
        let response = self.try_post(path, &body.to_string()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(body.to_vec()).unwrap();
        text.split_terminator("\n\n").map(parse_event).collect()
    }
}

fn parse_event(event: &str) -> Value {
    let (name, data) = match event.strip_prefix("event: ") {
        Some(rest) => rest.split_once('\n').unwrap(),
        None => ("", event),
    };
    let data = data.strip_prefix("data: ").unwrap();
    if data == "[DONE]" {
        return json!("done");
    }
    let data: Value = serde_json::from_str(data).unwrap();
    assert!(name.is_empty() || data["type"] == name, "{event}");
    data
}

fn unhurried() -> Settings {
    Settings { speed: f64::INFINITY, ..Settings::default() }
}

fn chat(text: &str) -> Value {
    json!({ "model": "mock-8b", "messages": [{ "role": "user", "content": text }] })
}

/// Adds fields to a request.
fn with(mut body: Value, more: Value) -> Value {
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn endless() -> Value {
    with(chat("go on"), json!({ "max_tokens": 100_000, "ignore_eos": true, "stream": true }))
}

/// Asks again and again, a bounded number of times, until it is so.
async fn until(what: &str, is_so: impl Fn() -> bool) {
    for _ in 0..5_000 {
        if is_so() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("never: {what}");
}

fn weather(schema_key: &str) -> Value {
    json!({
        "name": "get_weather",
        schema_key: {
            "type": "object",
            "properties": { "city": { "type": "string" }, "days": { "type": "integer" } },
            "required": ["city", "days"],
        },
    })
}

fn assert_weather(arguments: &str) {
    let arguments: Value = serde_json::from_str(arguments).unwrap();
    assert!(arguments["city"].is_string() && arguments["days"].is_number(), "{arguments}");
}

#[tokio::test]
async fn a_chat_counts_its_tokens_exactly() {
    let rig = Rig::start(unhurried()).await;
    let reply = rig.ok("/v1/chat/completions", &chat("hello")).await;
    let text = reply["choices"][0]["message"]["content"].as_str().unwrap();
    let prompt = "<|user|>\nhello<|end|>\n<|assistant|>\n";
    assert_eq!(reply["usage"]["prompt_tokens"], prompt.len().div_ceil(4));
    assert_eq!(reply["usage"]["completion_tokens"], text.len() / 4);
    assert_eq!(reply["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn a_streamed_chat_says_the_same_as_a_whole_one() {
    let rig = Rig::start(unhurried()).await;
    let whole = rig.ok("/v1/chat/completions", &chat("hello")).await;
    let more = json!({ "stream": true, "stream_options": { "include_usage": true } });
    let events = rig.stream("/v1/chat/completions", &with(chat("hello"), more)).await;
    let [role, pieces @ .., finish, usage, done] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(role["choices"][0]["delta"], json!({ "role": "assistant", "content": "" }));
    let text: String =
        pieces.iter().map(|it| it["choices"][0]["delta"]["content"].as_str().unwrap()).collect();
    assert_eq!(text, whole["choices"][0]["message"]["content"].as_str().unwrap());
    assert_eq!(finish["choices"][0]["finish_reason"], "stop");
    assert_eq!(usage["usage"]["completion_tokens"], pieces.len());
    assert_eq!(done, "done");
}

#[tokio::test]
async fn a_cap_cuts_and_ignoring_the_end_fills_it() {
    let rig = Rig::start(unhurried()).await;
    let reply = rig.ok("/v1/chat/completions", &with(chat("a"), json!({ "max_tokens": 3 }))).await;
    assert_eq!(reply["usage"]["completion_tokens"], 3);
    assert_eq!(reply["choices"][0]["finish_reason"], "length");
    let body = json!({ "prompt": "a", "max_tokens": 400, "ignore_eos": true });
    let reply = rig.ok("/v1/completions", &body).await;
    assert_eq!(reply["usage"]["completion_tokens"], 400);
}

#[tokio::test]
async fn the_second_turn_of_a_conversation_finds_the_first_in_the_cache() {
    let rig = Rig::start(unhurried()).await;
    let mut body = chat(&"a long opening ".repeat(20));
    let first = rig.ok("/v1/chat/completions", &body).await;
    assert_eq!(first["usage"]["prompt_tokens_details"]["cached_tokens"], 0);
    let messages = body["messages"].as_array_mut().unwrap();
    messages.push(first["choices"][0]["message"].clone());
    messages.push(json!({ "role": "user", "content": "and then?" }));
    let second = rig.ok("/v1/chat/completions", &body).await;
    let cached = second["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap();
    // All but the last block, which was not full or whose last token was never fed back.
    assert!(first["usage"]["total_tokens"].as_u64().unwrap() - 17 <= cached, "{second}");
    assert_eq!(rig.replica.stats().prefix_hits_tokens, cached);
}

#[tokio::test]
async fn a_client_that_leaves_frees_its_kv() {
    for stream in [true, false] {
        let rig = Rig::start(Settings::default()).await;
        let body = with(endless(), json!({ "stream": stream })).to_string();
        {
            let request = rig.try_post("/v1/chat/completions", &body);
            tokio::pin!(request);
            if stream {
                let mut body = request.await.unwrap().into_body();
                body.frame().await.unwrap().unwrap();
            } else {
                let runs = until("it runs", || rig.replica.stats().running == 1);
                tokio::select! {
                    _ = &mut request => panic!("it cannot be done"),
                    () = runs => {}
                }
            }
            assert!(0.0 < rig.replica.stats().kv_used_share);
        }
        until("its KV is free", || rig.replica.stats().running == 0).await;
        assert!(rig.replica.stats().kv_used_share.abs() < f64::EPSILON);
    }
}

#[tokio::test]
async fn tools_are_called_with_arguments_of_the_right_types() {
    let rig = Rig::start(unhurried()).await;
    let tools = json!({ "tools": [{ "type": "function", "function": weather("parameters") }] });
    let body = with(chat("weather?"), tools);
    let reply = rig.ok("/v1/chat/completions", &body).await;
    let function = &reply["choices"][0]["message"]["tool_calls"][0]["function"];
    assert_eq!(function["name"], "get_weather");
    assert_weather(function["arguments"].as_str().unwrap());
    assert_eq!(reply["choices"][0]["finish_reason"], "tool_calls");

    let events =
        rig.stream("/v1/chat/completions", &with(body.clone(), json!({ "stream": true }))).await;
    let deltas = events.iter().map(|it| &it["choices"][0]["delta"]["tool_calls"][0]["function"]);
    let arguments: String = deltas.filter_map(|it| it["arguments"].as_str()).collect();
    assert_eq!(arguments, function["arguments"].as_str().unwrap());

    let none = rig.ok("/v1/chat/completions", &with(body, json!({ "tool_choice": "none" }))).await;
    assert!(none["choices"][0]["message"]["content"].is_string());
}

#[tokio::test]
async fn anthropic_messages_stream_in_their_own_shape() {
    let rig = Rig::start(unhurried()).await;
    let body = with(chat("hello"), json!({ "max_tokens": 500, "stream": true }));
    let events = rig.stream("/v1/messages", &body).await;
    let [start, block, pieces @ .., block_stop, delta, stop] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(start["message"]["role"], "assistant");
    assert_eq!(block["content_block"]["type"], "text");
    assert!(pieces.iter().all(|it| it["delta"]["type"] == "text_delta"));
    assert_eq!(block_stop["type"], "content_block_stop");
    assert_eq!(delta["usage"]["output_tokens"], pieces.len());
    assert_eq!(stop["type"], "message_stop");

    let body =
        with(chat("hello"), json!({ "max_tokens": 500, "tools": [weather("input_schema")] }));
    let reply = rig.ok("/v1/messages", &body).await;
    assert_eq!(reply["stop_reason"], "tool_use");
    assert_weather(&reply["content"][0]["input"].to_string());
}

#[tokio::test]
async fn responses_stream_numbered_events() {
    let rig = Rig::start(unhurried()).await;
    let body = json!({ "model": "mock-8b", "input": "hello", "stream": true });
    let events = rig.stream("/v1/responses", &body).await;
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let [created, _, _, _, pieces @ .., _, _, _, completed] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(created["type"], "response.created");
    assert_eq!(completed["type"], "response.completed");
    let text: String = pieces.iter().map(|it| it["delta"].as_str().unwrap()).collect();
    assert_eq!(completed["response"]["output"][0]["content"][0]["text"], text);
    let whole = rig.ok("/v1/responses", &json!({ "input": "hello" })).await;
    assert_eq!(whole["output"][0]["content"][0]["text"], text);
}

#[tokio::test]
async fn a_prompt_may_be_given_as_tokens() {
    let rig = Rig::start(unhurried()).await;
    let body = json!({ "prompt": [1, 2, 3], "max_tokens": 4 });
    assert_eq!(rig.ok("/v1/completions", &body).await["usage"]["prompt_tokens"], 3);
}

#[tokio::test]
async fn each_input_is_embedded() {
    let rig = Rig::start(unhurried()).await;
    let reply = rig.ok("/v1/embeddings", &json!({ "input": ["a", "b"] })).await;
    assert_eq!(reply["data"][1]["embedding"].as_array().unwrap().len(), 64);
}

#[tokio::test]
async fn bad_requests_are_refused_in_the_words_of_the_api() {
    let rig = Rig::start(unhurried()).await;
    let (status, body) =
        rig.post("/v1/chat/completions", &with(chat("a"), json!({ "model": "x" }))).await;
    assert_eq!((status, &body["error"]["type"]), (StatusCode::NOT_FOUND, &json!("NotFoundError")));
    let body = with(chat("a"), json!({ "model": "x", "max_tokens": 1 }));
    let (status, body) = rig.post("/v1/messages", &body).await;
    assert_eq!(
        (status, &body["error"]["type"]),
        (StatusCode::NOT_FOUND, &json!("not_found_error"))
    );
    for bad in ["{\"messages\":", "[]", "{\"messages\":7}", "", "\u{0}"] {
        let response = rig.try_post("/v1/chat/completions", bad).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{bad}");
    }
    let huge = json!({ "prompt": "a", "max_tokens": u32::MAX, "ignore_eos": true });
    assert_eq!(rig.post("/v1/completions", &huge).await.0, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn metrics_bear_the_names_of_vllm() {
    let rig = Rig::start(unhurried()).await;
    let reply = rig.ok("/v1/chat/completions", &chat("hello")).await;
    let (_, page) = rig.get("/metrics").await;
    let labels = "{engine=\"0\",model_name=\"mock-8b\"}";
    for line in [
        format!("vllm:num_requests_running{labels} 0"),
        format!("vllm:num_requests_waiting{labels} 0"),
        format!("vllm:kv_cache_usage_perc{labels} 0"),
        format!("vllm:generation_tokens_total{labels} {}", reply["usage"]["completion_tokens"]),
        format!("vllm:prefix_cache_queries_total{labels} {}", reply["usage"]["prompt_tokens"]),
        format!("vllm:time_to_first_token_seconds_count{labels} 1"),
    ] {
        assert!(page.lines().any(|it| it == line), "{line} is not in\n{page}");
    }
}

#[tokio::test]
async fn replicas_with_one_seed_give_one_answer() {
    let (one, other) = (Rig::start(unhurried()).await, Rig::start(unhurried()).await);
    let odd = Rig::start(Settings { seed: 1, ..unhurried() }).await;
    let text = async |rig: &Rig| {
        let reply = rig.ok("/v1/chat/completions", &chat("hello")).await;
        reply["choices"][0]["message"]["content"].clone()
    };
    assert_eq!(text(&one).await, text(&other).await);
    assert_ne!(text(&one).await, text(&odd).await);
}

#[tokio::test]
async fn a_replica_ends_when_it_is_told() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let ended = run(listener, unhurried(), future::ready(())).await.unwrap();
    assert_eq!(ended, Ended::ShutDown);
}
