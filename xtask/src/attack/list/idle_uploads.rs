//! Bodies that are announced and do not come: of known length, in chunks, as HTTP/2 streams, and
//! bodies whose last byte is withheld. Two tenants do it at once; where there are no tenants, clients of
//! eight other addresses.

use std::io::{self, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{bare_from, chat, post};
use super::super::frames::{DATA, Http2, frame};
use super::super::plan::{ALICE, EVE, MALLORY, Plan};
use super::super::scene::Scene;

/// The largest body that is allowed.
const LENGTH: usize = 33_554_432;
/// What bodies may hold together, by default.
const BUFFERED_MIB_MAX: u64 = 256;
/// Connections whose bodies hardly come.
const IDLE: usize = 24;

pub(super) const ATTACK: Attack = Attack {
    name: "idle_uploads",
    tries: "24 bodies of 32 MiB announced, of which a byte comes now and then; 8 of which all but the last byte has come; the same over HTTP/2",
    plan: || Plan::mocks(2).holds(BUFFERED_MIB_MAX),
    run: |scene| run(scene, true),
};

pub(super) const WITHOUT_KEYS: Attack = Attack {
    name: "idle_uploads_without_keys",
    tries: "the same where clients have no keys, from eight other addresses",
    plan: || Plan::mocks(2).without_tenants().holds(BUFFERED_MIB_MAX),
    run: |scene| run(scene, false),
};

fn run(scene: &mut Scene, has_keys: bool) -> Result<()> {
    let mut open = Vec::new();
    for number in 0..IDLE {
        let framing = if number % 3 == 2 {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {LENGTH}")
        };
        open.push(begin(scene, number, has_keys, &framing)?);
    }
    let mut http2 = Http2::open(scene.address, &[])?;
    let bearer = format!("Bearer {}", MALLORY.key);
    let length = LENGTH.to_string();
    let headers = [
        ("content-type", "application/json"),
        ("authorization", bearer.as_str()),
        ("content-length", length.as_str()),
    ];
    let streams: Vec<u32> = (0..16)
        .map(|_| http2.begin("POST", "/v1/chat/completions", &headers, false))
        .collect::<Result<_, _>>()?;
    let hoard = hoard(scene, has_keys)?;
    let until = Instant::now() + scene.seconds;
    while Instant::now() < until {
        for stream in &mut open {
            // The router may have closed it, which is an answer.
            _ = stream.write_all(b"x");
        }
        for stream in &streams {
            _ = http2.write(&frame(DATA, 0, *stream, b"x"));
        }
        honest(scene, has_keys);
        thread::sleep(Duration::from_millis(500));
    }
    drop(hoard);
    Ok(())
}

/// Sends the head of a request whose body is to come.
fn begin(scene: &Scene, number: usize, has_keys: bool, framing: &str) -> io::Result<TcpStream> {
    // Where clients have no keys they are known by their addresses.
    let last = if has_keys { 1 } else { u8::try_from(number % 8).unwrap_or(0) + 2 };
    let mut stream = bare_from(Ipv4Addr::new(127, 0, 0, last), scene.address)?;
    let key = [MALLORY, EVE][number % 2].key;
    let key = if has_keys { format!("authorization: Bearer {key}\r\n") } else { String::new() };
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\n{key}content-type: application/json\r\n{framing}\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    Ok(stream)
}

/// Fills what bodies may hold together, and keeps back the last byte of each.
fn hoard(scene: &Scene, has_keys: bool) -> Result<Vec<TcpStream>> {
    let mut open = Vec::new();
    let block = vec![b' '; 1 << 20];
    for number in 0..8 {
        let framing = format!("content-length: {LENGTH}");
        let mut stream = begin(scene, 2 * number, has_keys, &framing)?;
        stream.set_write_timeout(Some(Duration::from_secs(1)))?;
        // A router that takes no more of it is right.
        _ = (0..31).try_for_each(|_| stream.write_all(&block));
        open.push(stream);
    }
    Ok(open)
}

/// Sends an honest prompt of some length, which must be served at once.
fn honest(scene: &mut Scene, has_keys: bool) {
    let body = chat(&"an honest prompt of some length ".repeat(4_000), "");
    let began = Instant::now();
    let key = has_keys.then_some(ALICE.key);
    let answer = post(scene.address, key, "/v1/chat/completions", "", &body);
    let took = began.elapsed();
    let code = answer.map_or_else(|it| it.kind().to_string(), |it| it.code());
    scene.check(code == "200", || format!("an honest POST of 128 kB got {code}"));
    scene.check(took < Duration::from_secs(3), || format!("an honest POST took {took:.1?}"));
}
