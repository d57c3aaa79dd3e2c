//! Engines behind `https://`, and certificates that change while the router runs.

use std::sync::Arc;

use crate::support::{
    Authority, Exchange, News, Request, Router, Scripted, Tap, Wire, config, eventually, sse_head,
};

const NAME: &str = "engine.test";
const LATER: i32 = 4000;

/// Answers twice on one connection where it may, so that connections are kept.
async fn keep(mut exchange: Exchange) {
    loop {
        let body = exchange.body().await;
        if body.windows(13).any(|it| it == b"\"stream\":true") {
            exchange.send(sse_head()).await;
            for number in 0..50 {
                exchange.chunk(format!("data: {number}\n\n")).await;
            }
            exchange.chunk("").await;
        } else {
            let length = body.len();
            exchange.send(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n")).await;
            exchange.send(body).await;
        }
        if exchange.wire.head().await.is_none() {
            return;
        }
    }
}

fn settings(authority: &Authority, more: &str) -> String {
    format!(
        "engine_tls.ca = \"{}\"\nengine_tls.server_name = \"{NAME}\"\n{more}",
        authority.file.display()
    )
}

#[tokio::test]
async fn engines_behind_https_serve_requests_streams_and_large_bodies() {
    let authority = Authority::new();
    let engine = Scripted::start(keep).await;
    let server = authority.server(&authority.sign(NAME, LATER), false);
    let door = Tap::under_tls(engine.address, server).await;
    let url = format!("https://{}", door.address);
    let router = Router::start(&[url], &settings(&authority, "api_key = \"ek-1\"")).await;
    for text in ["hi".to_owned(), "x".repeat(3 << 20), "again".to_owned()] {
        let answer = router.ask(&Request::chat(&text)).await;
        assert_eq!(answer.status(), 200);
        assert!(answer.text().contains(&text), "it comes back whole");
    }
    let answer = router.ask(&Request::stream("hi")).await;
    assert!(answer.text().starts_with("data: 0\n\n") && answer.text().ends_with("data: 49\n\n"));
    assert!(door.forth().contains("authorization: Bearer ek-1\r\n"));
    let heads = door.forth().matches("POST /v1/chat/completions HTTP/1.1").count();
    assert_eq!(heads, 4);
    assert!(engine.hits() < heads, "connections are kept");
}

#[tokio::test]
async fn an_engine_whose_certificate_does_not_serve_is_sent_nothing() {
    let (authority, other) = (Authority::new(), Authority::new());
    let engine = Scripted::start(keep).await;
    for identity in
        [other.sign(NAME, LATER), authority.sign("another.test", LATER), authority.sign(NAME, 2020)]
    {
        let door = Tap::under_tls(engine.address, authority.server(&identity, false)).await;
        let url = format!("https://{}", door.address);
        let router = Router::start_with(&config(
            &[(&url, 1.0)],
            &settings(&authority, "api_key = \"ek-1\"\ntimeouts.connect = \"5s\""),
        ));
        let answer = router.ask(&Request::chat("hi")).await;
        assert!(500 <= answer.status(), "{}", answer.status());
        assert_eq!(door.forth(), "", "neither key nor prompt");
    }
}

#[tokio::test]
async fn a_replica_that_was_up_goes_out_with_the_words_for_its_expired_certificate() {
    let authority = Authority::new();
    let [valid, expired] =
        [LATER, 2020].map(|until| authority.server(&authority.sign(NAME, until), false));
    let engine = Scripted::start(keep).await;
    // Found by probes, and by requests where no probe comes.
    for interval in ["100ms", "1h"] {
        let door = Tap::under_tls(engine.address, Arc::clone(&valid)).await;
        let more = format!("health.interval = \"{interval}\"");
        let url = format!("https://{}", door.address);
        let router = Router::start(&[url], &settings(&authority, &more)).await;
        let mut news = News::after(router.admin, 0).await;
        door.renew(Arc::clone(&expired));
        if interval == "1h" {
            for _ in 0..4 {
                router.ask(&Request::chat("hi")).await;
            }
        }
        let told = news.until(|it| it.state == "out").await;
        assert_eq!(told.before.as_deref(), Some("up"), "{told:?}");
        let detail = told.detail.expect("it says why");
        let is_why = |it: &str| it.starts_with("tls: ") && it.to_lowercase().contains("expired");
        assert!(is_why(&detail), "{detail}");
        let status = router.status().await;
        let replica = status.replicas().next().unwrap();
        // When it was looked at is in the words too.
        let shown = replica.detail.as_deref().unwrap_or_default();
        assert_eq!(replica.reason, told.reason);
        assert!(is_why(shown), "{shown}");
        router.says(&detail).await;
    }
}

#[tokio::test]
async fn the_router_shows_its_own_certificate_to_engines_that_ask_for_one() {
    let authority = Authority::new();
    let engine = Scripted::start(keep).await;
    let server = authority.server(&authority.sign(NAME, LATER), true);
    let door = Tap::under_tls(engine.address, server).await;
    let url = format!("https://{}", door.address);
    let bare = Router::start_with(&config(&[(&url, 1.0)], &settings(&authority, "")));
    let identity = authority.sign("router.test", LATER);
    let [cert, key] = identity.files.each_ref().map(|it| it.display().to_string());
    let own = format!("engine_tls.cert = \"{cert}\"\nengine_tls.key = \"{key}\"");
    let router = Router::start(&[url], &settings(&authority, &own)).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    assert!(500 <= bare.ask(&Request::chat("hi")).await.status());
}

#[tokio::test]
async fn the_certificate_for_clients_is_taken_up_when_its_files_change() {
    let (old, new) = (Authority::new(), Authority::new());
    let (first, second) = (old.sign("localhost", LATER), new.sign("localhost", LATER));
    let replica = Scripted::start(keep).await;
    let [cert, key] = first.files.each_ref().map(|it| it.display().to_string());
    let settings = format!("tls.cert = \"{cert}\"\ntls.key = \"{key}\"");
    let router = Router::start_with(&config(&[(&replica.url(), 1.0)], &settings));
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    let mut kept = Wire::over(old.connect(router.address).await.expect("the old one is shown"));
    assert!(new.connect(router.address).await.is_none());
    for (from, to) in second.files.iter().zip(&first.files) {
        std::fs::rename(from, to).unwrap();
    }
    eventually("the new one is shown", async || new.connect(router.address).await.is_some()).await;
    assert_eq!(kept.ask(&Request::chat("hi")).await.status(), 200, "what was open goes on");
}

#[test]
fn a_ca_that_cannot_be_read_is_refused_before_anything_runs() {
    let folder = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let garbage = folder.join(format!("garbage-{}.pem", std::process::id()));
    std::fs::write(&garbage, "no certificate").unwrap();
    for ca in ["/nowhere/ca.pem", garbage.to_str().unwrap()] {
        let file = folder.join(format!("ca-{}.toml", std::process::id()));
        let text = format!("replicas = [\"https://gpu-0:8000\"]\nengine_tls.ca = \"{ca}\"\n");
        std::fs::write(&file, text).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cleave"));
        let output = command.arg("check-config").arg("--config").arg(&file).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("engine_tls"), "{said}");
        assert!(said.contains(ca), "{said}");
        std::fs::remove_file(&file).unwrap();
    }
    std::fs::remove_file(&garbage).unwrap();
}
