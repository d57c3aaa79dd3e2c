//! Orders of operators: they show with the name of their token, last over reload, successor and restart, are
//! written down, and need a right.

use std::path::{Path, PathBuf};

use crate::support::{
    Authority, Json, News, Request, Router, Scripted, Wire, ask, config, eventually, json_answer,
};

const TOKENS: &str = "admin.tokens = [{ name = \"alice\", token = \"t-alice\", rights = \"order\" }, \
                      { name = \"board\", token = \"t-board\" }]";

fn signed(request: Request, token: &str) -> Request {
    request.header("authorization", format!("Bearer {token}"))
}

async fn order(router: &Router, token: &str, path: &str) -> u16 {
    ask(router.admin, &signed(Request::post(path, ""), token)).await.status()
}

/// Reads one value of the status of the only replica.
async fn shown(router: &Router, name: &str) -> Option<String> {
    let page = ask(router.admin, &signed(Request::get("/status"), "t-board")).await;
    let value = page.json()["pools"][0]["replicas"][0][name].clone();
    value.as_str().map(str::to_owned).or_else(|| value["by"].as_str().map(str::to_owned))
}

async fn until_shown(router: &Router, name: &str, want: &str) {
    eventually(want, async || shown(router, name).await.as_deref() == Some(want)).await;
}

/// A folder that is removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let folder = folder.join(format!("orders-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Self(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        _ = std::fs::remove_dir_all(&self.0);
    }
}

#[tokio::test]
async fn a_drain_shows_with_its_name_and_lasts_over_reload_successor_and_restart() {
    let (replica, mut requests) = Scripted::by_hand().await;
    let folder = Folder::new("last");
    let settings = format!("{TOKENS}\nsubsets.state_dir = \"{}\"", folder.0.display());
    // The port is in the names of files, so that it must be the same after a restart.
    let mut text = config(&[(&replica.url(), 1.0)], &settings);
    for _ in 0..2 {
        text = text.replacen("127.0.0.1:0", &format!("127.0.0.1:{}", free_port()), 1);
    }
    let mut router = Router::start_with(&text);
    until_shown(&router, "state", "up").await;
    let (mut client, mut exchange) = requests.begin(router.address, &Request::stream("hi")).await;
    assert_eq!(order(&router, "t-alice", &format!("/drain/{}", replica.address)).await, 200);
    until_shown(&router, "state", "draining").await;
    assert_eq!(shown(&router, "drained").await.as_deref(), Some("alice"));
    exchange.chunk("").await;
    client.body().await.unwrap();
    drop(exchange);
    until_shown(&router, "state", "drained").await;
    let metrics = ask(router.admin, &signed(Request::get("/metrics"), "t-board")).await;
    let gauge =
        format!("cleave_replica_draining{{pool=\"default\",replica=\"{}\"}} 1", replica.url());
    assert!(metrics.text().contains(&gauge), "{}", metrics.text());

    router.says("state=\"drained\"").await;
    router.write(&(text.clone() + "\n# changed\n"));
    router.says("configuration reloaded").await;
    assert_eq!(shown(&router, "state").await.as_deref(), Some("drained"));
    router.process.signal("TERM");
    router.process.ended().await;
    let log = router.process.log();
    assert!(log.contains("state=\"draining\" by=\"alice\""), "{log}");

    let router = Router::start_with(&text);
    until_shown(&router, "state", "drained").await;
    assert_eq!(shown(&router, "drained").await.as_deref(), Some("alice"));
    router.process.signal("USR2");
    router.says("successor serves").await;
    let _successor = router.successor();
    until_shown(&router, "drained", "alice").await;
    assert_eq!(order(&router, "t-alice", &format!("/undrain/{}", replica.address)).await, 200);
    until_shown(&router, "state", "up").await;
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[tokio::test]
async fn a_token_that_may_read_gives_no_orders() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start_with(&config(&[(&replica.url(), 1.0)], TOKENS));
    assert_eq!(order(&router, "t-board", "/assignment/freeze").await, 403);
    assert_eq!(order(&router, "t-nobody", "/assignment/freeze").await, 401);
    assert_eq!(order(&router, "t-alice", "/assignment/freeze").await, 200);
    for token in ["t-board", "t-alice"] {
        let page = ask(router.admin, &signed(Request::get("/status"), token)).await;
        assert_eq!(page.json()["pools"][0]["frozen"]["by"], "alice");
    }
    assert!(!router.process.log().contains("t-alice"));
}

