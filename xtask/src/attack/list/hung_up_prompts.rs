//! Prompts on which an engine hangs up, answers 500, or stops in the middle: an engine's bug that one
//! client can reach. The replicas are sound for all others, so none of them may be put out.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{chat, post};
use super::super::fake::{Asked, Mouth, event, honest};
use super::super::plan::{EVE, MALLORY, Plan};
use super::super::scene::Scene;
use crate::watch::Watch;

pub(super) const ATTACK: Attack = Attack {
    name: "hung_up_prompts",
    tries: "prompts on which sound engines hang up, break off, answer 500 or send garbage, by two tenants, in new sessions",
    plan: || Plan::fakes(3, says),
    run,
};

fn says(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.says("bystander") {
        return honest(asked, mouth);
    }
    if asked.says("hang up at once") {
        return mouth.hang_up();
    }
    if asked.says("hang up later") {
        mouth.begin_stream()?;
        mouth.piece(&event("w"))?;
        return mouth.hang_up();
    }
    if asked.says("answer 500") {
        return mouth.json(500, r#"{"error":{"message":"CUDA error","type":"x","code":500}}"#);
    }
    if asked.says("say garbage") {
        return mouth.raw(b"\xff\xfe\x00 not HTTP at all\r\n\r\n").and_then(|()| mouth.hang_up());
    }
    honest(asked, mouth)
}

fn run(scene: &mut Scene) -> Result<()> {
    let watch = Watch::start(scene.admin);
    let until = Instant::now() + scene.seconds;
    let address = scene.address;
    thread::scope(|scope| {
        for (number, tenant) in [MALLORY, EVE].iter().cycle().take(4).enumerate() {
            scope.spawn(move || {
                let deeds = ["hang up at once", "hang up later", "answer 500", "say garbage"];
                let mut turn = number;
                while Instant::now() < until {
                    let prompt = format!("{} {number} {turn}", deeds[turn % deeds.len()]);
                    let stream = if turn % 3 == 0 { "" } else { r#","stream":true"# };
                    let body = chat(&prompt, stream);
                    _ = post(address, Some(tenant.key), "/v1/chat/completions", "", &body);
                    turn += 1;
                    thread::sleep(Duration::from_millis(20));
                }
            });
        }
    });
    let out: Vec<String> = (watch.stop().into_iter().filter(|it| it.out))
        .map(|it| format!("{} ({})", it.url, it.reason.unwrap_or_default()))
        .collect();
    let every = scene.fakes.len();
    scene.check(out.len() < every, || format!("sound replicas were put out: {}", out.join(", ")));
    Ok(())
}
