//! Bodies that are no request: refused by the router, in the words of the API that was asked.

use serde::Deserialize;

use super::sound;
use crate::support::Request;

#[derive(Deserialize)]
struct Anthropic {
    r#type: String,
    error: AnthropicError,
}

#[derive(Deserialize)]
struct AnthropicError {
    r#type: String,
    message: String,
}

fn bad_bodies() -> Vec<(&'static str, Vec<u8>)> {
    let text = |it: &str| it.as_bytes().to_vec();
    vec![
        ("truncated", text(r#"{"model":"m","messages":[{"role":"us"#)),
        ("empty object missing its end", text("{")),
        ("not JSON", text("hello")),
        ("an array", text(r#"["model","m"]"#)),
        ("a number", text("42")),
        ("trailing text", text(r#"{"model":"m"} {}"#)),
        ("model is a number", text(r#"{"model":7}"#)),
        ("model is null", text(r#"{"model":null}"#)),
        ("model is a list", text(r#"{"model":["m"]}"#)),
        ("stream is text", text(r#"{"model":"m","stream":"yes"}"#)),
        ("model twice", text(r#"{"model":"m","model":"m"}"#)),
        ("model twice, once escaped", text(r#"{"model":"m","\u006dodel":"m"}"#)),
        ("stream twice", text(r#"{"model":"m","stream":true,"stream":false}"#)),
        ("too deep", format!("{{\"model\":\"m\",\"x\":{}", "[".repeat(100_000)).into_bytes()),
        ("too deep but closed", {
            let (open, close) = ("[".repeat(500), "]".repeat(500));
            format!("{{\"model\":\"m\",\"x\":{open}{close}}}").into_bytes()
        }),
        ("invalid UTF-8", b"{\"model\":\"m\",\"x\":\"\xff\xfe\"}".to_vec()),
        ("a cut UTF-8 sequence", b"{\"model\":\"m\",\"x\":\"\xe2\x82\"}".to_vec()),
        ("a bare control character", b"{\"model\":\"m\x01\"}".to_vec()),
        ("a number that is none", text(r#"{"model":"m","x":01}"#)),
    ]
}

#[tokio::test]
async fn bad_bodies_are_refused_with_400_in_openais_words() {
    let (router, replica) = sound("").await;
    for (what, body) in bad_bodies() {
        let answer = router.ask(&Request::post("/v1/chat/completions", body)).await;
        assert_eq!(answer.status(), 400, "{what}: {}", answer.text());
        let refusal = answer.refusal();
        assert_eq!(refusal.r#type, "invalid_request_error", "{what}");
        assert_eq!(refusal.code, "invalid_body", "{what}");
        assert!(!refusal.message.is_empty(), "{what}");
    }
    assert_eq!(replica.hits(), 0);
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

#[tokio::test]
async fn bad_bodies_are_refused_with_400_in_anthropics_words() {
    let (router, replica) = sound("").await;
    for (what, body) in bad_bodies() {
        let answer = router.ask(&Request::post("/v1/messages", body)).await;
        assert_eq!(answer.status(), 400, "{what}: {}", answer.text());
        let said: Anthropic = serde_json::from_slice(&answer.body).unwrap();
        let kinds = (said.r#type.as_str(), said.error.r#type.as_str());
        assert_eq!(kinds, ("error", "invalid_request_error"), "{what}");
        assert!(!said.error.message.is_empty(), "{what}");
    }
    assert_eq!(replica.hits(), 0);
}

#[tokio::test]
async fn what_is_strange_but_valid_is_left_to_the_engine() {
    let (router, replica) = sound("").await;
    let wide = format!("{{\"model\":\"m\",\"x\":[{}0]}}", "[],".repeat(10_000));
    let bodies = [
        r#"{"model":"m","temperature":1e999999,"seed":123456789012345678901234567890}"#,
        r#"{"model":"m","messages":"not a list","user":7,"metadata":"no object"}"#,
        r#"{"model":"m","x":1,"x":2}"#,
        "\u{20}\n\t{ \"model\" : \"\\u006d\" }\r\n",
        &wide,
    ];
    for body in bodies {
        let answer = router.ask(&Request::post("/v1/chat/completions", body)).await;
        assert_eq!(answer.status(), 200, "{body:.60}: {}", answer.text());
    }
    assert_eq!(replica.hits(), bodies.len());
}

#[tokio::test]
async fn an_unknown_model_is_refused_with_404_and_what_exists() {
    let (router, replica) = sound("").await;
    let request = Request::post("/v1/chat/completions", r#"{"model":"gpt-none"}"#);
    let answer = router.ask(&request).await;
    let refusal = answer.refusal();
    assert_eq!((answer.status(), refusal.code.as_str()), (404, "model_not_found"));
    assert!(
        refusal.message.contains("gpt-none") && refusal.message.ends_with("available: m, m-sql")
    );
    assert_eq!(replica.hits(), 0);
}
