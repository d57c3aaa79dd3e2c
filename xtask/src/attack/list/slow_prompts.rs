//! Prompts on which an engine falls silent or writes a token now and then, while it serves all others at
//! full speed. The hang detector and the slow detector judge replicas by their streams; one client's
//! streams must not have sound replicas judged.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{bare, chat, request};
use super::super::fake::{Asked, Mouth, event, honest};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;
use crate::watch::Watch;

/// The slow detector looks at ten seconds, the hang detector at five.
const LASTS_MIN: Duration = Duration::from_secs(20);

pub(super) const SILENT: Attack = Attack {
    name: "silent_prompts",
    tries: "prompts on which sound engines never answer, eight at a time, in one session and in many",
    plan: || Plan::fakes(3, says),
    run: |scene| run(scene, "be silent"),
};

pub(super) const SLOW: Attack = Attack {
    name: "slow_prompts",
    tries: "prompts on which sound engines write a token a second, eight at a time, in one session and in many",
    plan: || Plan::fakes(3, says),
    run: |scene| run(scene, "be slow"),
};

fn says(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.says("be silent") {
        mouth.wait(Duration::from_secs(60));
        return mouth.hang_up();
    }
    if asked.says("be slow") {
        mouth.begin_stream()?;
        for _ in 0..60 {
            mouth.piece(&event("w"))?;
            mouth.wait(Duration::from_secs(1));
        }
        return mouth.end_stream();
    }
    honest(asked, mouth)
}

fn run(scene: &mut Scene, word: &str) -> Result<()> {
    use std::io::Write as _;
    let watch = Watch::start(scene.admin);
    let until = Instant::now() + scene.seconds.max(LASTS_MIN);
    let mut number = 0;
    while Instant::now() < until {
        let mut open = Vec::new();
        for at in 0..8 {
            let session = if at % 2 == 0 { 0 } else { number };
            let headers = format!("x-session-id: slow-{session}\r\n");
            let body = chat(&format!("{word} {number}"), r#","stream":true"#)
                .replace("\"max_tokens\":8", "\"max_tokens\":60");
            let mut stream = bare(scene.address)?;
            let request =
                request("POST", "/v1/chat/completions", Some(MALLORY.key), &headers, &body);
            stream.write_all(request.as_bytes())?;
            open.push(stream);
            number += 1;
        }
        thread::sleep(Duration::from_secs(10));
    }
    let out: Vec<String> = (watch.stop().into_iter().filter(|it| it.out))
        .map(|it| format!("{} ({})", it.url, it.reason.unwrap_or_default()))
        .collect();
    scene.check(out.is_empty(), || format!("sound replicas were put out: {}", out.join(", ")));
    Ok(())
}
