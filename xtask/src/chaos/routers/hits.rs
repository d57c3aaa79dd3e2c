//! What of their prompts later turns of chats find cached, by the engines' own word, where every turn goes to one of several
//! routers by chance; beside one router with the same chats, replicas and draws. Several are to decide as one.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::START_MAX;
use super::scene::RouterScene;
use crate::chaos::client::AnswerSeen;

const CLIENTS: u64 = 8;
const CHATS_EACH: u64 = 6;
const TURNS: u64 = 8;
/// How far several routers may stay behind one.
const BEHIND_MAX: f64 = 0.01;

/// Parts of the prompts of later turns that were found cached.
#[derive(Debug, Serialize)]
pub(super) struct HitFigures {
    one_router: f64,
    several_routers: f64,
    later_turns: u64,
}

#[derive(Deserialize)]
struct TurnAnswer {
    usage: AnswerUsage,
}

#[derive(Deserialize)]
struct AnswerUsage {
    prompt_tokens: u64,
    prompt_tokens_details: Details,
}

#[derive(Deserialize)]
struct Details {
    cached_tokens: u64,
}

pub(super) fn compare(
    binary: &Path,
    folder: &Path,
    routers: usize,
    seed: u64,
) -> Result<HitFigures> {
    let later_turns = CLIENTS * CHATS_EACH * (TURNS - 1);
    let one_router = measure(binary, &folder.join("hits-one"), 1, seed)?;
    let several_routers = measure(binary, &folder.join("hits-several"), routers, seed)?;
    Ok(HitFigures { one_router, several_routers, later_turns })
}

fn measure(binary: &Path, folder: &Path, routers: usize, seed: u64) -> Result<f64> {
    fs::create_dir_all(folder).with_context(|| format!("create {}", folder.display()))?;
    let scene = RouterScene::start((binary, None), folder, routers, false)?;
    ensure!(scene.agree_after(START_MAX).is_some(), "the routers do not come to agree");
    let addresses: Vec<SocketAddr> = scene.routers.iter().map(|it| it.address).collect();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|number| {
            let addresses = addresses.clone();
            let rng = Pcg64Mcg::seed_from_u64(seed ^ (number << 48));
            thread::spawn(move || chat(&addresses, number, rng))
        })
        .collect();
    let (mut cached, mut asked) = (0, 0);
    for it in clients {
        let (own_cached, own_asked) = it.join().expect("a client does not panic")?;
        cached += own_cached;
        asked += own_asked;
    }
    Ok(real(cached) / real(asked))
}

/// Takes the turns of some chats in turn; returns tokens of later prompts that were cached, and all of them.
fn chat(routers: &[SocketAddr], client: u64, mut rng: Pcg64Mcg) -> Result<(u64, u64)> {
    let (mut cached, mut asked) = (0, 0);
    for turn in 0..TURNS {
        for chat in (0..CHATS_EACH).map(|it| client * CHATS_EACH + it) {
            let pause = Duration::from_millis(rng.random_range(5..50));
            // Drawn also where there is one, so that the same is asked at the same pace.
            let at = rng.random_range(0..u32::MAX);
            let router = usize::try_from(at)? % routers.len();
            thread::sleep(pause);
            let mut seen = AnswerSeen::since(Instant::now());
            let status = seen
                .exchange(routers[router], &request(chat, turn))
                .map_err(|it| it.1)
                .context("a chat is cut off")?;
            ensure!(status == 200, "a chat is answered with {status}");
            let TurnAnswer { usage } = serde_json::from_slice(&seen.body)?;
            if 0 < turn {
                cached += usage.prompt_tokens_details.cached_tokens;
                asked += usage.prompt_tokens;
            }
        }
    }
    Ok((cached, asked))
}

/// Writes a turn of a chat, which begins with all that was said before.
fn request(chat: u64, turn: u64) -> String {
    let mut text = format!("{chat:04} ").repeat(1_000);
    for turn in 0..=turn {
        text.push_str(&format!("{chat:04} {turn:04} ").repeat(100));
    }
    let body = format!(
        r#"{{"model":"m","ignore_eos":true,"max_tokens":8,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: chaos\r\nContent-Type: application/json\r\n\
         Connection: close\r\nx-session-id: hits-{chat}\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

impl HitFigures {
    pub(super) fn print(&self, routers: usize) {
        println!(
            "of the prompts of {} later turns were cached: {:.4} with one router, {:.4} with {routers}",
            self.later_turns, self.one_router, self.several_routers
        );
    }

    pub(super) fn missed(&self) -> Option<String> {
        (self.several_routers < self.one_router - BEHIND_MAX).then(|| {
            format!(
                "later turns find {:.4} cached, and {:.4} with one router",
                self.several_routers, self.one_router
            )
        })
    }
}

fn real(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}
