//! Certificates of the router's own: operators are told before they end, and shown when.

use std::path::Path;
use std::process::Command;

use tokio::net::TcpListener;

use crate::support::{
    Authority, Etcd, Identity, News, Request, Router, Scripted, Tap, ask, config, eventually,
    json_answer,
};

/// The first second of the years 2020 and 4000.
const PAST: (i32, &str) = (2020, "1577836800");
const FUTURE: (i32, &str) = (4000, "64060588800");

/// Whether the metrics have this end of a certificate.
async fn shows(router: &Router, shown_to: &str, file: &Path, ends: &str) -> bool {
    let page = ask(router.admin, &Request::get("/metrics")).await;
    let labels = format!("{{shown_to=\"{shown_to}\",file=\"{}\"}}", file.display());
    let line = format!("cleave_certificate_expiry_timestamp_seconds{labels} {ends}\n");
    page.text().contains(&line)
}

#[tokio::test]
async fn a_certificate_that_has_ended_is_an_alert_until_it_is_renewed() {
    let authority = Authority::new();
    let [old, new, other] =
        [PAST, FUTURE, FUTURE].map(|(year, _)| authority.sign("localhost", year));
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let [cert, key, own_cert, own_key] =
        [&old.files[0], &old.files[1], &other.files[0], &other.files[1]].map(|it| it.display());
    let ca = authority.file.display();
    let settings = format!(
        "tls = {{ cert = \"{cert}\", key = \"{key}\" }}\n\
         engine_tls = {{ ca = \"{ca}\", cert = \"{own_cert}\", key = \"{own_key}\" }}"
    );
    let text = config(&[(&replica.url(), 1.0)], &settings);
    let router = Router::start_with(&text);
    let mut news = News::after(router.admin, 0).await;
    let told = news.until(|it| it.kind == "certificate").await;
    assert!(told.alert && told.state == "expired", "{told:?}");
    let detail = told.detail.expect("it says which");
    let want =
        format!("the certificate that clients are shown ({cert}) ended at 2020-01-01T00:00:00Z, ");
    assert!(detail.starts_with(&want) && detail.ends_with(" days ago"), "{detail}");
    assert!(!router.process.log().contains("engines are shown"), "that one holds");
    assert!(shows(&router, "clients", &old.files[0], PAST.1).await);
    assert!(shows(&router, "engines", &other.files[0], FUTURE.1).await);

    let file = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("certificates-{}.toml", std::process::id()));
    std::fs::write(&file, &text).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_cleave"));
    let output = check.arg("check-config").arg("--config").arg(&file).output().unwrap();
    std::fs::remove_file(&file).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "it is sound all the same");
    assert!(said.contains(&format!("\nwarning: {want}")), "{said}");
    let holds = format!("\nthe certificate that engines are shown ({own_cert}) ends at 4000-01-01");
    assert!(said.contains(&holds), "{said}");

    renew(&old, &new);
    eventually("the new end is shown", async || {
        shows(&router, "clients", &old.files[0], FUTURE.1).await
    })
    .await;
}

/// Puts renewed files in the place of those that ended.
fn renew(old: &Identity, new: &Identity) {
    for (from, to) in new.files.iter().zip(&old.files) {
        std::fs::rename(from, to).unwrap();
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_a_collector_without_a_restart() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let [strange, known] = [other.sign("router", FUTURE.0), authority.sign("router", FUTURE.0)];
    // Whatever it is sent shows that it took the certificate.
    let collector = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = authority.server(&authority.sign("localhost", FUTURE.0), true);
    let tap = Tap::under_tls(collector.local_addr().unwrap(), server).await;
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let settings = format!(
        "traces.endpoint = \"https://localhost:{}\"\ntraces.interval = \"20ms\"\n\
         traces.timeout = \"1s\"\ntraces.sample = 1.0\n\
         traces.tls = {{ ca = \"{}\", cert = \"{}\", key = \"{}\" }}",
        tap.address.port(),
        authority.file.display(),
        strange.files[0].display(),
        strange.files[1].display()
    );
    let router = Router::start(&[replica.url()], &settings).await;
    assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
    router.says("traces are not taken").await;
    assert_eq!(tap.forth(), "");
    renew(&strange, &known);
    eventually("the collector is sent spans", async || {
        assert_eq!(router.ask(&Request::chat("hi")).await.status(), 200);
        tap.forth().contains("POST /v1/traces")
    })
    .await;
}

#[tokio::test]
async fn a_renewed_certificate_is_shown_to_the_store_without_a_restart() {
    let [authority, other] = [Authority::new(), Authority::new()];
    let [strange, known, server] = [
        other.sign("router", FUTURE.0),
        authority.sign("router", FUTURE.0),
        authority.sign("localhost", FUTURE.0),
    ];
    let ca = authority.file.display().to_string();
    let [cert, key] = server.files.each_ref().map(|it| it.display().to_string());
    let etcd = Etcd::start_with(
        ["--cert-file", &cert, "--key-file", &key, "--trusted-ca-file", &ca, "--client-cert-auth"]
            .map(str::to_owned)
            .to_vec(),
    )
    .await;
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let settings = format!(
        "cluster.listen = \"127.0.0.1:0\"\ncluster.store = \"etcd\"\n\
         cluster.etcd.endpoints = [\"https://localhost:{}\"]\n\
         cluster.etcd.tls = {{ ca = \"{ca}\", cert = \"{}\", key = \"{}\" }}",
        etcd.address.port(),
        strange.files[0].display(),
        strange.files[1].display()
    );
    let router = Router::start_with(&config(&[(&replica.url(), 1.0)], &settings));
    let page = async || ask(router.admin, &Request::get("/routers")).await.json();
    eventually("the store refuses it", async || page().await["store"]["trouble"].is_string()).await;
    assert_ne!(page().await["leader_by"], "store");
    renew(&strange, &known);
    eventually("the store says who leads", async || page().await["leader_by"] == "store").await;
}