#[tokio::test]
async fn every_order_and_reload_is_written_down_and_one_that_cannot_be_is_refused() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let folder = Folder::new("audit");
    let file = folder.0.join("audit.jsonl");
    let text =
        config(&[(&replica.url(), 1.0)], &format!("admin.audit_file = \"{}\"", file.display()));
    let router = Router::start_with(&text);
    router.until("the replica is up", |it| it.count(|it| it.state == "up") == 1).await;
    let drain = Request::post(&format!("/drain/{}", replica.address), "");
    assert_eq!(ask(router.admin, &drain).await.status(), 200);
    router.write(&(text + "\n"));
    router.says("configuration reloaded").await;
    eventually("both are written down", async || {
        std::fs::read_to_string(&file).unwrap().lines().count() == 2
    })
    .await;
    let lines = std::fs::read_to_string(&file).unwrap();
    let of = format!(
        "\"by\":\"anonymous\",\"order\":\"drain\",\"pool\":\"default\",\"of\":\"{}\"",
        replica.url()
    );
    assert!(
        lines.contains(&of) && lines.contains("\"by\":\"file\",\"order\":\"reload\""),
        "{lines}"
    );

    // A disk that is full: orders are refused, requests go on.
    let full = "admin.audit_file = \"/dev/full\"";
    let router = Router::start(&[replica.url()], full).await;
    let mut news = News::after(router.admin, 0).await;
    assert_eq!(ask(router.admin, &drain).await.status(), 503);
    let told = news.until(|it| it.state == "not_audited").await;
    assert!(told.alert && told.by.as_deref() == Some("anonymous"));
    assert_eq!(router.status().await.count(|it| it.state == "up"), 1, "it was not carried out");
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
}

/// Has the router meet a full disk, once, when it writes beside this file.
fn fill_disk(router: &Router, file: &Path) {
    let beside = file.with_extension(format!("{}.new", router.process.id()));
    std::os::unix::fs::symlink("/dev/full", beside).unwrap();
}

#[tokio::test]
async fn an_order_that_takes_one_back_is_in_force_also_with_a_full_disk_and_says_what_a_restart_does()
 {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let folder = Folder::new("back");
    let settings = format!("policy = \"priced\"\nsubsets.state_dir = \"{}\"", folder.0.display());
    let router = Router::start(&[replica.url()], &settings).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    let file = folder.0.join("orders-0-default.json");
    let mut news = News::after(router.admin, 0).await;
    let page = ask(router.admin, &Request::get("/assignment")).await.json();
    let workload = page["pools"][0]["workloads"][0]["workload"].as_str().unwrap().to_owned();
    let pin = format!("/assignment/pin/default/{workload}");
    let drain = format!("/drain/{}", replica.address);
    let undrain = format!("/undrain/{}", replica.address);
    for (give, body, take_back, mark) in [
        ("/assignment/freeze", String::new(), "/assignment/unfreeze", "/frozen"),
        (&drain, String::new(), &undrain, "/replicas/0/drained"),
        (&pin, format!("[\"{}\"]", replica.address), &pin, "/pins/0"),
    ] {
        assert_eq!(ask(router.admin, &Request::post(give, body)).await.status(), 200);
        let kept = std::fs::read(&file).unwrap();
        fill_disk(&router, &file);
        let order = Request::post(take_back, "");
        let answer = ask(router.admin, &order).await;
        assert_eq!(answer.status(), 200, "{}", answer.text());
        for part in ["not_kept: ", file.to_str().unwrap(), "is in force", "a restart brings back"] {
            assert!(answer.text().contains(part), "{part}: {}", answer.text());
        }
        let told = news.until(|it| it.state == "not_kept").await;
        assert!(told.alert, "{told:?}");
        assert!(told.detail.is_some_and(|it| it.contains(": in force until a restart: ")));
        let page = ask(router.admin, &Request::get("/status")).await.json();
        assert!(page["pools"][0].pointer(mark).is_none_or(Json::is_null), "{page}");
        assert_eq!(std::fs::read(&file).unwrap(), kept, "a restart brings it back");
        let again = ask(router.admin, &order).await;
        assert!(again.status() == 200 && !again.text().contains("restart"), "{}", again.text());
        assert_ne!(std::fs::read(&file).unwrap(), kept);
    }
}

