//! The live view, as a script reads it.

use std::process::Command;

use crate::support::{Mock, Router};

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
async fn a_router_that_is_not_there_is_an_error_that_says_so() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cleave"));
    command.args(["top", "--once", "--admin", "http://127.0.0.1:1"]);
    let shown = command.output().unwrap();
    assert!(!shown.status.success());
    let said = String::from_utf8_lossy(&shown.stderr).into_owned();
    assert!(said.contains("cannot read http://127.0.0.1:1/status"), "{said}");
}
