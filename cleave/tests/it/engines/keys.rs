//! Keys of engines: sent with everything, shown to no client, an alert when they are refused.

use std::path::PathBuf;

use crate::support::{
    Exchange, News, Request, Router, Scripted, Tap, Wire, ask, config, eventually, json_answer,
    sse_head,
};

const KEY: &str = "ek-topsecret";

/// Streams where it is asked to, says what it was sent where it is asked to, and fails now and then.
async fn answer(mut exchange: Exchange) {
    let body = String::from_utf8(exchange.body().await).unwrap();
    if body.contains("\"stream\":true") {
        exchange.send(sse_head()).await;
        exchange.chunk("data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n").await;
        return exchange.chunk("").await;
    }
    let status = if body.contains("fail") { 400 } else { 200 };
    let text = format!("HTTP/1.1 {status} X\r\nauthorization: echoed {KEY}\r\nset-cookie: a=b\r\n");
    let rest = format!("content-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    exchange.send(text + &rest).await;
}

/// The same requests as many clients send, each with every kind of credential.
fn requests() -> Vec<Request> {
    let chat = "/v1/chat/completions";
    let all = [
        Request::chat("hi"),
        Request::chat("fail"),
        Request::stream("hi"),
        Request::post(chat, "{\"model\":\"no-such\",\"messages\":[]}"),
        Request::post(chat, "{\"model\":"),
        Request::post("/v1/embeddings", "{\"model\":\"m\",\"input\":\"x\"}"),
        Request::post_as("/v1/audio/transcriptions", "multipart/form-data; boundary=x", "--x--"),
        Request::get("/v1/models"),
        Request::get("/metrics"),
        Request::get("/v1/models/no-such"),
    ];
    let secret = |it: Request| {
        it.header("authorization", "Bearer ck-topsecret")
            .header("x-api-key", "ck-topsecret")
            .header("api-key", "ck-topsecret")
            .header("x-goog-api-key", "ck-topsecret")
            .header("proxy-authorization", "Basic ck-topsecret")
            .header("cookie", "session=ck-topsecret")
    };
    all.map(secret).into_iter().collect()
}

#[tokio::test]
async fn no_credential_crosses_the_router_in_either_direction() {
    let engine = Scripted::guarded(KEY, answer).await;
    let behind = Tap::start(engine.address).await;
    let file = KeyFile::new("whole", KEY);
    let settings = format!("log.level = \"trace\"\napi_key_file = \"{}\"", file.0.display());
    let url = format!("http://{}", behind.address);
    let mut router = Router::start(&[url], &settings).await;
    let before = Tap::start(router.address).await;
    for request in requests() {
        let mut client = Wire::connect(before.address).await;
        client.send(&request.bytes()).await;
        client.head().await.expect("an answer");
        _ = client.body().await;
    }
    eventually("its metrics are asked for", async || behind.forth().contains("GET /metrics "))
        .await;
    assert!(engine.hits() >= 5, "{}", engine.hits());

    let (to_engine, to_client) = (behind.forth(), before.back());
    assert!(before.forth().contains("ck-topsecret") && to_client.contains("HTTP/1.1 200"));
    assert!(!to_engine.contains("ck-topsecret"), "a client's credential reached the engine");
    assert!(!to_client.contains(KEY), "the engine's key reached a client");
    // Every request, every health check and every other question has the key, once.
    let heads = to_engine.matches(" HTTP/1.1\r\n").count();
    assert_eq!(to_engine.matches(&format!("authorization: Bearer {KEY}\r\n")).count(), heads);
    for path in ["GET /health ", "GET /v1/models ", "GET /metrics ", "POST /v1/chat/completions "] {
        assert!(to_engine.contains(path), "{path}");
    }
    for page in ["/status", "/metrics", "/explain", "/load", "/assignment", "/tenants"] {
        let page = ask(router.admin, &Request::get(page)).await;
        assert!(!page.text().contains("topsecret"), "{}", page.text());
    }
    router.process.signal("TERM");
    router.process.ended().await;
    assert!(!router.process.log().contains("topsecret"));
}

#[tokio::test]
async fn a_key_that_an_engine_refuses_is_an_alert_and_a_502_for_the_client() {
    for status in [401, 403] {
        let engine = Scripted::answering(json_answer(status, "{\"own\":\"words\"}")).await;
        let router = Router::start(&[engine.url()], "api_key = \"ek-topsecret\"").await;
        let mut news = News::after(router.admin, 0).await;
        for asked in 0..3 {
            if asked == 1 {
                // A probe that passes in between says nothing of requests: the refusals are one trouble still.
                engine.until_listed().await;
            }
            let answer = router.ask(&Request::chat("hi")).await;
            assert_eq!(answer.status(), 502, "{status}");
            assert_eq!(answer.refusal().code, "replica_unauthorized");
            assert!(!answer.text().contains("words"), "the engine's words stay here");
        }
        let told = news.until(|it| it.state == "unauthorized").await;
        assert!(told.alert && told.replica == Some(engine.url()));
        assert_eq!(router.counter("cleave_replica_unauthorized_total").await, 3);
        router.says("unauthorized").await;
        assert_eq!(router.process.log().matches("\"unauthorized\"").count(), 1, "said once");
    }
}

#[tokio::test]
async fn a_403_of_an_engine_without_a_key_is_the_client_s() {
    let engine = Scripted::answering(json_answer(403, "{}")).await;
    let router = Router::start(&[engine.url()], "").await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 403);
    assert_eq!(router.counter("cleave_replica_unauthorized_total").await, 0);
}

