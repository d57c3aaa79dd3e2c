//! Recordings, from the order on the admin port to the answer of `cleave replay`: what came is there, and no text.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::support::{Json, Mock, Request, Router, ask, config, eventually};

const SECRET: &str = "the quick brown fox tells nothing to a recording";

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = folder.join(format!("record-{name}-{}", std::process::id()));
        _ = std::fs::remove_dir_all(&folder);
        Self(folder)
    }

    fn files(&self) -> Vec<PathBuf> {
        let listed = std::fs::read_dir(&self.0).into_iter().flatten();
        listed.map(|it| it.unwrap().path()).collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

fn replay(folder: &Path, options: &[&str]) -> Output {
    let program = env!("CARGO_BIN_EXE_cleave");
    Command::new(program).arg("replay").arg(folder).args(options).output().unwrap()
}

async fn order(router: &Router, body: &str) -> u16 {
    ask(router.admin, &Request::post("/record", body)).await.status()
}

#[tokio::test]
async fn what_is_recorded_by_order_has_no_text_and_can_be_replayed() {
    let mocks = [0, 1].map(|_| Mock::start(&["--speed", "inf"]));
    let folder = Folder::new("order");
    let replicas = mocks.each_ref().map(Mock::url);
    let replicas = replicas.each_ref().map(|it| (it.as_str(), 1.0));
    let router = Router::start_with(&config(&replicas, &format!("record.dir = {:?}", folder.0)));
    router.until("both are up", |it| it.count(|it| it.state == "up") == 2).await;
    assert_eq!(order(&router, "{\"on\": \"yes\"}").await, 400);
    assert!(folder.files().is_empty(), "it is off by default");

    assert_eq!(order(&router, "{\"on\": true, \"for\": \"10m\"}").await, 200);
    // What came before the first file began is not in it.
    eventually("a file", async || !folder.files().is_empty()).await;
    let long = format!("{SECRET} ").repeat(40);
    for turn in 0..6 {
        let session = format!("session-of-{}", turn % 2);
        let request = Request::stream(&long).session(&session).header("x-api-key", "k-secret");
        assert_eq!(router.ask(&request).await.status(), 200);
    }
    let status = ask(router.admin, &Request::get("/record")).await.json();
    assert_eq!(status["on"].as_bool(), Some(true));
    assert_eq!(order(&router, "{\"on\": false}").await, 200);
    let written = "cleave_recorded_requests_total";
    eventually("written", async || router.counter(written).await == 6).await;

    let text = Command::new("gzip").arg("-dc").args(folder.files()).output();
    let packed: Vec<u8> = folder.files().iter().flat_map(|it| std::fs::read(it).unwrap()).collect();
    let text = text.map_or(packed, |it| it.stdout);
    let text = String::from_utf8_lossy(&text);
    for said in ["quick", "session-of", "k-secret"] {
        assert!(!text.contains(said), "{said} in {text}");
    }
    let output = replay(&folder.0, &["--policy", "priced,session", "--replicas", "+2", "--json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let answer: Json = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["recorded"]["requests"], 6);
    assert_eq!((&answer["replicas"], &answer["what_if"][1]["replicas"]), (&2.into(), &4.into()));
    assert_eq!(answer["agreement"][0]["figure"], "first token p50, s");
    let table = replay(&folder.0, &["--last", "1h"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.find("how well it agrees") < table.find("what if"), "{table}");
}

#[tokio::test]
async fn a_router_without_a_folder_says_what_is_missing() {
    let mock = Mock::start(&["--speed", "inf"]);
    let router = Router::start(&[mock.url()], "").await;
    let answer = ask(router.admin, &Request::post("/record", "{\"on\": true}")).await;
    assert_eq!(answer.status(), 409);
    assert!(answer.text().contains("record.dir"), "{}", answer.text());
}

#[test]
fn what_is_no_recording_is_refused_with_its_place() {
    let folder = Folder::new("bad");
    let empty = replay(&folder.0, &[]);
    assert!(!empty.status.success());
    std::fs::create_dir_all(&folder.0).unwrap();
    let none = replay(&folder.0, &[]);
    assert!(String::from_utf8_lossy(&none.stderr).contains("POST /record"));
    std::fs::write(folder.0.join("a.rec"), "{\"not\": \"one\"}\n").unwrap();
    let refusal = String::from_utf8_lossy(&replay(&folder.0, &[]).stderr).into_owned();
    assert!(refusal.contains("a.rec, line 1"), "{refusal}");
}
