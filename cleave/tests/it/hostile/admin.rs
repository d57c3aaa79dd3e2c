//! The admin port: what takes its connections takes none from clients, and pages in an operator's
//! browser give no orders.

use tokio::net::TcpStream;

use super::sound;
use crate::support::{News, Request, Wire, ask, eventually};

/// What the port keeps open at most.
const SLOTS_MAX: usize = 64;

#[tokio::test]
async fn silent_connections_take_neither_files_nor_the_port() {
    let (router, _replica) = sound("health.interval = \"1h\"").await;
    let before = router.process.files();
    let mut news = News::after(router.admin, 0).await;
    let mut silent = Vec::new();
    for number in 0..300 {
        let mut client = Wire::connect(router.admin).await;
        if number % 2 == 0 {
            // The beginning of a head.
            client.try_send(b"GET /status HT").await.unwrap();
        }
        silent.push(client);
    }
    for _ in 0..10 {
        assert_eq!(ask(router.admin, &Request::get("/status")).await.status(), 200);
        assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    }
    let few = before + SLOTS_MAX + 16;
    eventually("files are given back", async || router.process.files() <= few).await;
    // One that has asked keeps its seat.
    let drain = format!("/drain/{}", "nobody:1");
    assert_eq!(ask(router.admin, &Request::post(&drain, "")).await.status(), 404);
    assert_eq!(ask(router.admin, &Request::post("/assignment/freeze", "")).await.status(), 200);
    news.until(|it| it.kind == "order").await;
    drop(silent);
}

#[tokio::test]
async fn readers_of_events_take_seats_and_no_more() {
    let (router, _replica) = sound("health.interval = \"1h\"").await;
    let before = router.process.files();
    let mut readers = Vec::new();
    for _ in 0..200 {
        readers.push(News::after(router.admin, 0).await);
    }
    let few = before + SLOTS_MAX + 16;
    eventually("files are given back", async || router.process.files() <= few).await;
    assert_eq!(ask(router.admin, &Request::get("/status")).await.status(), 200);
}

#[tokio::test]
async fn a_page_in_a_browser_gives_no_orders_and_sees_nothing() {
    let (router, replica) = sound("").await;
    let path = format!("/drain/{}", replica.address);
    let order = |kind: &str| Request::post_as(&path, kind, "");
    let json = || order("application/json");
    for (what, request, want) in [
        ("another site", json().header("origin", "http://evil.example"), 403),
        ("a page of no origin", json().header("origin", "null"), 403),
        ("another port", json().header("origin", "http://localhost:3000"), 403),
        ("a form", order("application/x-www-form-urlencoded"), 415),
        ("plain text", order("text/plain"), 415),
        ("a fetch across sites", json().header("sec-fetch-site", "cross-site"), 403),
        ("two hosts", json().header("host", "evil.example"), 400),
    ] {
        assert_eq!(ask(router.admin, &request).await.status(), want, "{what}");
    }
    // A name that was lead to this address.
    for first_line in [format!("POST {path}"), "GET /status".to_owned(), "GET /metrics".to_owned()]
    {
        let mut client = Wire::connect(router.admin).await;
        let head = "HTTP/1.1\r\nhost: evil.example:9090\r\ncontent-type: application/json\r\n\
                    content-length: 0\r\n\r\n";
        client.send(format!("{first_line} {head}").as_bytes()).await;
        assert_eq!(client.head().await.unwrap().status(), 403, "{first_line}");
    }
    let shown = ask(router.admin, &Request::get("/assignment")).await.json();
    assert_eq!(shown["pools"][0]["drained"].as_array().map(Vec::len), Some(0), "{shown}");
    assert_eq!(ask(router.admin, &json()).await.status(), 200, "an operator's order");
}

#[tokio::test]
async fn a_name_that_is_listed_is_served_and_probes_need_none() {
    let (router, _replica) = sound("admin.hosts = [\"router.internal\"]").await;
    let status = async |path: &str, host: &str| {
        let mut client = Wire::connect(router.admin).await;
        client.send(format!("GET {path} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await;
        client.head().await.unwrap().status()
    };
    assert_eq!(status("/status", "router.internal:9090").await, 200);
    assert_eq!(status("/status", &router.admin.to_string()).await, 200);
    assert_eq!(status("/status", "other.internal:9090").await, 403);
    assert_eq!(status("/healthz", "other.internal:9090").await, 200);
}

#[tokio::test]
async fn a_body_that_does_not_come_ends_its_request() {
    let (router, _replica) = sound("").await;
    let mut client = Wire::over(TcpStream::connect(router.admin).await.unwrap());
    let head = "POST /assignment/pin/default/00000000 HTTP/1.1\r\nhost: localhost\r\n\
                content-type: application/json\r\ncontent-length: 99\r\n\r\n[";
    client.send(head.as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status(), 408);
}
