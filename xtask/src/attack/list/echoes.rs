//! Words of a client that come back in a refusal, and words of a replica that should not come through:
//! a model's name of a megabyte, a redirect to an internal address.

use std::io;

use anyhow::Result;

use super::super::Attack;
use super::super::client::{chat, exchange, post, request};
use super::super::fake::{Asked, Mouth, honest};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const NAMES: Attack = Attack {
    name: "echoed_names",
    tries: "a model, a class, a request id, a session and a path of up to a megabyte, and what is said of them",
    plan: || Plan::mocks(1),
    run: names,
};

pub(super) const REDIRECTS: Attack = Attack {
    name: "redirects",
    tries: "replicas that answer with redirects and headers that name internal addresses",
    plan: || Plan::fakes(2, redirects),
    run: redirected,
};

const ANSWER_BYTES_MAX: usize = 8 * 1024;

fn names(scene: &mut Scene) -> Result<()> {
    let long = "n".repeat(1 << 20);
    let medium = "n".repeat(32 * 1024);
    let unknown = format!(r#"{{"model":"{long}","messages":[{{"role":"user","content":"x"}}]}}"#);
    let class = format!("x-cleave-class: {medium}\r\n");
    let id = format!("x-request-id: {medium}\r\nx-session-id: {medium}\r\n");
    let strange = r#"{"model":"\u0000\u001b[31m\r\n<script>","messages":[]}"#.to_owned();
    let broken = format!(r#"{{"model":"m","messages":{long}"#);
    for (what, path, headers, body) in [
        ("a model", "/v1/chat/completions", "", &unknown),
        ("a model for Anthropic's API", "/v1/messages", "", &unknown),
        ("a class", "/v1/chat/completions", class.as_str(), &chat("x", "")),
        ("an id", "/v1/chat/completions", id.as_str(), &unknown),
        ("strange letters", "/v1/chat/completions", "", &strange),
        ("a broken body", "/v1/chat/completions", "", &broken),
    ] {
        let request = request("POST", path, Some(MALLORY.key), headers, body);
        let answer = exchange(scene.address, request.as_bytes())?;
        let length = answer.body.len() + answer.head_text().len();
        scene.check(length <= ANSWER_BYTES_MAX, || {
            format!("{what} is answered with {length} bytes")
        });
        let text = answer.text();
        scene.check(!text.contains(['\u{1b}', '\0']), || format!("{what}: raw control characters"));
    }
    let path = format!("/v1/models/{medium}");
    let request = request("GET", &path, Some(MALLORY.key), "", "");
    let length = exchange(scene.address, request.as_bytes()).map_or(0, |it| it.body.len());
    scene.check(length <= ANSWER_BYTES_MAX, || format!("a path is answered with {length} bytes"));
    Ok(())
}

const INTERNAL: &str = "10.9.8.7";

fn redirects(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.says("bystander") || asked.method == "GET" {
        return honest(asked, mouth);
    }
    let status = match asked.text() {
        it if it.contains("go 301") => 301,
        it if it.contains("go 302") => 302,
        it if it.contains("go 307") => 307,
        it if it.contains("go 308") => 308,
        _ => 200,
    };
    let headers = format!(
        "location: http://{INTERNAL}:8000/v1/chat/completions/\r\ncontent-location: http://{INTERNAL}:8000/\r\nrefresh: 0; url=http://{INTERNAL}/\r\nlink: <http://{INTERNAL}/>; rel=next\r\nalt-svc: h2=\"{INTERNAL}:1\"\r\nset-cookie: engine=1\r\n"
    );
    mouth.answer(status, "application/json", &headers, "{}")
}

fn redirected(scene: &mut Scene) -> Result<()> {
    for word in ["go 301", "go 302", "go 307", "go 308"] {
        let answer =
            post(scene.address, Some(MALLORY.key), "/v1/chat/completions", "", &chat(word, ""))?;
        let head = answer.head_text();
        scene.check(!head.contains(&format!("location: http://{INTERNAL}")), || {
            format!("{word}: the client is sent to an internal address")
        });
    }
    Ok(())
}
