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

const FIELDS: [(&str, &str); 14] = [
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
    ("rid", r#""theirs""#),
    ("ec_transfer_params", r#"{"remote_host":"evil.example"}"#),
    ("vllm_xargs", r#"{"kv_transfer_params":{"remote_host":"evil.example"}}"#),
];

const HEADERS: [&str; 14] = [
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
    "x-conversation-id",
    "x-prefiller-host-port",
    "endpoint-load-metrics-format",
    "x-gateway-destination-endpoint",
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
    // Some names are known to one engine only or are harmless there; these are the issue's.
    let some: Vec<&str> = passed.iter().take(10).map(String::as_str).collect();
    scene.check(passed.is_empty(), || format!("{} passed: {}", passed.len(), some.join(", ")));
    Ok(())
}

fn steered_by(asked: &Asked) -> impl Iterator<Item = String> {
    let body: Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    let listed = ["rid", "vllm_xargs", "ec_transfer_params"];
    let fields = FIELDS
        .into_iter()
        .filter(move |(name, _)| !listed.contains(name))
        .filter(move |(name, _)| body.get(*name).is_some_and(|it| !it.is_null()))
        .map(|(name, _)| name.to_owned());
    let asked = asked.clone();
    let free = [
        "x-conversation-id",
        "endpoint-load-metrics-format",
        "x-gateway-destination-endpoint",
        "x-prefiller-host-port",
    ];
    let headers = HEADERS.into_iter().filter(move |it| !free.contains(it));
    let headers = headers.filter(move |it| asked.header(it).is_some()).map(str::to_owned);
    fields.chain(headers)
}
