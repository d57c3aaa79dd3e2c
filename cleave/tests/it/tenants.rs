//! Tenants that may not find each other's prompts in a cache: the engine is told by a salt of the
//! tenant's own, and nothing else of the body changes.

use std::fmt::Write as _;

use crate::support::{Request, Requests, Router, Scripted, Wire, ask, json_answer};

/// A router in front of one replica, with an alias, and the given line in the pool.
async fn pool(line: &str) -> (Router, Scripted, Requests) {
    let (replica, requests) = Scripted::by_hand().await;
    let file = format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n[[pools]]\nname = \"chat\"\n\
         models = [\"m\"]\naliases = {{ \"x\" = \"m\" }}\n{line}\nreplicas = [\"{}\"]\n",
        replica.url()
    );
    let router = Router::start_with(&file);
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    (router, replica, requests)
}

/// Sends a body for a tenant and returns what reaches the replica.
async fn received(router: &Router, requests: &mut Requests, key: &str, body: &str) -> String {
    let mut client = Wire::connect(router.address).await;
    let request = Request::post("/v1/chat/completions", body).header("authorization", key);
    client.send(&request.bytes()).await;
    let mut exchange = requests.next().await;
    let body = String::from_utf8(exchange.body().await).unwrap();
    exchange.send(json_answer(200, "{}")).await;
    assert_eq!(client.answer().await.status(), 200);
    body
}

/// Takes the salt out of a body.
fn unsalted(body: &str) -> (&str, String) {
    let (before, rest) = body.split_once("\"cache_salt\":\"").expect("a salt");
    let (salt, after) = rest.split_once("\",").expect("its end");
    (salt, format!("{before}{after}"))
}

