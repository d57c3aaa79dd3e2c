//! Bodies that are announced and do not come: of known length, in chunks, as HTTP/2 streams, and
//! bodies whose last byte is withheld. Two tenants do it at once.

use std::io::Write as _;
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::Attack;
use super::super::client::{bare, chat, post};
use super::super::frames::{DATA, Http2, frame};
use super::super::plan::{ALICE, EVE, MALLORY, Plan};
use super::super::scene::Scene;

/// The largest body that is allowed.
const LENGTH: usize = 33_554_432;

pub(super) const ATTACK: Attack = Attack {
    name: "idle_uploads",
    tries: "24 bodies of 32 MiB announced, of which a byte comes now and then; 8 of which all but the last byte has come; the same over HTTP/2",
    plan: || Plan::mocks(2),
    run,
};

fn run(scene: &mut Scene) -> Result<()> {
    let mut open: Vec<TcpStream> = Vec::new();
    for number in 0..24 {
        let key = [MALLORY, EVE][number % 2].key;
        let mut stream = bare(scene.address)?;
        let framing = if number % 3 == 2 {
            "transfer-encoding: chunked".to_owned()
        } else {
            format!("content-length: {LENGTH}")
        };
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n{framing}\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        open.push(stream);
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
    let hoard = hoard(scene)?;
    let until = Instant::now() + scene.seconds;
    let body = chat(&"an honest prompt of some length ".repeat(4_000), "");
    while Instant::now() < until {
        for stream in &mut open {
            // The router may have closed it, which is an answer.
            _ = stream.write_all(b"x");
        }
        for stream in &streams {
            _ = http2.write(&frame(DATA, 0, *stream, b"x"));
        }
        let began = Instant::now();
        let answer = post(scene.address, Some(ALICE.key), "/v1/chat/completions", "", &body);
        let took = began.elapsed();
        let code = answer.map_or_else(|it| it.kind().to_string(), |it| it.code());
        scene.check(code == "200", || format!("an honest POST of 128 kB got {code}"));
        scene.check(took < Duration::from_secs(3), || format!("an honest POST took {took:.1?}"));
        thread::sleep(Duration::from_millis(500));
    }
    drop(hoard);
    Ok(())
}

/// Fills what bodies may hold together, and keeps back the last byte of each.
fn hoard(scene: &Scene) -> Result<Vec<TcpStream>> {
    let mut open = Vec::new();
    let block = vec![b' '; 1 << 20];
    for _ in 0..8 {
        let mut stream = bare(scene.address)?;
        stream.set_write_timeout(Some(Duration::from_secs(1)))?;
        let key = MALLORY.key;
        let head = format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: router\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\ncontent-length: {LENGTH}\r\n\r\n"
        );
        stream.write_all(head.as_bytes())?;
        for _ in 0..31 {
            // A router that takes no more of it is right.
            if stream.write_all(&block).is_err() {
                break;
            }
        }
        open.push(stream);
    }
    Ok(open)
}
