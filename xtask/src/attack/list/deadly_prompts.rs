//! Prompts that kill an engine, where clients have no keys and all are one workload: two such
//! prompts must not stop all new sessions. Replicas that died are started again, as an orchestrator
//! does.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{chat, post};
use super::super::plan::{ALICE, MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const WITHOUT_KEYS: Attack = Attack {
    name: "deadly_prompts_without_keys",
    tries: "two prompts that kill engines, each in a new session, where all clients are one workload, and four at a router that has just started; replicas come back",
    plan: without_keys,
    run: run_without_keys,
};

pub(super) const WITH_KEYS: Attack = Attack {
    name: "deadly_prompts",
    tries: "such prompts again and again by one tenant of several",
    plan: || Plan::mocks(6).settings("resume = true\n"),
    run: |scene| {
        let lasts = scene.seconds;
        kill(scene, Some(MALLORY.key), usize::MAX, lasts)?;
        newcomers(scene, Some(ALICE.key));
        Ok(())
    },
};

fn without_keys() -> Plan {
    Plan::mocks(6).without_tenants().settings("resume = true\n")
}

/// Clients without a key cannot be told apart: what kills without end kills everything, and is not
/// promised.
fn run_without_keys(scene: &mut Scene) -> Result<()> {
    let lasts = scene.seconds;
    kill(scene, None, 2, lasts)?;
    newcomers(scene, None);
    // Nothing speaks for the workload of a router that has served nothing yet.
    let mut fresh = scene.beside(&without_keys())?;
    for number in 0..4 {
        kill_with(&mut fresh, None, number)?;
        thread::sleep(Duration::from_millis(1_500));
    }
    newcomers(&mut fresh, None);
    let misses = fresh.misses.drain(..).map(|it| format!("at a fresh router: {it}"));
    scene.misses.extend(misses);
    Ok(())
}

/// Sends `deadly` such prompts, one after the other.
fn kill(scene: &mut Scene, key: Option<&str>, deadly: usize, lasts: Duration) -> Result<()> {
    let until = Instant::now() + lasts;
    let mut number = 0;
    while Instant::now() < until {
        if number < deadly {
            kill_with(scene, key, number)?;
            number += 1;
        } else {
            thread::sleep(Duration::from_millis(500));
        }
    }
    Ok(())
}

/// Sends one deadly prompt, and starts again what it kills.
fn kill_with(scene: &mut Scene, key: Option<&str>, number: usize) -> Result<()> {
    scene.set_faults(r#"{"poison":true}"#)?;
    let body = chat(&format!("deadly {number} <|crash|>"), "");
    // It is refused, or lost with its replica.
    _ = post(scene.address, key, "/v1/chat/completions", "", &body);
    thread::sleep(Duration::from_millis(500));
    scene.revive()
}

/// Lets honest clients come for the first time after all that.
fn newcomers(scene: &mut Scene, key: Option<&str>) {
    for number in 0..4 {
        let body = chat(&format!("the first words of newcomer {number}"), "");
        let session = format!("x-session-id: newcomer-{number}\r\n");
        let answer = post(scene.address, key, "/v1/chat/completions", &session, &body);
        let code = answer.map_or_else(|it| it.kind().to_string(), |it| it.code());
        scene.check(code == "200", || format!("a newcomer got {code}"));
    }
}
