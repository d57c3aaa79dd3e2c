//! Paths that mean one thing here and another to the server behind: refused before anything is decided.

use http_body_util::BodyExt as _;
use tokio::net::TcpStream;

use super::sound;
use crate::support::{Http2, Request, Router, Scripted, Wire, eventually, json_answer};

const CHAT: &str = r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#;

#[tokio::test]
async fn a_path_that_changes_when_it_is_decoded_or_normalised_is_refused() {
    let (router, replica) = sound("").await;
    for path in [
        "/v1/chat/completion%73",
        "/v1/chat%2Fcompletions",
        "/v1/chat%2fcompletions",
        "/v1/%63hat/completions",
        "/v1/chat/completions%00",
        "/v1/chat/completions%3Fx",
        "/v1/chat/completions%zz",
        "/v1/chat/completions%",
        "/v1/chat/completions%ff",
        "/v1//chat/completions",
        "//v1/chat/completions",
        "/v1/./chat/completions",
        "/v1/x/../chat/completions",
        "/v1/chat/completions/.",
        "/v1/chat/completions/..",
        "/v1/chat/completions;v=1",
        "/v1;a=b/chat/completions",
        "/v1\\chat\\completions",
        "/v1/chat/completions/",
        "/v1/embeddings/",
        "/g%65nerate",
    ] {
        let answer = router.ask(&Request::post(path, CHAT)).await;
        assert_eq!(answer.status(), 400, "{path}: {}", answer.text());
        assert_eq!(answer.refusal().code, "invalid_path", "{path}");
    }
    assert_eq!(replica.hits(), 0);
}

