//! What an engine keeps by id (responses, conversations, files, batches) goes to the replica that made it, and to no
//! other: by a hundred turns, after a restart, and never across tenants.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::support::{Answer, Mock, Request, Router, Scripted, config, eventually, json_answer};

const PRICED: &str = "policy = \"priced\"";
/// The SHA-256 of `key-a` and of `key-b`.
const TENANTS: [(&str, &str); 2] = [
    ("a", "f10f781241e2246678b6b45c857069208152a53863e47fac33f607ab405006f4"),
    ("b", "a30534a53b23547377ddccbd1ac85a8a84c13db43493c16e55a6abc7b0eba634"),
];

fn turn(text: &str, previous: Option<&str>, stream: bool) -> Request {
    let mut body =
        format!(r#"{{"model":"m","max_output_tokens":4,"input":"{text}","stream":{stream}"#);
    if let Some(id) = previous {
        write!(body, r#","previous_response_id":"{id}""#).unwrap();
    }
    Request::post("/v1/responses", body + "}")
}

fn replica(answer: &Answer) -> String {
    assert_eq!(answer.status(), 200, "{}", answer.text());
    answer.header("x-mock-replica").expect("a replica answered").to_owned()
}

/// Reads the id of a response, whole or streamed.
fn id(answer: &Answer) -> String {
    let text = answer.text();
    let from = text.find("\"resp_").expect("it has an id") + 1;
    text[from..].split('"').next().unwrap().to_owned()
}

fn get(id: &str) -> Request {
    Request::get(&format!("/v1/responses/{id}"))
}

/// Checks that an answer is the API's own not-found, and the router's, not a replica's.
fn assert_not_found(answer: &Answer, code: &str) {
    let refusal = answer.refusal();
    assert_eq!((answer.status(), refusal.code.as_str()), (404, code), "{}", refusal.message);
    assert_eq!(refusal.r#type, "invalid_request_error");
    assert_eq!(answer.header("x-mock-replica"), None);
}

#[tokio::test]
async fn a_hundred_turns_by_previous_response_id_never_leave_their_replica() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let router = Router::start(&urls, PRICED).await;
    let mut chats = Vec::new();
    for chat in 0..10 {
        let first = router.ask(&turn(&format!("chat {chat}"), None, chat % 2 == 0)).await;
        chats.push((replica(&first), id(&first)));
    }
    for number in 0..10 {
        for (chat, (home, previous)) in chats.iter_mut().enumerate() {
            let request = turn(&format!("turn {number}"), Some(previous), (chat + number) % 2 == 0);
            let answer = router.ask(&request).await;
            assert_eq!(replica(&answer), *home, "chat {chat}, turn {number}");
            *previous = id(&answer);
        }
    }
    for (home, last) in &chats {
        assert_eq!(replica(&router.ask(&get(last)).await), *home);
    }
    let homes: std::collections::BTreeSet<_> = chats.iter().map(|it| &it.0).collect();
    assert!(1 < homes.len(), "they are spread: {homes:?}");
    let list = router.ask(&Request::get("/v1/files")).await;
    assert!(list.header("x-mock-replica").is_some(), "a list is tied to no replica");
}

#[tokio::test]
async fn what_a_replica_kept_is_not_found_once_it_is_gone() {
    let mut mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let router = Router::start(&urls, PRICED).await;
    let first_at = async |address: String| {
        // With this many chats, the chance that a replica has none is one in ten million.
        for chat in 0..40 {
            let answer = router.ask(&turn(&format!("chat {chat}"), None, false)).await;
            if replica(&answer) == address {
                return id(&answer);
            }
        }
        panic!("no chat went to {address}");
    };
    let gone = first_at(mocks[0].address.to_string()).await;
    let removed = first_at(mocks[1].address.to_string()).await;

    drop(mocks.remove(0));
    let again = turn("and?", Some(&gone), false);
    let not_found = async || router.ask(&again).await.status() == 404;
    eventually("the replica is known to be gone", not_found).await;
    for _ in 0..20 {
        assert_not_found(&router.ask(&again).await, "previous_response_not_found");
        assert_not_found(&router.ask(&get(&gone)).await, "id_not_found");
    }

    let left = mocks[1].url();
    router.write(&config(&[(&left, 1.0)], PRICED));
    router.process.signal("HUP");
    router.until("one replica is left", |it| it.replicas().count() == 1).await;
    let request = turn("and?", Some(&removed), true);
    assert_not_found(&router.ask(&request).await, "previous_response_not_found");
    assert_not_found(&router.ask(&get(&removed)).await, "id_not_found");
}

#[tokio::test]
async fn an_id_of_another_key_is_not_found() {
    let mocks = [Mock::start(&["--speed", "inf"]), Mock::start(&["--speed", "inf"])];
    let router = Router::start(&[mocks[0].url(), mocks[1].url()], PRICED).await;
    let (mine, other) = ("Bearer mine", "Bearer other");
    let made = router.ask(&turn("secret", None, false).header("authorization", mine)).await;
    let id = id(&made);
    for key in [other, "Bearer third"] {
        let read = router.ask(&get(&id).header("authorization", key)).await;
        assert_not_found(&read, "id_not_found");
        let next = turn("repeat it", Some(&id), false).header("authorization", key);
        assert_not_found(&router.ask(&next).await, "previous_response_not_found");
    }
    let own = router.ask(&get(&id).header("authorization", mine)).await;
    assert_eq!(replica(&own), replica(&made));
}

#[tokio::test]
async fn an_id_that_is_unknown_is_asked_for_where_there_are_no_tenants() {
    let mocks = [Mock::start(&["--speed", "inf"]), Mock::start(&["--speed", "inf"])];
    let router = Router::start(&[mocks[0].url(), mocks[1].url()], PRICED).await;
    let first = router.ask(&get("resp_unknown")).await;
    assert_eq!(first.status(), 404);
    let home = first.header("x-mock-replica").expect("the engine says so").to_owned();
    for _ in 0..10 {
        let again = router.ask(&get("resp_unknown")).await;
        assert_eq!(again.header("x-mock-replica"), Some(home.as_str()), "always the same one");
    }
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("ids-{}-{}", std::process::id(), NUMBER.fetch_add(1, Relaxed));
        Self(PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name))
    }

    fn settings(&self) -> String {
        let mut text = format!("{PRICED}\nsubsets.state_dir = \"{}\"\n", self.0.display());
        for (name, hash) in TENANTS {
            write!(text, "[[tenants]]\nname = \"{name}\"\nkey_sha256 = [\"{hash}\"]\n").unwrap();
        }
        text
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn ids_and_their_tenants_are_known_after_a_restart() {
    let mocks: Vec<Mock> = (0..3).map(|_| Mock::start(&["--speed", "inf"])).collect();
    let urls: Vec<String> = mocks.iter().map(Mock::url).collect();
    let folder = Folder::new();
    let mut router = Router::start(&urls, &folder.settings()).await;
    let mut made = Vec::new();
    for number in 0..12 {
        let request = turn(&format!("chat {number}"), None, number % 2 == 0);
        let answer = router.ask(&request.header("authorization", "Bearer key-a")).await;
        made.push((id(&answer), replica(&answer)));
    }
    router.process.signal("TERM");
    assert!(router.process.ended().await.success());

    let router = Router::start(&urls, &folder.settings()).await;
    for (id, home) in &made {
        let own = router.ask(&get(id).header("authorization", "Bearer key-a")).await;
        assert_eq!(replica(&own), *home);
        let next = turn("and?", Some(id), false).header("authorization", "Bearer key-a");
        assert_eq!(replica(&router.ask(&next).await), *home);
        let foreign = router.ask(&get(id).header("authorization", "Bearer key-b")).await;
        assert_not_found(&foreign, "id_not_found");
    }
    // Where there are tenants, what is unknown may be another's, and no engine is asked for it.
    let unknown = router.ask(&get("resp_unknown").header("authorization", "Bearer key-a")).await;
    assert_not_found(&unknown, "id_not_found");
}

#[tokio::test]
async fn files_batches_and_conversations_go_to_the_replica_that_made_them() {
    let mut replicas = Vec::new();
    for number in 0..3 {
        let body = format!(r#"{{"id":"made-{number}","output_file_id":"out-{number}"}}"#);
        replicas.push(Scripted::answering(json_answer(200, &body)).await);
    }
    let urls: Vec<String> = replicas.iter().map(Scripted::url).collect();
    let router = Router::start(&urls, "").await;
    let made_at = async |request: &Request| {
        let answer = router.ask(request).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        answer.json()["id"].as_str().unwrap().trim_start_matches("made-").to_owned()
    };
    for (path, part) in [("files", "/content"), ("conversations", "/items"), ("batches", "")] {
        let form = Request::post_as(&format!("/v1/{path}"), "multipart/form-data", "a form");
        let at = made_at(&form).await;
        for rest in ["", part] {
            let item = Request::get(&format!("/v1/{path}/made-{at}{rest}"));
            assert_eq!(made_at(&item).await, at, "{path}{rest}");
        }
        let batch = format!(r#"{{"input_file_id":"made-{at}","endpoint":"/v1/responses"}}"#);
        assert_eq!(made_at(&Request::post("/v1/batches", batch)).await, at);
        for conversation in [format!(r#""made-{at}""#), format!(r#"{{"id":"made-{at}"}}"#)] {
            let body = format!(r#"{{"model":"m","input":"hi","conversation":{conversation}}}"#);
            assert_eq!(made_at(&Request::post("/v1/responses", body)).await, at);
        }
        made_at(&Request::get(&format!("/v1/batches/made-{at}"))).await;
        let output = Request::get(&format!("/v1/files/out-{at}/content"));
        assert_eq!(made_at(&output).await, at, "a batch names its files");
    }
}
