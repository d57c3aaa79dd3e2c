//! Ways past `cache = "per_tenant"`: paths that an engine reads otherwise than the router, other routes
//! that generate, bodies that are not labelled as JSON, and a salt of the client's own in every place
//! it could stand. Every generating request that reaches the engine must carry the tenant's salt.

use std::collections::BTreeSet;

use anyhow::Result;
use serde_json::Value;

use super::super::Attack;
use super::super::client::{chat, exchange, post, request};
use super::super::fake::{Asked, GENERATING, honest};
use super::super::frames::Http2;
use super::super::plan::{ALICE, MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const ATTACK: Attack = Attack {
    name: "cache_salts",
    tries: "other encodings of a path, other routes, other labels, methods and bodies, and the client's own salt everywhere",
    plan,
    run,
};

fn plan() -> Plan {
    Plan::fakes(1, honest).pool("cache = \"per_tenant\"")
}

const STOLEN: &str = "stolen-salt";

const PATHS: [&str; 16] = [
    "/v1/chat/completion%73",
    "/v1/chat%2fcompletions",
    "/v1/chat%2Fcompletions",
    "/v1/%63hat/completions",
    "/%761/chat/completions",
    "/v1/chat/completions/",
    "/v1/chat/completions%2f",
    "//v1/chat/completions",
    "/v1//chat/completions",
    "/v1/./chat/completions",
    "/v1/x/../chat/completions",
    "/v1/chat/completions?x=1",
    "/v1/chat/completions%3fx",
    "/V1/Chat/Completions",
    "http://router/v1/chat/completions",
    "http://router/v1/chat/completion%73",
];

const KINDS: [&str; 7] = [
    "application/json",
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data; boundary=x",
    "application/octet-stream",
    "APPLICATION/JSON",
    "x",
];

fn bodies() -> Vec<String> {
    let own = format!(r#","cache_salt":"{STOLEN}""#);
    let plain = chat("secret words of another tenant", &own);
    vec![
        chat("secret words of another tenant", ""),
        plain.clone(),
        chat("x", &format!("{own}{own}")),
        chat("x", &format!(r#","cache\u005fsalt":"{STOLEN}""#)),
        chat("x", &format!(r#","\u0063ache_salt":"{STOLEN}""#)),
        chat("x", &format!(r#","extra_key":"{STOLEN}""#)),
        chat("x", &format!(r#","cache_salt":["{STOLEN}"],"extra_key":["{STOLEN}"]"#)),
        chat("x", &format!(r#","extra_body":{{"cache_salt":"{STOLEN}"}}"#)),
        chat("x", &format!(r#","cache_salt":null,"cache_salt":"{STOLEN}""#)),
        format!("\u{feff}{plain}"),
        format!("  \n{plain}"),
        format!("[{plain}]"),
        format!("{plain}{plain}"),
        format!(r#"{{"model":"m","prompt":"x","input":"x","text":"x"{own}}}"#),
        format!(r#"{{"model":"m","prompt_token_ids":[1,2],"token_ids":[1,2]{own}}}"#),
        format!(r#"{{"model":"m","sampling_params":{{"n":1}},"cache_salt":"{STOLEN}"}}"#),
    ]
}

fn run(scene: &mut Scene) -> Result<()> {
    let bodies = bodies();
    let mut paths: Vec<&str> = PATHS.to_vec();
    paths.extend(GENERATING);
    scene.forget_asked();
    for path in &paths {
        for (number, body) in bodies.iter().enumerate() {
            let kind = format!("content-type: {}\r\n", KINDS[number % KINDS.len()]);
            for headers in ["content-type: application/json\r\n", kind.as_str()] {
                send(scene, "POST", path, headers, body);
            }
        }
        for kind in KINDS {
            send(scene, "POST", path, &format!("content-type: {kind}\r\n"), &bodies[1]);
        }
        send(scene, "PUT", path, "", &bodies[1]);
        send(scene, "POST", path, "content-encoding: gzip\r\n", &bodies[1]);
        over_http2(scene, path, &bodies[1]);
    }
    judge(scene);
    let own = own_salt(scene)?;
    let other = own_salt(&scene.beside(&plan())?)?;
    scene.check(own != other, || "a salt can be computed from a tenant's name".to_owned());
    Ok(())
}

/// The salt that a router gives the attacker.
fn own_salt(scene: &Scene) -> Result<Option<String>> {
    let body = chat("which salt is mine", "");
    post(scene.address, Some(MALLORY.key), "/v1/chat/completions", "", &body)?;
    Ok(scene.asked().iter().filter(|it| it.says("which salt is mine")).find_map(salt))
}

/// Sends one request; what is answered is not what counts.
fn send(scene: &Scene, method: &str, path: &str, headers: &str, body: &str) {
    let request = request(method, path, Some(MALLORY.key), headers, body);
    _ = exchange(scene.address, request.as_bytes());
}

fn over_http2(scene: &Scene, path: &str, body: &str) {
    let ask = || -> std::io::Result<Vec<u8>> {
        let mut http2 = Http2::open(scene.address, &[])?;
        let bearer = format!("Bearer {}", MALLORY.key);
        let stream = http2.post(path, &[("authorization", &bearer)], body)?;
        http2.read_body(stream)
    };
    _ = ask();
}

fn judge(scene: &mut Scene) {
    let (mut bare, mut stolen, mut salts) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut theirs = BTreeSet::new();
    for asked in scene.asked().iter().filter(|it| it.generates()) {
        let salt = salt(asked);
        if asked.says("bystander alice") {
            theirs.extend(salt);
            continue;
        }
        if asked.says("bystander") {
            continue;
        }
        let what = format!("{} {}", asked.method, asked.target);
        if asked.holds(STOLEN) {
            stolen.insert(what.clone());
        }
        match salt {
            Some(salt) => _ = salts.insert(salt),
            None => _ = bare.insert(what),
        }
    }
    scene.check(bare.is_empty(), || format!("without a salt: {}", listed(&bare)));
    scene.check(stolen.is_empty(), || format!("with the client's own salt: {}", listed(&stolen)));
    scene.check(salts.is_disjoint(&theirs), || {
        format!("{} has {}'s salt", MALLORY.name, ALICE.name)
    });
    scene.check(!theirs.is_empty(), || "bystanders have no salt".to_owned());
}

/// The salt that an engine would use: the last one at the top level.
fn salt(asked: &Asked) -> Option<String> {
    let body: Value = serde_json::from_slice(&asked.body).ok()?;
    Some(body.get("cache_salt")?.as_str()?.to_owned())
}

fn listed(set: &BTreeSet<String>) -> String {
    let some: Vec<&str> = set.iter().take(8).map(String::as_str).collect();
    format!("{} ({})", set.len(), some.join(", "))
}
