//! HTTP/2 frames without end that cost the sender nothing. A connection that does so must be closed, or
//! at least cost the router little.

use std::io::{self, Read as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::super::client::chat;
use super::super::frames::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, HEADERS, Http2, PING, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, frame, write_header,
};
use super::super::plan::{MALLORY, Plan};
use super::super::scene::Scene;
use super::super::{Attack, vitals};

/// A connection that goes on for longer than this costs more than a moment.
const CLOSED_AFTER_MAX: Duration = Duration::from_secs(3);
/// Or it may stay, if it costs no more of a core than this.
const CORES_MAX: f64 = 0.3;

macro_rules! flood {
    ($name:ident, $text:literal, $tries:literal, $frames:expr) => {
        pub(super) const $name: Attack = Attack {
            name: $text,
            tries: $tries,
            plan: || Plan::mocks(2),
            run: |scene| flood(scene, $frames),
        };
    };
}

flood!(PINGS, "ping_flood", "PING without end", |_| frame(PING, 0, 0, b"12345678"));
flood!(SETTINGS_FRAMES, "settings_flood", "SETTINGS without end", |_| {
    frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255])
});
flood!(PRIORITIES, "priority_flood", "PRIORITY of ever new streams without end", |stream| {
    frame(PRIORITY, 0, stream, &[0, 0, 0, 0, 16])
});
flood!(WINDOWS, "window_flood", "WINDOW_UPDATE of one byte without end", |_| {
    frame(WINDOW_UPDATE, 0, 0, &[0, 0, 0, 1])
});
flood!(RESETS, "reset_flood", "requests that are reset as soon as they are begun", |stream| {
    [head(stream), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
});
flood!(EMPTY_DATA, "empty_data_flood", "empty DATA frames of one request without end", |stream| {
    if stream == 1 { head(1) } else { frame(DATA, 0, 1, b"") }
});
flood!(CONTINUATIONS, "continuation_flood", "a head that goes on without end", |stream| {
    if stream == 1 {
        frame(HEADERS, 0, 1, &[])
    } else {
        frame(CONTINUATION, 0, 1, b"\x00\x01a\x01b")
    }
});
flood!(UNKNOWN, "unknown_frame_flood", "frames of an unknown kind without end", |_| {
    frame(0xbe, 0, 0, b"12345678")
});
flood!(BAD_HEADS, "refused_head_flood", "heads that are not allowed, without end", |stream| {
    let mut block = Vec::new();
    write_header(&mut block, ":method", "GET");
    write_header(&mut block, "UPPER", "x");
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &block)
});

/// Begins a request whose body does not come.
fn head(stream: u32) -> Vec<u8> {
    let mut block = Vec::new();
    for (name, value) in [
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/v1/chat/completions"),
        (":authority", "router"),
        ("content-type", "application/json"),
        ("authorization", "Bearer mallory-key"),
    ] {
        write_header(&mut block, name, value);
    }
    frame(HEADERS, END_HEADERS, stream, &block)
}

fn flood(scene: &mut Scene, frames: impl Fn(u32) -> Vec<u8>) -> Result<()> {
    let cpu = vitals::cpu_seconds(scene.pid)?;
    let began = Instant::now();
    let mut http2 = Http2::open(scene.address, &[])?;
    let mut reader = http2.reader()?;
    // A sender that does not read would be stopped by its own full buffers.
    let drain = thread::spawn(move || {
        let mut buffer = [0; 8 * 1024];
        while reader.read(&mut buffer).is_ok_and(|it| 0 < it) {}
    });
    let mut stream = 1;
    let mut sent = 0_u64;
    let mut ended = None;
    while began.elapsed() < scene.seconds {
        let mut batch = Vec::new();
        for _ in 0..256 {
            batch.extend(frames(stream));
            stream += 2;
        }
        if let Err(error) = http2.write(&batch) {
            ended = Some((began.elapsed(), error.kind()));
            break;
        }
        sent += 256;
    }
    let lasted = began.elapsed();
    drop(http2);
    _ = drain.join();
    let cores = (vitals::cpu_seconds(scene.pid)? - cpu) / lasted.as_secs_f64();
    let is_closed = ended.is_some_and(|it| it.0 < CLOSED_AFTER_MAX);
    scene.check(is_closed || cores < CORES_MAX, || {
        format!("{sent} frames were taken in {lasted:.1?}, at {cores:.1} cores")
    });
    again(scene);
    Ok(())
}

/// Asks over HTTP/2 as an honest client does: such a client must still be served.
fn again(scene: &mut Scene) {
    let ask = || -> io::Result<Vec<u8>> {
        let mut http2 = Http2::open(scene.address, &[])?;
        let bearer = format!("Bearer {}", MALLORY.key);
        let stream =
            http2.post("/v1/chat/completions", &[("authorization", &bearer)], &chat("x", ""))?;
        http2.read_body(stream)
    };
    let answered = ask().is_ok_and(|it| String::from_utf8_lossy(&it).contains("\"choices\""));
    scene.check(answered, || "an honest HTTP/2 client is not served afterwards".to_owned());
}
