//! The live view, as a script reads it.

use std::process::Command;

use crate::support::{Authority, Mock, Request, Router, Scripted, config, eventually, json_answer};

#[tokio::test]
async fn one_picture_shows_every_replica_and_its_state() {
    let mock = Mock::start(&["--speed", "inf"]);
    let router = Router::start(&[mock.url()], "").await;
    // The scheme may be left out.
    let admin = router.admin.to_string();
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(["top", "--once", "--admin", &admin]);
    let shown = command.output().unwrap();
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let row = text.lines().find(|it| it.starts_with(&mock.address.to_string()));
    assert!(row.is_some_and(|it| it.contains(" up ")), "{text}");
    assert!(text.starts_with("cleave ") && !text.contains('\u{1b}'), "{text}");
}

#[tokio::test]
async fn an_admin_port_under_tls_is_watched_and_asked_with_its_ca() {
    let authority = Authority::new();
    let identity = authority.sign("localhost", 4000);
    let [cert, key] = identity.files.each_ref().map(|it| it.display().to_string());
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let tls = format!("admin.tls.cert = \"{cert}\"\nadmin.tls.key = \"{key}\"\nexplain.sample = 1");
    let router = Router::start_with(&config(&[(&replica.url(), 1.0)], &tls));
    let ca = authority.file.display().to_string();
    let admin = format!("https://localhost:{}", router.admin.port());
    let run = |command: &str, more: &[&str]| {
        let mut cleave = Command::new(env!("CARGO_BIN_EXE_cleave"));
        let output = cleave.arg(command).args(["--admin", &admin]).args(more).output().unwrap();
        let said = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
        (output.status.success(), said.concat())
    };
    let is_up = async || run("top", &["--once", "--ca", &ca]).1.contains(" up ");
    eventually("the replica is up", is_up).await;
    let request = Request::chat("hi").header("x-request-id", "over-tls");
    assert_eq!(router.ask(&request).await.status(), 200);
    let (found, said) = run("explain", &["--ca", &ca]);
    assert!(found && said.contains("over-tls"), "{said}");
    assert!(run("assignment", &["--ca", &ca]).0);
    let (found, said) = run("explain", &[]);
    assert!(!found && !said.contains("over-tls"), "another CA signs it: {said}");
}

#[tokio::test]
async fn a_router_that_is_not_there_is_an_error_that_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(["top", "--once", "--admin", "http://127.0.0.1:1"]);
    let shown = command.output().unwrap();
    assert!(!shown.status.success());
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(said.contains("cannot read http://127.0.0.1:1/status"), "{said}");
}
