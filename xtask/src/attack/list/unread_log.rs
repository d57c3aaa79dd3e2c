//! A log that nothing reads: standard error is a pipe, and the pipe is full after some hundred access
//! lines. Neither requests nor the admin port may wait for it.

use std::time::Duration;

use anyhow::Result;

use super::super::Attack;
use super::super::client::{chat, post};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;
use crate::http1;

/// Far more lines than a pipe of 64 KiB holds.
const REQUESTS: usize = 1_500;

pub(super) const ATTACK: Attack = Attack {
    name: "unread_log",
    tries: "1,500 requests while standard error is a pipe that nothing reads",
    plan,
    run,
};

fn plan() -> Plan {
    let mut plan = Plan::mocks(2);
    plan.log_unread = true;
    plan
}

fn run(scene: &mut Scene) -> Result<()> {
    let mut sent = 0;
    while sent < REQUESTS {
        // An unknown model is refused by the router itself, and has its line all the same.
        let body = chat("x", "").replace("\"m\"", "\"unknown\"");
        if post(scene.address, Some(MALLORY.key), "/v1/chat/completions", "", &body).is_err() {
            break;
        }
        sent += 1;
    }
    scene.check(sent == REQUESTS, || format!("request {sent} was not answered"));
    let answers = scene.wait(Duration::from_secs(5), |it| http1::is_up(it.admin, "/healthz"));
    scene.check(answers, || "the admin port does not answer".to_owned());
    Ok(())
}
