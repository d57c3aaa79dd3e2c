//! Requests at the edge of HTTP/1.1: two hosts, a client that closes its half, framing that two readers
//! could read differently, heads and trailers without end, thousands of requests in one write.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::time::Duration;

use anyhow::Result;

use super::super::Attack;
use super::super::client::{bare, chat, say_and_listen};
use super::super::fake::honest;
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;

pub(super) const ATTACK: Attack = Attack {
    name: "odd_requests",
    tries: "two Host headers, contradicting lengths, smuggled requests, endless heads and trailers, half-closed clients, 2,000 pipelined requests",
    plan: || Plan::fakes(1, honest),
    run,
};

fn run(scene: &mut Scene) -> Result<()> {
    scene.forget_asked();
    let key = MALLORY.key;
    let body = chat("x", "");
    let length = body.len();
    let start = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nauthorization: Bearer {key}\r\ncontent-type: application/json\r\n"
    );
    let smuggled = "GET /smuggled HTTP/1.1\r\nhost: router\r\n\r\n";
    let one = format!("host: router\r\ncontent-length: {length}\r\n");
    for (what, request) in [
        ("two hosts", format!("{start}host: other\r\n{one}connection: close\r\n\r\n{body}")),
        ("two hosts alike", format!("{start}host: router\r\n{one}connection: close\r\n\r\n{body}")),
        ("no host", format!("{start}content-length: {length}\r\nconnection: close\r\n\r\n{body}")),
        (
            "two lengths",
            format!("{start}{one}content-length: {}\r\n\r\n{body}{smuggled}", length + 5),
        ),
        (
            "a signed length",
            format!("{start}host: router\r\ncontent-length: +{length}\r\n\r\n{body}"),
        ),
        (
            "an obscured encoding",
            format!("{start}{one}transfer-encoding: xchunked\r\n\r\n{body}{smuggled}"),
        ),
        ("a folded header", format!("{start}{one}x: a\r\n b\r\n\r\n{body}")),
        ("a blank before the colon", format!("{start}{one}x : a\r\n\r\n{body}")),
        ("a bare line feed", format!("{start}{one}x: a\rb\r\n\r\n{body}")),
    ] {
        let heard = say_and_listen(scene.address, request.as_bytes(), Duration::from_secs(2))?;
        let heard = String::from_utf8_lossy(&heard);
        let refused = heard.is_empty() || heard.starts_with("HTTP/1.1 4");
        scene.check(refused, || format!("{what}: {}", heard.lines().next().unwrap_or_default()));
    }
    half_closed(scene, &format!("{start}{one}\r\n{body}"))?;
    let header = format!("x: {}\r\n", "y".repeat(8_000));
    let endless = format!("{start}host: router\r\n{}", header.repeat(200));
    say_and_listen(scene.address, endless.as_bytes(), Duration::from_secs(2)).ok();
    let chunk = format!(
        "{start}host: router\r\ntransfer-encoding: chunked\r\n\r\n{length:x};{}\r\n{body}\r\n0\r\n{}",
        "e".repeat(1 << 18),
        header.repeat(100)
    );
    say_and_listen(scene.address, chunk.as_bytes(), Duration::from_secs(2)).ok();
    let get =
        format!("GET /v1/models HTTP/1.1\r\nhost: router\r\nauthorization: Bearer {key}\r\n\r\n");
    say_and_listen(scene.address, get.repeat(2_000).as_bytes(), Duration::from_secs(2)).ok();
    let smuggled = scene.asked().iter().filter(|it| it.target.contains("smuggled")).count();
    scene.check(smuggled == 0, || "a smuggled request reached the engine".to_owned());
    Ok(())
}

/// Asks, closes the writing half, and expects the answer all the same.
fn half_closed(scene: &mut Scene, request: &str) -> Result<()> {
    let mut stream = bare(scene.address)?;
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    stream.write_all(request.as_bytes())?;
    stream.shutdown(Shutdown::Write)?;
    let mut heard = [0; 64];
    let count = stream.read(&mut heard).unwrap_or(0);
    let answered = heard[..count].starts_with(b"HTTP/1.1 200");
    scene.check(answered, || "a half-closed client gets no answer".to_owned());
    Ok(())
}
