//! Prompts that kill an engine, where clients have no keys and all are one workload: two such prompts
//! must not stop everybody's new sessions. Replicas that died are started again, as an orchestrator does.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{chat, post};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const WITHOUT_KEYS: Attack = Attack {
    name: "deadly_prompts_without_keys",
    tries: "two prompts that kill engines, each in a new session, where all clients are one workload; replicas come back",
    plan: || Plan::mocks(6).without_tenants().settings("resume = true\n"),
    // Who has no key cannot be told apart: what kills without end kills everything, and is not promised.
    run: |scene| run(scene, None, 2),
};

pub(super) const WITH_KEYS: Attack = Attack {
    name: "deadly_prompts",
    tries: "such prompts again and again by one tenant of several",
    plan: || Plan::mocks(6).settings("resume = true\n"),
    run: |scene| run(scene, Some(MALLORY.key), usize::MAX),
};

fn run(scene: &mut Scene, key: Option<&str>, deadly: usize) -> Result<()> {
    scene.set_faults(r#"{"poison":true}"#)?;
    let until = Instant::now() + scene.seconds;
    let mut number = 0;
    while Instant::now() < until {
        if number < deadly {
            let body = chat(&format!("deadly {number} <|crash|>"), "");
            // It is refused, or lost with its replica.
            _ = post(scene.address, key, "/v1/chat/completions", "", &body);
            number += 1;
        }
        thread::sleep(Duration::from_millis(500));
        scene.revive()?;
        scene.set_faults(r#"{"poison":true}"#)?;
    }
    // An honest client that comes for the first time after all that.
    for number in 0..4 {
        let body = chat(&format!("the first words of newcomer {number}"), "");
        let session = format!("x-session-id: newcomer-{number}\r\n");
        let answer =
            post(scene.address, key.map(|_| "alice-key"), "/v1/chat/completions", &session, &body)?;
        let code = answer.code();
        scene.check(answer.status() == 200, || format!("a newcomer got {code}"));
    }
    Ok(())
}