#[tokio::test]
async fn a_path_that_means_the_same_to_everybody_passes() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "paths.allow = [\"/*\"]").await;
    for path in ["/", "/docs/", "/v1/a-b_c.d~e/f:g@h", "/v1/x?a=%2F&b=../;c\\", "/v1/...", "/.x/y."]
    {
        let mut client = Wire::connect(router.address).await;
        client.send(&Request::get(path).bytes()).await;
        let exchange = requests.next().await;
        assert_eq!(exchange.head.first_line, format!("GET {path} HTTP/1.1"));
        exchange.answer(json_answer(200, "{}")).await;
        assert_eq!(client.answer().await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn a_model_whose_name_has_a_slash_is_found_escaped_or_not() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let file = format!(
        "listen = \"127.0.0.1:0\"\nadmin.listen = \"127.0.0.1:0\"\n[[pools]]\nname = \"chat\"\n\
         models = [\"meta/m\"]\nreplicas = [\"{}\"]\n",
        replica.url()
    );
    let router = Router::start_with(&file);
    for path in ["/v1/models/meta/m", "/v1/models/meta%2Fm", "/v1/models/meta%2fm"] {
        assert_eq!(router.ask(&Request::get(path)).await.status(), 200, "{path}");
    }
}

#[tokio::test]
async fn an_error_repeats_only_the_beginning_of_what_a_client_sent() {
    let (router, _replica) = sound("").await;
    let long = "\u{e4}".repeat(500_000);
    let request = Request::post("/v1/chat/completions", format!(r#"{{"model":"{long}"}}"#));
    let answer = router.ask(&request).await;
    assert_eq!((answer.status(), answer.refusal().code.as_str()), (404, "model_not_found"));
    assert!(answer.body.len() < 2_000, "{} bytes", answer.body.len());
    let answer = router.ask(&Request::get(&format!("/v1/models/{}", "x".repeat(50_000)))).await;
    assert_eq!(answer.status(), 404);
    assert!(answer.body.len() < 2_000, "{} bytes", answer.body.len());
}

/// What the client gets when the replica answers a request with these lines.
async fn answered(status: &str, lines: &str) -> (crate::support::Answer, String) {
    let (replica, mut requests) = Scripted::by_hand().await;
    let router = Router::start(&[replica.url()], "paths.allow = [\"/docs\"]").await;
    let lines = lines.replace("SELF", &replica.address.to_string());
    let mut client = Wire::connect(router.address).await;
    client.send(&Request::get("/docs").bytes()).await;
    let exchange = requests.next().await;
    let head = format!("HTTP/1.1 {status}\r\n{lines}content-length: 0\r\n\r\n");
    exchange.answer(head).await;
    (client.answer().await, replica.address.to_string())
}

#[tokio::test]
async fn a_redirect_to_the_replica_itself_leads_back_through_the_router() {
    for location in ["http://SELF/docs/?a=1", "//SELF/docs/?a=1", "HTTP://SELF/docs/?a=1"] {
        let (answer, _) =
            answered("307 Temporary Redirect", &format!("location: {location}\r\n")).await;
        assert_eq!((answer.status(), answer.header("location")), (307, Some("/docs/?a=1")));
    }
    let (answer, _) = answered("307 Temporary Redirect", "location: /docs/\r\n").await;
    assert_eq!((answer.status(), answer.header("location")), (307, Some("/docs/")));
}

#[tokio::test]
async fn a_redirect_to_any_other_address_is_not_passed_on() {
    for location in [
        "http://10.0.0.7:8000/docs/",
        "//10.0.0.7/docs/",
        "/\\10.0.0.7/docs/",
        "https://SELF/docs/",
        "http://SELF@10.0.0.7/",
        "ftp:x",
        "javascript:alert(1)",
    ] {
        let (answer, replica) = answered("302 Found", &format!("location: {location}\r\n")).await;
        assert_eq!(answer.status(), 502, "{location}");
        assert_eq!(answer.refusal().code, "replica_redirected", "{location}");
        assert!(!answer.text().contains("10.0.0.7") && !answer.text().contains(&replica));
        assert_eq!(answer.header("location"), None);
    }
    // An address beside another answer is left out.
    let lines =
        "location: http://10.0.0.7/x\r\ncontent-location: http://SELF/y\r\nalt-svc: h3=\":1\"\r\n";
    let (answer, _) = answered("201 Created", lines).await;
    assert_eq!(answer.status(), 201);
    assert_eq!((answer.header("location"), answer.header("alt-svc")), (None, None));
    assert_eq!(answer.header("content-location"), Some("/y"));
}

#[tokio::test]
async fn a_tenant_that_scans_every_route_of_engines_reaches_those_of_inference_only() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], "").await;
    let list = include_str!("../../../../core/data/engine-routes.txt");
    for line in list.lines().filter(|it| !it.starts_with('#')) {
        let (kind, path) = line.split_once(' ').unwrap().1.split_once(' ').unwrap();
        let hits = replica.hits();
        let answer = router.ask(&Request::post(path, CHAT)).await;
        if kind == "open" {
            assert_eq!((answer.status(), replica.hits()), (200, hits + 1), "{line}");
            continue;
        }
        let code = answer.refusal().code;
        assert!(
            ["path_not_served", "method_not_allowed"].contains(&code.as_str()),
            "{line}: {code}"
        );
        for method in ["GET", "PUT", "DELETE", "PATCH", "OPTIONS"] {
            if path == "/v1/responses/render" {
                // An answer by that id is looked for.
                continue;
            }
            let head = format!("{method} {path} HTTP/1.1\r\nhost: r\r\n\r\n");
            let mut client = Wire::connect(router.address).await;
            client.send(head.as_bytes()).await;
            let status = client.head().await.unwrap().status();
            assert!([404, 405].contains(&status), "{method} {line}: {status}");
        }
        assert_eq!(replica.hits(), hits, "{line}");
    }
}

#[tokio::test]
async fn health_on_the_client_port_is_the_router_s_own() {
    let (mut router, replica) = sound("").await;
    let health = router.ask(&Request::get("/health")).await;
    assert_eq!((health.status(), health.text()), (200, "{\"status\":\"ready\"}"));
    assert_eq!(replica.hits(), 0);
    drop(replica);
    eventually("it is not ready", async || {
        router.ask(&Request::get("/health")).await.status() == 503
    })
    .await;
    router.process.signal("TERM");
    router.process.ended().await;
}

