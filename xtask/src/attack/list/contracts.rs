//! Ways to use what was not paid for, and to ruin a contract: requests cancelled before their first
//! byte, text without blanks, a usage of nothing that an engine echoes, and one absurd usage.

use std::io::{self, Write as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{bare, chat, post, request};
use super::super::fake::{Asked, Mouth, honest, responses};
use super::super::plan::{ALICE, BOB, MALLORY, Plan};
use super::super::scene::Scene;

const CONTRACT: &str = "contract = { tokens_per_min = 100000000, requests_per_min = 1000000 }";

pub(super) const CANCELLED: Attack = Attack {
    name: "cancelled_requests",
    tries: "requests for 4,000 tokens in one piece, 16 at a time, cancelled after two seconds",
    plan: || Plan::mocks(2).attackers(CONTRACT),
    run: cancelled,
};

pub(super) const WITHOUT_BLANKS: Attack = Attack {
    name: "text_without_blanks",
    tries: "prompts of 160 kB without a blank, one long word or base64, streamed without usage",
    plan: || Plan::mocks(2).attackers(CONTRACT),
    run: without_blanks,
};

pub(super) const ECHOED_NOTHING: Attack = Attack {
    name: "usage_of_nothing",
    tries: "metadata that says that nothing was used, echoed after the usage",
    plan: || Plan::fakes(2, echoes).attackers(CONTRACT),
    run: echoed_nothing,
};

pub(super) const ABSURD: Attack = Attack {
    name: "absurd_usage",
    tries: "a usage of 4,294,967,295 tokens, reported by an engine or placed by a client",
    plan: || Plan::fakes(2, echoes).attackers(CONTRACT),
    run: absurd,
};

fn cancelled(scene: &mut Scene) -> Result<()> {
    const GENERATED: &str = "vllm:generation_tokens_total";
    let before = (scene.engines_counted(GENERATED)?, scene.charged(MALLORY.name)?.0);
    let asked_before = bystanders_asked(scene)?;
    let until = Instant::now() + scene.seconds;
    while Instant::now() < until {
        let mut open = Vec::new();
        for _ in 0..16 {
            let body = chat("write a long story", r#","ignore_eos":true"#)
                .replace("\"max_tokens\":8", "\"max_tokens\":4000");
            let mut stream = bare(scene.address)?;
            let request = request("POST", "/v1/chat/completions", Some(MALLORY.key), "", &body);
            stream.write_all(request.as_bytes())?;
            open.push(stream);
        }
        thread::sleep(Duration::from_secs(2));
    }
    thread::sleep(Duration::from_secs(1));
    let others = (bystanders_asked(scene)? - asked_before) * 8;
    let generated = (scene.engines_counted(GENERATED)? - before.0).saturating_sub(others);
    let charged = scene.charged(MALLORY.name)?.0 - before.1;
    scene.check(1_000 < generated, || format!("the engines wrote only {generated} tokens"));
    // What was written until the client left is predicted, not counted; a half leaves room.
    scene.check(generated / 2 <= charged, || {
        format!("{generated} tokens were written for cancelled requests, {charged} charged")
    });
    Ok(())
}

/// Counts the requests of bystanders, which ask for eight tokens each.
fn bystanders_asked(scene: &Scene) -> Result<u64> {
    Ok(scene.charged(ALICE.name)?.1 + scene.charged(BOB.name)?.1)
}

fn without_blanks(scene: &mut Scene) -> Result<()> {
    let charged_before = scene.charged(MALLORY.name)?.0;
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = 0;
    for number in 0..4_usize {
        let word: String =
            (0..160_000_usize)
                .map(|at| {
                    if number % 2 == 0 { 'w' } else { char::from(alphabet[(at * 7 + number) % 64]) }
                })
                .collect();
        let prompt = match number % 4 {
            0 | 1 => word,
            // The forms in which clients attach things, with text inside.
            2 => format!("data:image/png;base64,{word}"),
            _ => word.chars().map(|it| if it == '+' { '_' } else { it }).collect(),
        };
        bytes += prompt.len();
        let body = chat(&format!("{number}{prompt}"), r#","stream":true"#);
        let answer = post(scene.address, Some(MALLORY.key), "/v1/chat/completions", "", &body)?;
        let code = answer.code();
        scene.check(answer.status() == 200, || format!("a long word was answered with {code}"));
    }
    let charged = scene.charged(MALLORY.name)?.0 - charged_before;
    // A mock replica's token is four bytes; a half leaves room for a cautious ratio.
    let fair = u64::try_from(bytes / 4 / 2).unwrap_or(u64::MAX);
    scene.check(fair <= charged, || {
        format!("{bytes} bytes of text were read as {} tokens, {charged} charged", bytes / 4)
    });
    Ok(())
}

/// An engine that echoes what the client wrote after its own usage, or is absurd itself.
fn echoes(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if asked.says("absurd engine") {
        return mouth.json(200, r#"{"id":"c1","choices":[{"message":{"content":"w"}}],"usage":{"prompt_tokens":4294967295,"completion_tokens":4294967295,"total_tokens":8589934590}}"#);
    }
    if asked.decoded_path() != "/v1/responses" {
        return honest(asked, mouth);
    }
    let body: serde_json::Value = serde_json::from_slice(&asked.body).unwrap_or_default();
    mouth.json(200, &responses(asked, &body["metadata"].to_string()))
}

fn ask_with(scene: &Scene, usage: &str, prompt: &str) -> Result<()> {
    let metadata = format!(r#"{{"usage":{usage}}}"#);
    let body = format!(r#"{{"model":"m","input":"{prompt}","metadata":{metadata}}}"#);
    post(scene.address, Some(MALLORY.key), "/v1/responses", "", &body)?;
    Ok(())
}

fn echoed_nothing(scene: &mut Scene) -> Result<()> {
    let charged_before = scene.charged(MALLORY.name)?.0;
    let prompt = "words that were read ".repeat(400);
    let nothing = r#"{"input_tokens":0,"output_tokens":0,"total_tokens":0}"#;
    for _ in 0..50 {
        ask_with(scene, nothing, &prompt)?;
    }
    let charged = scene.charged(MALLORY.name)?.0 - charged_before;
    let fair = 50 * u64::try_from(prompt.len() / 4 / 2).unwrap_or(u64::MAX);
    scene.check(fair <= charged, || format!("{charged} tokens charged, {fair} would be fair"));
    Ok(())
}

fn absurd(scene: &mut Scene) -> Result<()> {
    let charged_before = scene.charged(MALLORY.name)?.0;
    let huge =
        r#"{"input_tokens":4294967295,"output_tokens":4294967295,"total_tokens":8589934590}"#;
    for _ in 0..5 {
        ask_with(scene, huge, "short")?;
        let body = chat("absurd engine", "");
        post(scene.address, Some(MALLORY.key), "/v1/chat/completions", "", &body)?;
    }
    let charged = scene.charged(MALLORY.name)?.0 - charged_before;
    // Ten short prompts and answers of a few tokens, in a model that reads 131,072.
    scene.check(charged < 10 * 140_000, || {
        format!("{charged} tokens charged for ten short requests")
    });
    let answer =
        post(scene.address, Some(MALLORY.key), "/v1/chat/completions", "", &chat("x", ""))?;
    let code = answer.code();
    scene.check(answer.status() == 200, || format!("the contract is ruined: {code}"));
    Ok(())
}
