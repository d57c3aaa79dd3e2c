//! Keys on their way to an engine: whatever a client presents to the router is for the router.

use anyhow::Result;

use super::super::Attack;
use super::super::client::{chat, exchange, request};
use super::super::fake::honest;
use super::super::frames::Http2;
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const ATTACK: Attack = Attack {
    name: "credentials",
    tries: "keys and cookies in every header that may carry one, on every kind of path, body and protocol",
    plan: || Plan::fakes(1, honest),
    run,
};

const SECRET: &str = "a-secret-of-the-client";
const HEADERS: [&str; 10] = [
    "cookie",
    "x-api-key",
    "api-key",
    "proxy-authorization",
    "Authorization",
    "X-API-KEY",
    "x-goog-api-key",
    "x-auth-token",
    "x-forwarded-authorization",
    "x-cleave-key",
];

fn run(scene: &mut Scene) -> Result<()> {
    scene.forget_asked();
    let secrets = HEADERS.map(|it| format!("{it}: {SECRET}\r\n")).concat();
    let stream = chat("x", r#","stream":true"#);
    for (method, path, kind, body) in [
        ("POST", "/v1/chat/completions", "application/json", chat("x", "")),
        ("POST", "/v1/chat/completions", "application/json", stream),
        ("POST", "/v1/completions", "application/json", r#"{"model":"m","prompt":"x"}"#.to_owned()),
        ("POST", "/v1/messages", "application/json", chat("x", "")),
        ("POST", "/v1/embeddings", "application/json", r#"{"model":"m","input":"x"}"#.to_owned()),
        ("POST", "/v1/audio/transcriptions", "multipart/form-data; boundary=x", "--x--".to_owned()),
        ("GET", "/v1/responses/r1", "application/json", String::new()),
        ("GET", "/v1/files", "application/json", String::new()),
        ("DELETE", "/v1/responses/r1", "application/json", String::new()),
    ] {
        let headers = format!("{secrets}content-type: {kind}\r\n");
        for key in [Some(MALLORY.key), None] {
            let mut own = headers.clone();
            if key.is_none() {
                own = own.replace(
                    &format!("x-api-key: {SECRET}"),
                    &format!("x-api-key: {}", MALLORY.key),
                );
                own = own.replace(&format!("Authorization: {SECRET}\r\n"), "");
            }
            let request = request(method, path, key, &own, &body);
            _ = exchange(scene.address, request.as_bytes());
        }
    }
    let bearer = format!("Bearer {}", MALLORY.key);
    let mut headers: Vec<(&str, &str)> = vec![("authorization", &bearer)];
    let lower: Vec<String> = HEADERS.iter().map(|it| it.to_ascii_lowercase()).collect();
    headers.extend(lower.iter().map(|it| (it.as_str(), SECRET)));
    let mut http2 = Http2::open(scene.address, &[])?;
    let sent = http2.post("/v1/chat/completions", &headers, &chat("x", ""));
    _ = sent.and_then(|it| http2.read_body(it));
    let asked = scene.asked();
    // Headers that mean nothing to the router are the client's own affair with the engine.
    let passes = |name: &str| {
        let known = ["x-auth-token", "x-forwarded-authorization", "x-cleave-key", "x-goog-api-key"];
        known.iter().any(|it| it.eq_ignore_ascii_case(name))
    };
    let leaked: Vec<String> = asked
        .iter()
        .flat_map(|it| it.headers.iter().map(move |header| (it, header)))
        .filter(|(_, (name, value))| {
            value.contains(MALLORY.key) || (value.contains(SECRET) && !passes(name))
        })
        .map(|(it, (name, _))| format!("{name} on {} {}", it.method, it.target))
        .collect();
    let bystanders = asked.iter().filter(|it| it.holds("alice-key") || it.holds("bob-key")).count();
    scene
        .check(leaked.is_empty(), || format!("{} reached the engine: {}", leaked.len(), leaked[0]));
    scene.check(bystanders == 0, || format!("{bystanders} keys of bystanders reached the engine"));
    scene.check(!asked.is_empty(), || "nothing reached the engine at all".to_owned());
    Ok(())
}
