//! Retries are paid from a budget. One tenant's requests that always fail spend it; another tenant's
//! request that meets a bad connection must be tried elsewhere all the same.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{chat, post};
use super::super::fake::{Asked, Mouth, honest};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const ATTACK: Attack = Attack {
    name: "spent_retries",
    tries: "prompts that are answered with 500 by every engine, until no retries are left for others, one of whose requests in thirty meets a 503",
    plan: || Plan::fakes(3, says),
    run,
};

static TURN: AtomicUsize = AtomicUsize::new(0);

fn says(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.says("answer 500") {
        return mouth.json(500, r#"{"error":{"message":"CUDA error","type":"x","code":500}}"#);
    }
    // Engines are busy now and then, and another one is not.
    if asked.says("bystander") && TURN.fetch_add(1, Relaxed).is_multiple_of(30) {
        return mouth.json(503, r#"{"error":{"message":"busy","type":"x","code":503}}"#);
    }
    honest(asked, mouth)
}

fn run(scene: &mut Scene) -> Result<()> {
    let until = Instant::now() + scene.seconds;
    let address = scene.address;
    thread::scope(|scope| {
        for number in 0..4 {
            scope.spawn(move || {
                let mut turn = 0;
                while Instant::now() < until {
                    let body = chat(&format!("answer 500 {number} {turn}"), "");
                    _ = post(address, Some(MALLORY.key), "/v1/chat/completions", "", &body);
                    turn += 1;
                    thread::sleep(Duration::from_millis(5));
                }
            });
        }
    });
    Ok(())
}
