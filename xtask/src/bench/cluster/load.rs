//! The load: streamed chats with long prompts at a given rate, whether or not answers are back, each to a router in turn.
//! Connections are kept, so that what is measured is requests.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, timeout};

/// A request that takes longer than this is lost.
const LIMIT: Duration = Duration::from_secs(60);
/// Requests under way beyond which the load is held back: then the routers or the replicas are overrun.
const UNDER_WAY_MAX: usize = 10_000;
/// Bytes of text that make a token, about.
const TOKEN_BYTES: usize = 4;
const ANSWER_TOKENS: u32 = 32;

/// What is sent.
#[derive(Clone, Debug)]
pub(super) struct PromptPlan {
    pub(super) routers: Vec<SocketAddr>,
    pub(super) rate: u32,
    pub(super) prompt_tokens: usize,
    pub(super) turns: u32,
}

/// What came back while it was measured.
#[derive(Debug, Default)]
pub(super) struct PromptsSeen {
    pub(super) answers: u32,
    pub(super) errors: u32,
    latencies: Vec<Duration>,
}

impl PromptsSeen {
    pub(super) fn latency_ms(&mut self, percent: usize) -> f64 {
        self.latencies.sort_unstable();
        let last = self.latencies.len().saturating_sub(1);
        let at = (self.latencies.len() * percent / 100).min(last);
        self.latencies.get(at).map_or(0.0, |it| it.as_secs_f64() * 1e3)
    }

    /// Says bytes in megabytes.
    pub(super) fn megabytes(bytes: u64) -> f64 {
        let kilobytes = u32::try_from(bytes / 1_000).unwrap_or(u32::MAX);
        f64::from(kilobytes) / 1e3
    }
}

/// A load that runs until it is stopped or dropped.
pub(super) struct PromptLoad {
    runtime: Runtime,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_measured: AtomicBool,
    under_way: AtomicUsize,
    seen: Mutex<PromptsSeen>,
    /// Idle connections to each router.
    idle: Vec<Mutex<Vec<TcpStream>>>,
}

impl PromptLoad {
    pub(super) fn start(plan: PromptPlan) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let idle = plan.routers.iter().map(|_| Mutex::default()).collect();
        let shared = Arc::new(Shared { idle, ..Shared::default() });
        runtime.spawn(send(plan, Arc::clone(&shared)));
        Ok(Self { runtime, shared })
    }

    pub(super) fn measure(&self) {
        self.shared.is_measured.store(true, Relaxed);
    }

    pub(super) fn stop(self) -> PromptsSeen {
        self.shared.is_measured.store(false, Relaxed);
        let seen = std::mem::take(&mut *lock(&self.shared.seen));
        self.runtime.shutdown_background();
        seen
    }
}

fn lock<T>(it: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    it.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn send(plan: PromptPlan, shared: Arc<Shared>) {
    let mut ticks = interval(Duration::from_secs(1) / plan.rate);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut under_way = JoinSet::new();
    let plan = Arc::new(plan);
    for number in 0_u32.. {
        ticks.tick().await;
        while under_way.try_join_next().is_some() {}
        let is_measured = shared.is_measured.load(Relaxed);
        if UNDER_WAY_MAX <= shared.under_way.load(Relaxed) {
            lock(&shared.seen).errors += u32::from(is_measured);
            continue;
        }
        shared.under_way.fetch_add(1, Relaxed);
        let (plan, shared) = (Arc::clone(&plan), Arc::clone(&shared));
        under_way.spawn(async move {
            let began = Instant::now();
            let asked = timeout(LIMIT, ask(&plan, &shared, number)).await;
            shared.under_way.fetch_sub(1, Relaxed);
            if is_measured && shared.is_measured.load(Relaxed) {
                let mut seen = lock(&shared.seen);
                match asked {
                    Ok(Ok(true)) => {
                        seen.answers += 1;
                        seen.latencies.push(began.elapsed());
                    }
                    _ => seen.errors += 1,
                }
            }
        });
    }
}

/// Asks one router over a connection that is kept; tells whether the answer was a good one.
async fn ask(plan: &PromptPlan, shared: &Shared, number: u32) -> io::Result<bool> {
    let at = usize::try_from(number).unwrap_or(0) % plan.routers.len();
    let kept = lock(&shared.idle[at]).pop();
    let mut stream = match kept {
        Some(kept) => kept,
        None => TcpStream::connect(plan.routers[at]).await?,
    };
    stream.set_nodelay(true)?;
    stream.write_all(&request(plan, number)).await?;
    let mut answer = Vec::with_capacity(8 << 10);
    while !is_whole(&answer) {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let is_good = answer.starts_with(b"HTTP/1.1 200");
    lock(&shared.idle[at]).push(stream);
    Ok(is_good)
}

/// Writes a turn of a session: a beginning of its own that is as long as wanted, and what the turns before it added.
fn request(plan: &PromptPlan, number: u32) -> Vec<u8> {
    let (session, turn) = (number / plan.turns, number % plan.turns);
    let sentence = format!("{session} is the number of this session and of no other one. ");
    let bytes = plan.prompt_tokens * TOKEN_BYTES;
    let mut text = sentence.repeat(bytes / sentence.len() + 1);
    text.truncate(bytes);
    text.push_str(&"And what follows from that? ".repeat(usize::try_from(turn).unwrap_or(0)));
    let body = format!(
        r#"{{"model":"m","stream":true,"max_tokens":{ANSWER_TOKENS},"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n\
         x-session-id: bench-{session}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    (head + &body).into_bytes()
}

/// Tells whether an answer is there to its end: chunked, or of the length that it names.
fn is_whole(answer: &[u8]) -> bool {
    let Some(end) = answer.windows(4).position(|it| it == b"\r\n\r\n") else { return false };
    let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
    let length = head.lines().find_map(|it| it.strip_prefix("content-length:"));
    match length.and_then(|it| it.trim().parse::<usize>().ok()) {
        Some(length) => end + 4 + length <= answer.len(),
        None => answer.ends_with(b"\r\n0\r\n\r\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_of_a_session_share_their_beginning_and_sessions_do_not() {
        let (routers, prompt_tokens) = (Vec::new(), 1_000);
        let plan = PromptPlan { routers, rate: 1, prompt_tokens, turns: 2 };
        let body = |number| {
            let text = String::from_utf8(request(&plan, number)).unwrap();
            text.split_once("\r\n\r\n").unwrap().1.to_owned()
        };
        let shared = |one: &str, other: &str| {
            one.bytes().zip(other.bytes()).take_while(|(a, b)| a == b).count()
        };
        assert!(4_000 < shared(&body(0), &body(1)));
        assert!(shared(&body(1), &body(2)) < 200);
    }

    #[test]
    fn an_answer_is_whole_at_its_last_chunk_or_at_its_length() {
        let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
        assert!(is_whole(chunked) && !is_whole(&chunked[..chunked.len() - 5]));
        let sized = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 2\r\n\r\n{}";
        assert!(is_whole(sized) && !is_whole(&sized[..sized.len() - 1]));
    }

    #[test]
    fn percentiles_are_of_what_was_seen() {
        let latencies = (1..=100).rev().map(Duration::from_millis).collect();
        let mut seen = PromptsSeen { latencies, ..PromptsSeen::default() };
        assert!((seen.latency_ms(50) - 51.0).abs() < 1e-9);
        assert!((seen.latency_ms(99) - 100.0).abs() < 1e-9);
        assert!(PromptsSeen::default().latency_ms(50).abs() < 1e-9);
    }
}
