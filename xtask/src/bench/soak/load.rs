//! Clients: those that listen to a stream for as long as it lasts, and those that ask once and leave.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};

use crate::bench::mock::MODEL;

/// Streams are opened in batches of this size, with a pause between.
const BATCH: u32 = 20;
const BATCH_PAUSE: Duration = Duration::from_millis(40);
/// Connects come in bursts of a hundredth of a second.
const BURST: Duration = Duration::from_millis(10);
/// A request that takes longer than this is lost.
const LIMIT: Duration = Duration::from_secs(20);

#[derive(Debug, Default)]
pub(super) struct SoakCounts {
    streams_open: AtomicU64,
    events: AtomicU64,
    answers: AtomicU64,
    errors: AtomicU64,
}

/// Counts at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) streams_open: u64,
    pub(super) events: u64,
    pub(super) answers: u64,
    pub(super) errors: u64,
}

impl SoakCounts {
    pub(super) fn read(&self) -> Read {
        Read {
            streams_open: self.streams_open.load(Relaxed),
            events: self.events.load(Relaxed),
            answers: self.answers.load(Relaxed),
            errors: self.errors.load(Relaxed),
        }
    }
}

/// A load that runs until it is dropped.
pub(super) struct SoakLoad {
    _clients: JoinSet<()>,
}

impl SoakLoad {
    /// Opens all streams, then starts the clients that come and go.
    pub(super) async fn start(
        address: SocketAddr,
        streams: u32,
        connects: u32,
        counts: &Arc<SoakCounts>,
    ) -> Self {
        let mut clients = JoinSet::new();
        for number in 0..streams {
            let counts = Arc::clone(counts);
            clients.spawn(async move {
                // A stream here has no end of its own.
                _ = listen(address, number, &counts).await;
                counts.errors.fetch_add(1, Relaxed);
            });
            if number % BATCH == BATCH - 1 {
                sleep(BATCH_PAUSE).await;
            }
        }
        clients.spawn(come_and_go(address, connects, Arc::clone(counts)));
        Self { _clients: clients }
    }
}

fn request(session: u32, more: &str) -> String {
    let body = format!(
        r#"{{"model":"{MODEL}"{more},"messages":[{{"role":"user","content":"soak {session}"}}]}}"#
    );
    let close = if more.is_empty() { "Connection: close\r\n" } else { "" };
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: soak\r\nContent-Type: application/json\r\nx-session-id: soak-{session}\r\n{close}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

async fn listen(address: SocketAddr, number: u32, counts: &SoakCounts) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request(number, ",\"stream\":true").as_bytes()).await?;
    let mut buffer = [0; 1024];
    let mut open = false;
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            counts.streams_open.fetch_sub(u64::from(open), Relaxed);
            return Ok(());
        }
        if !open {
            open = buffer.starts_with(b"HTTP/1.1 200");
            counts.streams_open.fetch_add(u64::from(open), Relaxed);
        }
        let events = buffer[..read].windows(6).filter(|it| it == b"data: ").count();
        counts.events.fetch_add(u64::try_from(events).unwrap_or(0), Relaxed);
    }
}

async fn come_and_go(address: SocketAddr, connects: u32, counts: Arc<SoakCounts>) {
    let mut bursts = interval(BURST);
    bursts.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    let mut number = 0;
    loop {
        bursts.tick().await;
        while under_way.try_join_next().is_some() {}
        for _ in 0..connects / 100 {
            number += 1;
            let counts = Arc::clone(&counts);
            under_way.spawn(async move {
                let good = matches!(timeout(LIMIT, ask(address, number)).await, Ok(Ok(true)));
                let count = if good { &counts.answers } else { &counts.errors };
                count.fetch_add(1, Relaxed);
            });
        }
    }
}

/// Connects, asks, and reads to the end; tells whether the answer was a good one.
async fn ask(address: SocketAddr, number: u32) -> io::Result<bool> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(request(number % 1000, "").as_bytes()).await?;
    let mut answer = Vec::with_capacity(1024);
    stream.read_to_end(&mut answer).await?;
    Ok(answer.starts_with(b"HTTP/1.1 200") && answer.ends_with(b"}"))
}
