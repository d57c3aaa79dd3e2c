//! Ever new names: sessions, request ids, models, classes, keys, prompts. Whatever is remembered of them
//! must be bounded, and forgetting must not cost the others anything.

use std::io::Write as _;
use std::thread;
use std::time::Instant;

use anyhow::Result;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::super::Attack;
use super::super::client::{bare, chat, post, request};
use super::super::fake::honest;
use super::super::frames::{END_HEADERS, HEADERS, Http2, frame, write_header};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;
use super::super::vitals::Held;

/// What the router may need beyond what it has, at any time.
const RESIDENT_KIB_MAX: u64 = 256 * 1024;
/// What the heads of one tenant may take, with what is beside them.
const HELD_MIB: u64 = 192;

pub(super) const ATTACK: Attack = Attack {
    name: "many_names",
    tries: "ever new sessions, models, classes, keys and prompts, as fast as four threads can",
    plan: || Plan::fakes(2, honest),
    run: names,
};

pub(super) const STREAMS: Attack = Attack {
    name: "many_streams",
    tries: "64 HTTP/2 connections with as many streams as they may have, each with a head of 12 KB and no body",
    plan: || Plan::fakes(2, honest).holds(HELD_MIB),
    run: streams,
};

fn names(scene: &mut Scene) -> Result<()> {
    let before = Held::of(scene.pid)?.resident_kib;
    let until = Instant::now() + scene.seconds;
    let address = scene.address;
    let seeds: [u64; 4] = std::array::from_fn(|_| scene.rng.random());
    thread::scope(|scope| {
        for seed in seeds {
            scope.spawn(move || {
                let mut rng = Pcg64Mcg::seed_from_u64(seed);
                while Instant::now() < until {
                    let name: u64 = rng.random();
                    let headers = format!(
                        "x-session-id: {name:x}\r\nx-request-id: {name:x}\r\nx-workload: {name:x}\r\n"
                    );
                    let words = format!("{name:x} ").repeat(400);
                    let mut body = chat(&words, &format!(r#","user":"{name:x}""#));
                    let mut key = MALLORY.key.to_owned();
                    match rng.random_range(0..4_u32) {
                        0 => body = body.replace("\"m\"", &format!("\"{name:x}\"")),
                        1 => key = format!("{name:x}"),
                        _ => {}
                    }
                    _ = post(address, Some(&key), "/v1/chat/completions", &headers, &body);
                }
            });
        }
    });
    grown(scene, before)
}

fn streams(scene: &mut Scene) -> Result<()> {
    let before = Held::of(scene.pid)?.resident_kib;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut http2 = Http2::open(scene.address, &[])?;
        for number in 0..200_u32 {
            let mut block = Vec::new();
            for (name, value) in [
                (":method", "POST"),
                (":scheme", "http"),
                (":path", "/v1/chat/completions"),
                (":authority", "router"),
                ("content-type", "application/json"),
                ("authorization", "Bearer mallory-key"),
                ("x-long", &"y".repeat(12_000)),
            ] {
                write_header(&mut block, name, value);
            }
            // The router may refuse more streams, or the whole connection.
            if http2.write(&frame(HEADERS, END_HEADERS, 2 * number + 1, &block)).is_err() {
                break;
            }
        }
        open.push(http2);
    }
    let idle = request("POST", "/v1/chat/completions", Some(MALLORY.key), "", "");
    let mut bare = bare(scene.address)?;
    bare.write_all(idle.trim_end().as_bytes())?;
    thread::sleep(scene.seconds);
    grown(scene, before)
}

/// Checks what the router needs now.
fn grown(scene: &mut Scene, before: u64) -> Result<()> {
    let now = Held::of(scene.pid)?.resident_kib;
    scene.check(now < before + RESIDENT_KIB_MAX, || format!("{} MiB resident", now / 1024));
    Ok(())
}