#[tokio::test]
async fn tenants_apart_have_salts_of_their_own_and_bodies_otherwise_as_sent() {
    let (router, _replica, mut requests) = pool("cache = \"per_tenant\"").await;
    let mut salt_of = async |key: &str, model: &str| {
        let sent = format!(r#"{{ "model":"{model}", "messages":[{{"content":"hi"}}]}}"#);
        let body = received(&router, &mut requests, key, &sent).await;
        let (salt, rest) = unsalted(&body);
        assert_eq!((salt.len(), rest), (32, sent.replace("\"x\"", "\"m\"")));
        salt.to_owned()
    };
    let (one, two) = (salt_of("Bearer 1", "m").await, salt_of("Bearer 2", "m").await);
    assert_ne!(one, two);
    assert_eq!(salt_of("Bearer 1", "x").await, one, "with an alias too");
}

#[tokio::test]
async fn a_salt_of_the_client_s_choice_does_not_reach_across_tenants() {
    let (router, _replica, mut requests) = pool("cache = \"per_tenant\"").await;
    let sent = r#"{"model":"x","cache_salt":"guess","messages":[{"content":"hi"}]}"#;
    let one = received(&router, &mut requests, "Bearer 1", sent).await;
    let two = received(&router, &mut requests, "Bearer 2", sent).await;
    let (one, two) = (unsalted(&one), unsalted(&two));
    assert!(one.0 != two.0 && one.0 != "guess" && two.0 != "guess");
    assert_eq!(one.1, r#"{"model":"m","messages":[{"content":"hi"}]}"#);
}

#[tokio::test]
async fn a_salt_of_the_client_s_choice_is_made_its_own_where_tenants_share_too() {
    let (router, _replica, mut requests) = pool("cache = \"shared\"").await;
    for field in ["cache_salt", "extra_key"] {
        let sent = format!(r#"{{"model":"m","{field}":"guess","messages":[{{"content":"hi"}}]}}"#);
        let one = received(&router, &mut requests, "Bearer 1", &sent).await;
        let again = received(&router, &mut requests, "Bearer 1", &sent).await;
        let two = received(&router, &mut requests, "Bearer 2", &sent).await;
        assert_eq!(one, again, "it keeps apart what the client wants apart, and no more");
        let (one, two) = (unsalted(&one), unsalted(&two));
        assert!(one.0 != two.0 && one.0 != "guess" && two.0 != "guess");
        assert_eq!(one.1, r#"{"model":"m","messages":[{"content":"hi"}]}"#);
    }
}

/// A pool that keeps tenants apart, with a secret that is given or kept in a folder.
async fn keyed(line: &str) -> (Router, Scripted, Requests) {
    let (replica, requests) = Scripted::by_hand().await;
    let file = format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n{line}\n[[pools]]\n\
         name = \"chat\"\nmodels = [\"m\"]\ncache = \"per_tenant\"\nreplicas = [\"{}\"]\n",
        replica.url()
    );
    let router = Router::start_with(&file);
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    (router, replica, requests)
}

#[tokio::test]
async fn routers_with_the_same_secret_make_the_same_salts_and_others_do_not() {
    let folder = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("cache-secret-shared");
    _ = std::fs::remove_dir_all(&folder);
    let kept = format!("subsets.state_dir = \"{}\"", folder.display());
    let given = "keys.cache_secret = \"0123456789abcdef\"";
    let mut salts = Vec::new();
    for line in [given, given, &kept, &kept, ""] {
        let (mut router, _replica, mut requests) = keyed(line).await;
        let sent = r#"{"model":"m","messages":[{"content":"hi"}]}"#;
        let body = received(&router, &mut requests, "Bearer 1", sent).await;
        salts.push(unsalted(&body).0.to_owned());
        router.process.signal("TERM");
        router.process.ended().await;
        let log = router.process.log();
        assert!(!log.contains("0123456789abcdef"), "a secret is not logged");
    }
    assert_eq!((&salts[0], &salts[2]), (&salts[1], &salts[3]));
    assert!(salts[0] != salts[2] && salts[0] != salts[4] && salts[2] != salts[4]);
    std::fs::remove_dir_all(&folder).unwrap();
}

#[tokio::test]
async fn where_tenants_are_apart_a_prompt_that_cannot_be_salted_is_refused() {
    let (router, replica, mut requests) = pool("cache = \"per_tenant\"").await;
    let json = r#"{"model":"m","text":"hi","cache_salt":"guess"}"#;
    for path in ["/invocations", "/generate", "/inference/v1/generate", "/api/chat", "/v1/files"] {
        for kind in ["application/json", "text/plain", ""] {
            let answer = router.ask(&Request::post_as(path, kind, json)).await;
            let refusal = answer.refusal();
            assert_eq!((answer.status(), refusal.code.as_str()), (403, "cannot_isolate"), "{path}");
            assert!(refusal.message.contains("per_tenant"), "{}", refusal.message);
        }
    }
    let form = "--x\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\nhi\r\n--x--\r\n";
    let form =
        Request::post_as("/v1/audio/transcriptions", "multipart/form-data; boundary=x", form);
    assert_eq!(router.ask(&form).await.status(), 403);
    assert_eq!(replica.hits(), 0);
    // What has no prompt passes, and what has one is salted however it is labelled.
    for (request, salted) in [
        (Request::get("/v1/files"), false),
        (Request::post("/tokenize", r#"{"model":"m","prompt":"hi"}"#), false),
        (Request::post("/v1/embeddings", r#"{"model":"m","input":"hi"}"#), true),
        (Request::post_as("/v1/completions", "text/plain", r#"{"model":"m","prompt":"hi"}"#), true),
        (Request::post_as("/v1/completions", "", r#"{"model":"m","prompt":"hi"}"#), true),
    ] {
        let mut client = Wire::connect(router.address).await;
        client.send(&request.bytes()).await;
        let mut exchange = requests.next().await;
        let body = String::from_utf8(exchange.body().await).unwrap();
        assert_eq!(body.contains("\"cache_salt\":\""), salted, "{body}");
        exchange.send(json_answer(200, "{}")).await;
        assert_eq!(client.answer().await.status(), 200);
    }
}

#[tokio::test]
async fn tenants_that_share_are_left_alone() {
    let (router, _replica, mut requests) = pool("cache = \"shared\"").await;
    let sent = r#"{"model":"m","messages":[{"content":"hi"}]}"#;
    assert_eq!(received(&router, &mut requests, "Bearer 1", sent).await, sent);
}

#[tokio::test]
async fn ten_thousand_tenants_are_served_and_a_hundred_shown() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let mut file = format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\nreplicas = [\"{}\"]\n",
        replica.url()
    );
    // The SHA-256 of `key-a`, and hashes that no key has.
    let key = "f10f781241e2246678b6b45c857069208152a53863e47fac33f607ab405006f4";
    for number in 0..10_000 {
        let hash = if number == 9_999 { key.to_owned() } else { format!("{number:064x}") };
        let keys = format!("key_sha256 = [\"{hash}\"]");
        let contract = "contract.requests_per_min = 60";
        writeln!(file, "[[tenants]]\nname = \"t-{number}\"\n{keys}\n{contract}").unwrap();
    }
    let router = Router::start_with(&file);
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    let request = Request::chat("hi").header("authorization", "Bearer key-a");
    assert_eq!(router.ask(&request).await.status(), 200);
    let page = ask(router.admin, &Request::get("/metrics")).await;
    assert!(page.text().matches("cleave_tenant_waiting{").count() <= 101, "bounded");
    let page = ask(router.admin, &Request::get("/tenants")).await;
    assert!(page.text().contains("t-9999"), "the whole is on its own page");
}