#[tokio::test]
async fn a_key_is_taken_up_when_its_file_changes() {
    let engine = Scripted::guarded(KEY, answer).await;
    let file = KeyFile::new("changes", "ek-of-yesterday\n");
    let settings = format!("api_key_file = \"{}\"", file.0.display());
    let router = Router::start_with(&config(&[(&engine.url(), 1.0)], &settings));
    let mut news = News::after(router.admin, 0).await;
    let told = news.until(|it| it.state == "unauthorized").await;
    assert!(told.detail.unwrap().contains("refuses the key"), "it never came up");
    assert_eq!(router.status().await.count(|it| it.state == "up"), 0);
    file.write(KEY);
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    // And one that is refused while it serves is put out, and named.
    file.write("ek-of-tomorrow");
    let told = news.until(|it| it.state == "out").await;
    assert_eq!(told.reason.as_deref(), Some("unauthorized"));
    // The right one brings it back by itself: no request has to try it.
    file.write(KEY);
    router.until("the replica is back", |it| it.count(|it| it.state == "up") == 1).await;
}

#[tokio::test]
async fn while_a_refused_key_is_why_no_replica_is_left_every_request_is_told_so() {
    let engines = [Scripted::guarded(KEY, answer).await, Scripted::guarded(KEY, answer).await];
    let file = KeyFile::new("all", KEY);
    let settings = format!("api_key_file = \"{}\"", file.0.display());
    let router = Router::start(&engines.each_ref().map(Scripted::url), &settings).await;
    let told = async || {
        let answer = router.ask(&Request::chat("hi")).await;
        let is_timed = answer.header("retry-after").is_some();
        (answer.status(), answer.refusal().code, is_timed)
    };
    let denied = (502, "replica_unauthorized".to_owned(), false);
    file.write("ek-of-tomorrow");
    // From the first refusal of the engines on, while their replicas go out one after the other.
    let refused = async || router.ask(&Request::chat("hi")).await.status() != 200;
    eventually("the new key is refused", refused).await;
    let mut out = 0;
    while out < 2 {
        assert_eq!(told().await, denied);
        out = router.status().await.count(|it| it.state == "out");
    }
    assert_eq!(told().await, denied);
    assert!(0 < router.counter("cleave_refused_total").await, "this one reached no engine");
    file.write(KEY);
    router.until("they are back", |it| it.count(|it| it.state == "up") == 2).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn a_replica_has_the_key_of_its_own_before_its_pool_s_and_that_of_all() {
    let one = Scripted::guarded("ek-of-all", answer).await;
    let two = Scripted::guarded("ek-of-pool", answer).await;
    let three = Scripted::guarded("ek-of-three", answer).await;
    let config = format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nhealth.interval = \"100ms\"\n\
         api_key = \"ek-of-all\"\n\
         [[pools]]\nname = \"a\"\nreplicas = [\"{}\"]\n\
         [[pools]]\nname = \"b\"\napi_key = \"ek-of-pool\"\n\
         replicas = [\"{}\", {{ url = \"{}\", api_key = \"ek-of-three\" }}]\n",
        one.url(),
        two.url(),
        three.url()
    );
    let router = Router::start_with(&config);
    router.until("all are up", |it| it.count(|it| it.state == "up") == 3).await;
}

/// A file with a key in it.
struct KeyFile(PathBuf);

impl KeyFile {
    fn new(name: &str, key: &str) -> Self {
        let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
        let file = Self(folder.join(format!("key-{name}-{}", std::process::id())));
        file.write(key);
        file
    }

    /// Replaces it at once and whole, as a secret store does.
    fn write(&self, key: &str) {
        let new = self.0.with_extension("new");
        std::fs::write(&new, key).unwrap();
        std::fs::rename(new, &self.0).unwrap();
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.0);
    }
}
