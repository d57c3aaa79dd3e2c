//! Fields and headers by which a client steers an engine: hosts it should connect to, ranks it should
//! use, priorities, caches. In the plain form, escaped, twice, in every API.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use super::super::Attack;
use super::super::client::{chat, exchange, request};
use super::super::fake::{Asked, honest};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const ATTACK: Attack = Attack {
    name: "steering",
    tries: "kv_transfer_params, bootstrap_*, ranks, priorities and salts as fields (plain, escaped, twice) and as headers, in every API",
    plan: || Plan::fakes(1, honest),
    run,
};

const FIELDS: [(&str, &str); 12] = [
    (
        "kv_transfer_params",
        r#"{"do_remote_prefill":true,"remote_host":"evil.example","remote_port":1}"#,
    ),
    ("bootstrap_host", r#""evil.example""#),
    ("bootstrap_port", "8998"),
    ("bootstrap_room", "1"),
    ("disaggregated_params", r#"{"ctx_info_endpoint":"evil.example"}"#),
    ("disagg_prefill_dp_rank", "1"),
    ("data_parallel_rank", "1"),
    ("routed_dp_rank", "1"),
    ("priority", "-100"),
    ("cache_salt", r#""theirs""#),
    ("extra_key", r#""theirs""#),
    ("ec_transfer_params", r#"{"remote_host":"evil.example"}"#),
];

const HEADERS: [&str; 12] = [
    "x-override-rid",
    "x-override-bootstrap-host",
    "x-override-bootstrap-port",
    "x-override-bootstrap-room",
    "x-override-routed-dp-rank",
    "x-override-disagg-prefill-dp-rank",
    "x-override-priority",
    "x-override-anything",
    "X-data-parallel-rank",
    "X-Vllm-Priority",
    "x-prefiller-host-port",
    "x-cleave-previous-replica",
];

fn run(scene: &mut Scene) -> Result<()> {
    scene.forget_asked();
    let headers = HEADERS.map(|it| format!("{it}: 1\r\n")).concat();
    for path in [
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/generate",
        "/v1/embeddings",
    ] {
        for (name, value) in FIELDS {
            let escaped = format!("\\u{:04x}{}", u32::from(name.as_bytes()[0]), &name[1..]);
            for fields in [
                format!(r#","{name}":{value}"#),
                format!(r#","{escaped}":{value}"#),
                format!(r#","{name}":null,"{name}":{value}"#),
                format!(r#","{name}" : {value} , "{escaped}":{value}"#),
                format!(r#","extra_body":{{"{name}":{value}}}"#),
                format!(r#","vllm_xargs":{{"{name}":{value}}}"#),
                format!(r#","sampling_params":{{"extra_args":{{"{name}":{value}}}}}"#),
            ] {
                let more = format!(r#","prompt":"x","input":"x","text":"x"{fields}"#);
                let request = request("POST", path, Some(MALLORY.key), &headers, &chat("x", &more));
                _ = exchange(scene.address, request.as_bytes());
            }
        }
        let first = r#"{"priority":-1,"model":"m","prompt":"x","input":"x","messages":[{"role":"user","content":"x"}]}"#;
        let request = request("POST", path, Some(MALLORY.key), "", first);
        _ = exchange(scene.address, request.as_bytes());
    }
    let mut passed = BTreeSet::new();
    for asked in scene.asked().iter().filter(|it| !it.says("bystander")) {
        passed.extend(steered_by(asked).map(|it| format!("{it} on {}", asked.target)));
    }
    let some: Vec<&str> = passed.iter().take(10).map(String::as_str).collect();
    scene.check(passed.is_empty(), || format!("{} passed: {}", passed.len(), some.join(", ")));
    Ok(())
}

fn steered_by(asked: &Asked) -> impl Iterator<Item = String> {
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let fields = FIELDS.into_iter().filter(move |it| steers(&body, *it));
    let fields = fields.map(|(name, _)| name.to_owned());
    let asked = asked.clone();
    let headers = HEADERS.into_iter().filter(move |it| asked.header(it).is_some());
    fields.chain(headers.map(str::to_owned))
}

/// Tells whether a field is anywhere in a body. The router's own salt may stand where a client's stood.
fn steers(value: &Value, field: (&str, &str)) -> bool {
    let (name, given) = field;
    let is_own = |it: &Value| name == "cache_salt" && it.as_str() != Some(given.trim_matches('"'));
    match value {
        Value::Object(map) => map
            .iter()
            .any(|(key, it)| (key == name && !it.is_null() && !is_own(it)) || steers(it, field)),
        Value::Array(list) => list.iter().any(|it| steers(it, field)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}
