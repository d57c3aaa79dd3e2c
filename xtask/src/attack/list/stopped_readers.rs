//! Clients that ask for long answers and stop reading them: HTTP/2 streams whose window never opens,
//! and sockets whose buffers are full. What they hold must count against them alone, and not for ever.

use std::io::{self, Read as _, Write as _};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::client::{bare, chat, request};
use super::super::fake::{Asked, Mouth, event, honest};
use super::super::frames::{Http2, INITIAL_WINDOW_SIZE};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;
use super::super::{Attack, vitals};

/// Requests of each kind; with prompts of 14,000 tokens they fill the engines' memory.
const EACH: usize = 26;

pub(super) const ATTACK: Attack = Attack {
    name: "stopped_readers",
    tries: "104 requests of 14,000 tokens whose answers are not read: HTTP/2 windows of 0, one and many to a connection, full sockets, and a byte a second",
    plan,
    run,
};

fn plan() -> Plan {
    Plan::fakes(2, says)
}

/// An engine that writes on and on where it is asked for much.
fn says(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    if !asked.says("endless") {
        return honest(asked, mouth);
    }
    mouth.begin_stream()?;
    let piece = event(&"w".repeat(4_000));
    while !mouth.is_over() {
        mouth.piece(&piece)?;
        thread::sleep(Duration::from_millis(1));
    }
    mouth.hang_up()
}

fn run(scene: &mut Scene) -> Result<()> {
    let prompt = "endless words for the prompt ".repeat(2_000);
    let body =
        chat(&prompt, r#","stream":true"#).replace("\"max_tokens\":8", "\"max_tokens\":4000");
    let short =
        chat("endless", r#","stream":true"#).replace("\"max_tokens\":8", "\"max_tokens\":4000");
    let bearer = format!("Bearer {}", MALLORY.key);
    let headers = [("authorization", bearer.as_str())];
    let mut windows = Vec::new();
    for _ in 0..EACH {
        let mut http2 = Http2::open(scene.address, &[(INITIAL_WINDOW_SIZE, 0)])?;
        http2.post("/v1/chat/completions", &headers, &body)?;
        windows.push(http2);
    }
    // A window may be small enough that one stream's body fits, so these come in turn.
    let mut shared = Http2::open(scene.address, &[(INITIAL_WINDOW_SIZE, 0)])?;
    for _ in 0..EACH {
        shared.post("/v1/chat/completions", &headers, &short)?;
    }
    let request = request("POST", "/v1/chat/completions", Some(MALLORY.key), "", &body);
    let mut sockets: Vec<TcpStream> = Vec::new();
    for _ in 0..2 * EACH {
        let mut stream = bare(scene.address)?;
        stream.write_all(request.as_bytes())?;
        sockets.push(stream);
    }
    let dripping: Vec<TcpStream> = sockets.drain(EACH..).collect();
    let began = Instant::now();
    thread::sleep(scene.seconds);
    let left = settled_after(scene, dripping, Duration::from_secs(60));
    scene.check(left == 0, || {
        let held = began.elapsed().as_secs();
        format!("{left} requests are still in flight after {held} s without a byte read")
    });
    drop((windows, shared, sockets));
    Ok(())
}

/// Waits until the attacker has nothing in flight, and returns what it still has. Meanwhile a byte is
/// taken of some answers now and then.
fn settled_after(scene: &Scene, mut dripping: Vec<TcpStream>, limit: Duration) -> u64 {
    let mut left = u64::MAX;
    let mut taken = Instant::now();
    scene.wait(limit, |it| {
        if Duration::from_secs(1) < taken.elapsed() {
            taken = Instant::now();
            dripping.retain_mut(|it| it.read(&mut [0; 1]).is_ok_and(|it| 0 < it));
        }
        left = in_flight(it).unwrap_or(u64::MAX);
        left == 0
    });
    left
}

fn in_flight(scene: &Scene) -> Option<u64> {
    let page = vitals::page(scene.admin, "/tenants").ok()?;
    let tenants = page["pools"][0]["tenants"].as_array()?;
    let own = tenants.iter().find(|it| it["name"] == MALLORY.name)?;
    Some(own["in_flight"].as_u64().unwrap_or(0) + own["waiting"].as_u64().unwrap_or(0))
}