#[tokio::test]
async fn an_operator_opens_paths_by_name_and_method() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let settings = "paths.allow = [\"GET /version\"]";
    let router = Router::start(&[replica.url()], settings).await;
    assert_eq!(router.ask(&Request::get("/version")).await.status(), 200);
    let answer = router.ask(&Request::post("/version", "{}")).await;
    assert_eq!((answer.status(), answer.refusal().code.as_str()), (405, "method_not_allowed"));
    assert_eq!(answer.header("allow"), Some("GET"));
    let answer = router.ask(&Request::get("/versions")).await;
    assert_eq!((answer.status(), answer.refusal().code.as_str()), (404, "path_not_served"));
}

#[tokio::test]
async fn a_method_that_a_path_does_not_take_is_told_those_it_takes_and_reaches_no_engine() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let settings = "paths.allow = [\"OPTIONS /v1/completions\"]";
    let router = Router::start(&[replica.url()], settings).await;
    let asked = async |method: &str, path: &str| {
        let mut client = Wire::connect(router.address).await;
        let head = format!("{method} {path} HTTP/1.1\r\nhost: r\r\n\r\n");
        client.send(head.as_bytes()).await;
        let head = client.head().await.unwrap();
        (head.status(), head.header("allow").map(str::to_owned))
    };
    let mut refused = 0;
    for (path, allow) in [
        ("/v1/chat/completions", "POST"),
        ("/v1/completions", "POST, OPTIONS"),
        ("/v1/responses/resp_1", "GET, HEAD, DELETE"),
        ("/v1/models", "GET, HEAD"),
        ("/v1/models/org/m", "GET, HEAD"),
        ("/health", "GET, HEAD"),
    ] {
        for method in ["PUT", "PATCH", "DELETE", "OPTIONS"] {
            if !allow.contains(method) {
                assert_eq!(asked(method, path).await, (405, Some(allow.to_owned())), "{path}");
                refused += 1;
            }
        }
    }
    assert_eq!(replica.hits(), 0);
    assert_eq!(router.counter("cleave_router_errors_total").await, refused);
    // The operator has opened this one for a browser's first question, and the engine answers it.
    assert_eq!(asked("OPTIONS", "/v1/completions").await.0, 200);
    assert_eq!(replica.hits(), 1);
}

#[tokio::test]
async fn the_head_of_what_the_router_answers_itself_is_its_own_too() {
    let (router, replica) = sound("").await;
    for path in ["/v1/models", "/v1/models/m", "/health"] {
        let got = router.ask(&Request::get(path)).await;
        let mut client = Wire::connect(router.address).await;
        let head = format!("HEAD {path} HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n");
        client.send(head.as_bytes()).await;
        let head = client.head().await.unwrap();
        assert_eq!((head.status(), got.status()), (200, 200), "{path}");
        assert_eq!(head.header("content-length"), got.header("content-length"), "{path}");
        client.closed().await;
    }
    assert_eq!(replica.hits(), 0);
}

#[tokio::test]
async fn the_head_of_the_router_s_own_answers_has_no_body_over_http2_either() {
    let (router, replica) = sound("").await;
    let mut client = Http2::over(TcpStream::connect(router.address).await.unwrap()).await;
    for (path, status) in
        [("/v1/models", 200), ("/v1/models/m", 200), ("/health", 200), ("/v1/models/x", 404)]
    {
        let got = client.send("GET", path, "").await;
        let length = got.into_body().collect().await.unwrap().to_bytes().len();
        let head = client.send("HEAD", path, "").await;
        assert_eq!(head.status(), status, "{path}");
        assert!(0 < length && head.headers()["content-length"] == length.to_string(), "{path}");
        assert!(head.into_body().collect().await.unwrap().to_bytes().is_empty(), "{path}");
    }
    let refused = client.send("HEAD", "/metrics", "").await;
    assert_eq!(refused.status(), 404);
    assert!(refused.into_body().collect().await.unwrap().to_bytes().is_empty());
    assert_eq!(replica.hits(), 0);
}
