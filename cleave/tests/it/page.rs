//! The page as far as no browser is needed: its files and their headers, what it is fed with, and that its token is
//! the one of the port. `cleave/tests/page` opens it in a real browser.

use std::net::SocketAddr;

use crate::support::{Mock, Request, Router, Wire, ask, config, eventually};

const TOKENS: &str = "admin.tokens = [{ name = \"alice\", token = \"t-alice\", rights = \"order\" }, \
                      { name = \"board\", token = \"t-board\" }]";

fn signed(path: &str, token: &str) -> Request {
    Request::get(path).header("authorization", format!("Bearer {token}"))
}

/// Reads frames of `/live`.
struct LiveFrames {
    wire: Wire,
    text: String,
}

impl LiveFrames {
    async fn of(admin: SocketAddr, request: &Request) -> Self {
        let mut wire = Wire::connect(admin).await;
        wire.send(&request.bytes()).await;
        let head = wire.head().await.expect("an answer");
        assert_eq!((head.status(), head.header("content-type")), (200, Some("text/event-stream")));
        Self { wire, text: String::new() }
    }

    /// Waits for the next frame of a kind; nothing once the stream is over.
    async fn next(&mut self, kind: &str) -> Option<String> {
        loop {
            while let Some((frame, rest)) = self.text.split_once("\n\n") {
                let (frame, rest) = (frame.to_owned(), rest.to_owned());
                self.text = rest;
                if let Some(data) = frame.strip_prefix(&format!("event: {kind}\ndata: ")) {
                    return Some(data.to_owned());
                }
            }
            let piece = self.wire.piece().await.ok()??;
            self.text.push_str(std::str::from_utf8(&piece).expect("frames are text"));
        }
    }
}

async fn fleet(settings: &str) -> (Router, Mock) {
    let mock = Mock::start(&["--speed", "inf"]);
    let router = Router::start_with(&config(&[(&mock.url(), 1.0)], settings));
    eventually("ready", async || ask(router.admin, &Request::get("/readyz")).await.status() == 200)
        .await;
    (router, mock)
}

#[tokio::test]
async fn its_files_need_no_token_and_let_in_nothing_from_elsewhere() {
    let (router, _mock) = fleet(TOKENS).await;
    for path in ["/", "/web/main.js", "/web/style.css", "/web/views/fleet.js"] {
        let answer = ask(router.admin, &Request::get(path)).await;
        assert_eq!(answer.status(), 200, "{path}");
        let policy = answer.header("content-security-policy").expect("a policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'"), "{policy}");
        assert!(!policy.contains("unsafe") && !policy.contains('*'), "{policy}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(answer.header("cache-control"), Some("no-cache"));
        assert!(answer.header("etag").is_some(), "{path}");
    }
    for path in ["/web/nothing.js", "/web/../Cargo.toml", "/web/tsconfig.json", "/web/"] {
        assert_eq!(ask(router.admin, &Request::get(path)).await.status(), 404, "{path}");
    }
    let foreign = Request::get("/").header("sec-fetch-site", "cross-site");
    assert_eq!(ask(router.admin, &foreign).await.status(), 403);
}

#[tokio::test]
async fn what_it_shows_needs_a_token_and_says_what_the_token_may_do() {
    let (router, _mock) = fleet(TOKENS).await;
    for path in ["/me", "/live", "/waiting", "/requests", "/workloads", "/session/0123456789abcdef"]
    {
        assert_eq!(ask(router.admin, &Request::get(path)).await.status(), 401, "{path}");
    }
    for (token, may_order) in [("t-alice", true), ("t-board", false)] {
        let me = ask(router.admin, &signed("/me", token)).await.json();
        assert_eq!(me["may_order"], may_order);
        assert_eq!(me["needs_token"], true);
    }
    let named = ask(router.admin, &signed("/session/nonsense", "t-board")).await;
    assert_eq!(named.status(), 400);
}

#[tokio::test]
async fn frames_tell_names_once_and_figures_again_and_again() {
    let (router, mock) = fleet("").await;
    assert_eq!(router.ask(&Request::stream("hi").session("s-1")).await.status(), 200);
    let mut frames = LiveFrames::of(router.admin, &Request::get("/live")).await;
    let fleet = frames.next("fleet").await.unwrap();
    assert!(fleet.contains(&mock.url()) && fleet.contains("\"sample_seconds\":5"), "{fleet}");
    let now = frames.next("now").await.unwrap();
    assert!(now.contains("\"state\":[\"up\"]") && !now.contains(&mock.url()), "{now}");
    let event = frames.next("event").await.unwrap();
    assert!(event.contains("\"kind\":\"replica\""), "{event}");
    let past = frames.next("past").await.unwrap();
    assert!(past.contains("\"answered\":[1"), "{past}");
    assert_ne!(frames.next("now").await.unwrap(), now);

    // One that comes back is told what it has not seen.
    let newest = past.split("\"at_s\":[").nth(1).and_then(|it| it.split([',', ']']).next());
    let newest = newest.expect("a sample");
    let after = Request::get(&format!("/live?after={newest}&event={}", u64::MAX >> 1));
    let mut frames = LiveFrames::of(router.admin, &after).await;
    let past = frames.next("past").await.unwrap();
    assert!(!past.contains(newest), "{past}");
}

#[tokio::test]
async fn a_session_is_found_where_it_lives_and_its_requests_are_listed() {
    let (router, mock) = fleet("explain.sample = 1.0").await;
    let answer = router.ask(&Request::stream("hi").session("s-1")).await;
    let id = answer.header("x-request-id").unwrap().to_owned();
    let listed = async |order: &str| {
        let lines = ask(router.admin, &Request::get(&format!("/requests?order={order}"))).await;
        assert_eq!(lines.status(), 200, "{order}");
        lines.text().to_owned()
    };
    for order in ["newest", "slowest"] {
        eventually(order, async || listed(order).await.contains(&id)).await;
    }
    assert_eq!(listed("failed").await, "[]");
    let explained = ask(router.admin, &Request::get(&format!("/explain/{id}"))).await.json();
    let key = explained["tries"][0]["session"].as_str().unwrap().to_owned();
    let found = ask(router.admin, &Request::get(&format!("/session/{key}"))).await.json();
    assert_eq!(found["home"]["replica"], mock.url());
    assert_eq!(found["visits"][0]["request_id"], id);
    let workloads = ask(router.admin, &Request::get("/workloads")).await.json();
    assert_eq!(workloads[0]["name"], "default × m");
    assert_eq!(workloads[0]["seed"].as_str().unwrap()[..8], key[..8]);
    let waiting = ask(router.admin, &Request::get("/waiting")).await.json();
    assert_eq!(waiting["pools"][0]["groups"].as_array().map(Vec::len), Some(0));
}

#[tokio::test]
async fn streams_end_when_the_port_closes_so_that_pages_come_to_the_successor() {
    let (router, _mock) = fleet("").await;
    let mut frames = LiveFrames::of(router.admin, &Request::get("/live")).await;
    frames.next("now").await.unwrap();
    router.process.signal("USR2");
    while frames.next("now").await.is_some() {}
}