#[tokio::test]
async fn an_order_that_a_restart_would_forget_is_refused_until_there_is_room_for_it() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let folder = Folder::new("kept");
    let audit = folder.0.join("audit.jsonl");
    let settings = format!(
        "subsets.state_dir = \"{}\"\nadmin.audit_file = \"{}\"",
        folder.0.display(),
        audit.display()
    );
    let router = Router::start(&[replica.url()], &settings).await;
    let mut news = News::after(router.admin, 0).await;
    let file = folder.0.join("orders-0-default.json");
    let drain = format!("/drain/{}", replica.address);
    for (path, mark) in [("/assignment/freeze", "/frozen"), (&drain, "/replicas/0/drained")] {
        // What is written beside the file meets a full disk, once.
        fill_disk(&router, &file);
        let kept = std::fs::read(&file).ok();
        let lines = std::fs::read_to_string(&audit).unwrap_or_default();
        let order = Request::post(path, "");
        let refused = ask(router.admin, &order).await;
        assert_eq!(refused.status(), 503);
        for part in ["not_kept: ", file.to_str().unwrap(), "not in force", "No space left", "room"]
        {
            assert!(refused.text().contains(part), "{part}: {}", refused.text());
        }
        let told = news.until(|it| it.state == "not_kept").await;
        assert!(told.alert && told.by.as_deref() == Some("anonymous"), "{told:?}");
        assert_eq!(std::fs::read(&file).ok(), kept, "what was kept before still is");
        assert_eq!(std::fs::read_to_string(&audit).unwrap_or_default(), lines);
        let page = ask(router.admin, &Request::get("/status")).await.json();
        let shown = page["pools"][0].pointer(mark);
        assert!(shown.is_some_and(Json::is_null), "it is not in force: {page}");
        assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
        assert_eq!(ask(router.admin, &order).await.status(), 200, "there is room again");
        assert_eq!(
            std::fs::read_to_string(&audit).unwrap().lines().count(),
            lines.lines().count() + 1
        );
    }
    assert_eq!(router.status().await.count(|it| it.state == "drained"), 1);

    // A folder that is none, and no folder at all.
    let settings = format!("subsets.state_dir = \"{}\"", audit.join("state").display());
    let freeze = Request::post("/assignment/freeze", "");
    for (settings, status, said) in
        [(settings.as_str(), 503, "not_kept: "), ("", 200, "a restart forgets it")]
    {
        let router = Router::start(&[replica.url()], settings).await;
        let answer = ask(router.admin, &freeze).await;
        assert_eq!(answer.status(), status);
        assert!(answer.text().contains(said), "{}", answer.text());
    }
}

#[tokio::test]
async fn the_admin_port_speaks_tls_where_it_has_a_certificate() {
    let authority = Authority::new();
    let identity = authority.sign("localhost", 4000);
    let [cert, key] = identity.files.each_ref().map(|it| it.display().to_string());
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let settings = format!("admin.tls = {{ cert = \"{cert}\", key = \"{key}\" }}");
    let router = Router::start_with(&config(&[(&replica.url(), 1.0)], &settings));
    // As curl and Prometheus offer them. The port does not speak HTTP/2, so it must not choose it.
    let offered = ["h2", "http/1.1"];
    let stream = authority.connect_offering(router.admin, &offered).await;
    let stream = stream.expect("the certificate is shown");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"http/1.1".as_slice()));
    let mut client = Wire::over(stream);
    let health = client.ask(&Request::get("/healthz")).await;
    assert_eq!((health.status(), health.text()), (200, "ok\n"));
    let mut plain = Wire::connect(router.admin).await;
    plain.send(&Request::get("/healthz").bytes()).await;
    plain.drained().await;
}

#[tokio::test]
async fn an_admin_port_beyond_loopback_without_a_token_is_an_alert() {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let text = config(&[(&replica.url(), 1.0)], "")
        .replace("admin.listen = \"127.0.0.1:0\"", "admin.listen = \"0.0.0.0:0\"");
    let router = Router::start_with(&text);
    router.says("asks for no token").await;
    assert!(router.process.log().contains("WARN"));
}
