//! What must not be seen: keys and session ids in logs, the admin port without its token.

use super::sound;
use crate::support::{Request, Router, Scripted, Wire, ask, config, eventually};

#[tokio::test]
async fn keys_and_session_ids_are_not_in_the_log_whatever_happens() {
    let (mut router, replica) = sound("log.level = \"trace\"\nhealth.interval = \"1h\"").await;
    let secret = |request: Request| {
        request
            .header("authorization", "Bearer sk-topsecret")
            .header("x-api-key", "xk-topsecret")
            .header("cookie", "ck-topsecret")
            .session("alice@example.org")
    };
    let body = r#"{"model":"m","user":"bob@example.org","messages":[{"role":"user","content":"pst-topsecret"}]}"#;
    assert_eq!(router.ask(&secret(Request::chat("pst-topsecret"))).await.status(), 200);
    let query = secret(Request::post("/v1/chat/completions?key=qk-topsecret", body));
    assert_eq!(router.ask(&query).await.status(), 200);
    let bad = secret(Request::post("/v1/chat/completions", r#"{"model":"m","x":"pst-topsecret"#));
    assert_eq!(router.ask(&bad).await.status(), 400);
    let unnamed = Request::post("/v1/chat/completions", body);
    assert_eq!(router.ask(&unnamed).await.status(), 200);
    drop(replica);
    assert_eq!(router.ask(&secret(Request::chat("pst-topsecret"))).await.status(), 503);
    let mut client = Wire::connect(router.address).await;
    client.send(b"GET / HTTP/1.1\r\nauthorization: Bearer sk-topsecret\r\n bad fold\r\n\r\n").await;
    client.head().await;

    eventually("five lines are written", async || {
        5 <= router.process.log().matches("ACCESS").count()
    })
    .await;
    router.process.signal("TERM");
    router.process.ended().await;
    let log = router.process.log();
    for secret in ["topsecret", "alice", "bob@"] {
        let line = log.lines().find(|it| it.contains(secret));
        assert_eq!(line, None, "{secret} is in the log");
    }
}

#[tokio::test]
async fn the_admin_port_asks_for_its_token() {
    let token = "admin.token = \"adm-topsecret\"";
    let replica = Scripted::answering("").await;
    let config = config(&[(&replica.url(), 1.0)], token);
    let router = Router::start_with(&config);
    for path in ["/status", "/metrics"] {
        let get = Request::get(path);
        assert_eq!(ask(router.admin, &get).await.status(), 401);
        for wrong in
            ["Bearer adm-topsecre", "Bearer adm-topsecretx", "Basic adm-topsecret", "Bearer "]
        {
            let asked = ask(router.admin, &get.clone().header("authorization", wrong)).await;
            assert_eq!(asked.status(), 401, "{wrong}");
        }
        let right = get.header("authorization", "Bearer adm-topsecret");
        assert_eq!(ask(router.admin, &right).await.status(), 200);
    }
    // Probes carry no token and learn nothing.
    let health = ask(router.admin, &Request::get("/healthz")).await;
    assert_eq!((health.status(), health.text()), (200, "ok\n"));
    assert!(!router.process.log().contains("adm-topsecret"));
}
