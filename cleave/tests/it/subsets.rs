//! Subsets: tenants on a few of many replicas, orders on the admin port, and the same places after a
//! restart.

use crate::support::{
    Answer, Json, Request, Requests, Router, Scripted, Wire, ask, config, eventually, json_answer,
};

/// A folder of its own, gone at the end.
struct Folder(std::path::PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("cleave-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

async fn fleet() -> Vec<Scripted> {
    let mut fleet = Vec::new();
    for _ in 0..6 {
        fleet.push(Scripted::answering(json_answer(200, "{}")).await);
    }
    fleet
}

/// A router that gives each workload two of the replicas, and that has seen two of them.
async fn divided(fleet: &[Scripted], folder: &Folder) -> Router {
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let settings = format!(
        "health.interval = \"1h\"\n[subsets]\nfloor = 2\ncap = 2\nspill_max = 0\nstate_dir = {:?}\n",
        folder.0
    );
    let router = Router::start(&urls, &settings).await;
    for tenant in ["Bearer a", "Bearer b"] {
        assert_eq!(turn(&router, tenant, "s").await.status(), 200);
    }
    until_shown(&router, "the pool is divided", |it| it["divided"] == true).await;
    router
}

async fn turn(router: &Router, tenant: &str, session: &str) -> Answer {
    router.ask(&Request::chat("hi").session(session).header("authorization", tenant)).await
}

/// What is shown of the only pool.
async fn assignment(router: &Router) -> Json {
    ask(router.admin, &Request::get("/assignment")).await.json()["pools"][0].take()
}

async fn until_shown(router: &Router, what: &str, holds: impl Fn(&Json) -> bool) {
    eventually(what, async || holds(&assignment(router).await)).await;
}

/// Whether one of the pool's `list` has this value.
fn lists(pool: &Json, list: &str, key: &str, value: impl Into<Json>) -> bool {
    let value = value.into();
    pool[list].as_array().expect("it is a list").iter().any(|it| it[key] == value)
}

/// Sends many sessions of a tenant and lists the replicas that got any of them.
async fn used(router: &Router, fleet: &[Scripted], tenant: &str) -> Vec<usize> {
    let before: Vec<usize> = fleet.iter().map(Scripted::hits).collect();
    for session in 0..24 {
        assert_eq!(turn(router, tenant, &format!("s{session}")).await.status(), 200);
    }
    let hits = fleet.iter().map(Scripted::hits).zip(before).enumerate();
    hits.filter(|(_, (after, before))| before < after).map(|(at, _)| at).collect()
}

fn generation(shown: &Json) -> &str {
    shown["generation"].as_str().expect("it has one")
}

#[tokio::test]
async fn a_tenant_keeps_to_its_subset_and_to_the_same_one_after_a_restart() {
    let (fleet, folder) = (fleet().await, Folder::new("subset"));
    let router = divided(&fleet, &folder).await;
    let one = used(&router, &fleet, "Bearer b").await;
    assert_eq!(one.len(), 2, "{one:?} of six");
    let before = assignment(&router).await;
    eventually("the assignment is kept", async || {
        let files = std::fs::read_dir(&folder.0).unwrap();
        let texts = files.map(|it| std::fs::read_to_string(it.unwrap().path()).unwrap());
        let number: u64 = generation(&before).split_once('.').unwrap().1.parse().unwrap();
        // One that is being written is no JSON yet.
        let mut kept = texts.filter_map(|it| serde_json::from_str::<Json>(&it).ok());
        kept.any(|it| it["number"] == number)
    })
    .await;
    drop(router);
    let router = divided(&fleet, &folder).await;
    assert_eq!(used(&router, &fleet, "Bearer b").await, one);
    assert_eq!(generation(&assignment(&router).await), generation(&before), "nothing moved");
}

#[tokio::test]
async fn a_drained_replica_gets_nothing_more_and_a_frozen_assignment_says_so() {
    let (fleet, folder) = (fleet().await, Folder::new("drain"));
    let router = divided(&fleet, &folder).await;
    let one = used(&router, &fleet, "Bearer b").await;
    let url = fleet[one[0]].url();
    let authority = url.strip_prefix("http://").unwrap();
    let order = async |path: &str| ask(router.admin, &Request::post(path, "")).await.status();
    assert_eq!(order(&format!("/drain/{authority}")).await, 200);
    assert_eq!(order("/drain/nobody:1").await, 404);
    let after = used(&router, &fleet, "Bearer b").await;
    assert!(!after.contains(&one[0]), "{after:?}");
    assert_eq!(after.len(), 2);
    let moved = |it: &Json| lists(it, "slices", "previous", url.as_str());
    until_shown(&router, "its slices were its own", moved).await;
    assert_eq!(order("/assignment/freeze").await, 200);
    until_shown(&router, "it is frozen", |it| it["frozen"] == true).await;
    assert_eq!(order("/assignment/unfreeze").await, 200);
    assert_eq!(order(&format!("/undrain/{authority}")).await, 200);
    let none_drained = |it: &Json| it["drained"].as_array().is_some_and(Vec::is_empty);
    until_shown(&router, "none is drained", none_drained).await;
}

#[tokio::test]
async fn a_pin_counts_a_replica_once_and_refuses_what_is_not_there() {
    let (fleet, folder) = (fleet().await, Folder::new("pin"));
    let router = divided(&fleet, &folder).await;
    let shown = assignment(&router).await;
    let workload = shown["workloads"][0]["workload"].as_str().expect("it lists some").to_owned();
    let pin = async |pool: &str, workload: &str, body: &str| {
        let path = format!("/assignment/pin/{pool}/{workload}");
        let answer = ask(router.admin, &Request::post(&path, body)).await;
        format!("{} {}", answer.status(), answer.text().trim())
    };
    let url = fleet[0].url();
    let list = |it: &str| format!("[\"{it}\"]");
    let twice = format!("[\"{url}\", \"{}\"]\n", url.strip_prefix("http://").unwrap());
    let unknown = if workload == "00000000" { "00000001" } else { "00000000" };
    assert_eq!(pin("default", &workload, &twice).await, "200 pinned to 1 replica");
    until_shown(&router, "it is pinned", |it| lists(it, "workloads", "pinned", true)).await;
    assert_eq!(pin("default", &workload, "").await, "200 the planner decides again");
    for (refused, remedy) in [
        (pin("chat", &workload, &list(&url)).await, "name one of default"),
        (pin("default", unknown, &list(&url)).await, "GET /assignment lists those it has"),
        (pin("default", &workload, &list("nobody:1")).await, "GET /status lists them"),
    ] {
        assert!(refused.starts_with("404 ") && refused.contains(remedy), "{refused}");
    }
    assert!(pin("default", "zz", &list(&url)).await.starts_with("400 "));
    let said = pin("default", &workload, &url).await;
    assert!(said.starts_with("400 ") && said.contains("as JSON"), "{said}");
}

#[tokio::test]
async fn a_pin_shows_who_ordered_it_and_when_also_after_a_restart_and_of_a_quiet_workload() {
    let (fleet, folder) = (fleet().await, Folder::new("pinned"));
    let router = divided(&fleet, &folder).await;
    let shown = assignment(&router).await;
    let workload = shown["workloads"][0]["workload"].as_str().expect("it lists some").to_owned();
    let (path, url) = (format!("/assignment/pin/default/{workload}"), fleet[0].url());
    let pin = Request::post(&path, format!("[\"{url}\"]"));
    assert_eq!(ask(router.admin, &pin).await.status(), 200);
    let shown = assignment(&router).await;
    let pins = shown["pins"].clone();
    let [by, at] = ["by", "at"].map(|it| pins[0][it].as_str().expect("it is told"));
    assert_eq!(by, "anonymous");
    assert!(at.starts_with("20") && at.ends_with('Z'), "{at}");
    let known = serde_json::json!({ "by": by, "at": at });
    assert!(lists(&shown, "workloads", "pinned_by", known), "{shown}");
    assert!(lists(&shown, "workloads", "pinned_by", Json::Null), "the other is not pinned");
    drop(router);

    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let router = Router::start(&urls, &format!("subsets.state_dir = {:?}", folder.0)).await;
    let shown = assignment(&router).await;
    assert_eq!(shown["workloads"], serde_json::json!([]), "nothing was asked yet");
    assert_eq!(shown["pins"], pins);
    let page = ask(router.admin, &Request::get("/status")).await.json();
    assert_eq!(page["pools"][0]["pins"], pins);
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(["assignment", "--admin", &router.admin.to_string()]);
    let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let line = format!("pinned by {by} at {at}: {workload} to {url}\n");
    assert!(said.contains(&line), "{said}");
    assert_eq!(
        ask(router.admin, &Request::post(&path, "")).await.status(),
        200,
        "it can be undone"
    );
    assert_eq!(assignment(&router).await["pins"], serde_json::json!([]));
}

/// Receives one request at either replica; says which, and which replica it was told served before.
async fn received(one: &mut Requests, other: &mut Requests) -> (usize, Option<String>) {
    let (at, exchange) = tokio::select! {
        it = one.next() => (0, it),
        it = other.next() => (1, it),
    };
    let previous = exchange.head.header("x-cleave-previous-replica").map(str::to_owned);
    exchange.answer(json_answer(200, "{}")).await;
    (at, previous)
}

#[tokio::test]
async fn a_session_that_moves_names_its_previous_replica_to_the_next() {
    let (one, mut at_one) = Scripted::by_hand().await;
    let (other, mut at_other) = Scripted::by_hand().await;
    let urls = [one.url(), other.url()];
    let router = Router::start(&urls, "health.interval = \"1h\"").await;
    let mut client = Wire::connect(router.address).await;
    // Only the router may name a previous replica.
    let forged = Request::chat("hi").session("s").header("x-cleave-previous-replica", "http://x:1");
    client.send(&forged.bytes()).await;
    let (first, previous) = received(&mut at_one, &mut at_other).await;
    assert_eq!(previous, None);
    assert_eq!(client.answer().await.status(), 200);
    let drained = ask(router.admin, &Request::post(&format!("/drain/{}", urls[first]), "")).await;
    assert_eq!(drained.status(), 200, "{}", drained.text());
    client.send(&Request::chat("and now?").session("s").bytes()).await;
    let (second, previous) = received(&mut at_one, &mut at_other).await;
    assert_ne!(first, second);
    assert_eq!(previous.as_deref(), Some(urls[first].as_str()));
    assert_eq!(client.answer().await.status(), 200);
}

/// The SHA-256 of `key-a`.
const KEY_A: &str = "f10f781241e2246678b6b45c857069208152a53863e47fac33f607ab405006f4";

#[tokio::test]
async fn workloads_are_shown_by_tenant_model_and_zones_and_a_trusted_header_names_others() {
    let (fleet, folder) = (fleet().await, Folder::new("names"));
    let urls: Vec<String> = fleet.iter().map(Scripted::url).collect();
    let weighed: Vec<(&str, f64)> = urls.iter().map(|it| (it.as_str(), 1.0)).collect();
    let settings = format!(
        "health.interval = \"1h\"\nkeys.unknown = \"share\"\n[subsets]\nfloor = 2\ncap = 2\n\
         workload_header = \"x-team\"\nstate_dir = {:?}\n\
         [[tenants]]\nname = \"acme\"\nkey_sha256 = [\"{KEY_A}\"]\n",
        folder.0
    );
    let mut text = config(&weighed, &settings);
    for url in &urls[..3] {
        let plain = format!("\"{url}\", weight = 1.0");
        text = text.replace(&plain, &format!("{plain}, zone = \"rack-7\""));
    }
    for url in &urls[3..] {
        let plain = format!("\"{url}\", weight = 1.0");
        text = text.replace(&plain, &format!("{plain}, zone = \"rack-8\""));
    }
    let router = Router::start_with(&text);
    router.until("all are up", |it| it.count(|it| it.state == "up") == fleet.len()).await;
    assert_eq!(turn(&router, "Bearer key-a", "s").await.status(), 200);
    assert_eq!(turn(&router, "Bearer nobody", "s").await.status(), 200);
    let names = |name: &'static str| move |it: &Json| lists(it, "workloads", "name", name);
    until_shown(&router, "the tenant has its name", names("acme × m")).await;
    until_shown(&router, "the others have theirs", names("default × m")).await;
    let zones = |it: &Json| lists(it, "workloads", "zones", vec!["rack-7", "rack-8"]);
    until_shown(&router, "a subset is in both zones", zones).await;
    // Named by a header it is another workload, of which only the digits are known.
    let other = Request::chat("hi").session("s").header("authorization", "Bearer key-a");
    assert_eq!(router.ask(&other.header("x-team", "batch")).await.status(), 200);
    let nameless = |it: &Json| lists(it, "workloads", "name", Json::Null);
    until_shown(&router, "another workload has no name", nameless).await;
}
