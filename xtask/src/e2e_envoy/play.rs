//! Conversations: sessions of several turns, each of which says again what was said before, as chats do.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};

use crate::http1::Connection;

/// Turns of one session.
const TURNS: u32 = 5;
/// Words that each turn adds to the prompt.
const WORDS: u32 = 120;

#[derive(Clone, Copy, Debug)]
pub(super) struct PlayPlan {
    pub(super) requests: u32,
    pub(super) clients: u32,
    /// The number of its first session; another plan with the same numbers goes on with their sessions.
    pub(super) from: u32,
}

/// What came of a plan.
#[derive(Debug, Default)]
pub(super) struct Played {
    pub(super) whole: u32,
    pub(super) failed: u32,
    pub(super) first_failure: Option<String>,
    /// Turns that another replica answered than the turn before.
    pub(super) moved: u32,
    /// Prompt tokens that engines had in their caches.
    pub(super) cached_tokens: u64,
    pub(super) prompt_tokens: u64,
    /// How many replicas answered.
    pub(super) replicas: usize,
    took: Duration,
}

/// One answer.
struct Turn {
    replica: String,
    cached_tokens: u64,
    prompt_tokens: u64,
}

impl PlayPlan {
    /// Plays it: clients take one session after the other.
    pub(super) fn play(self, address: SocketAddr) -> Result<Played> {
        let (next, began) = (AtomicU32::new(0), Instant::now());
        let sessions = self.requests.div_ceil(TURNS);
        let client = || {
            let (mut played, mut seen) = (Played::default(), BTreeSet::new());
            loop {
                let session = next.fetch_add(1, Relaxed);
                if sessions <= session {
                    return (played, seen);
                }
                let turns = TURNS.min(self.requests - session * TURNS);
                hold(address, self.from + session, turns, &mut played, &mut seen);
            }
        };
        let (mut all, mut replicas) = (Played::default(), BTreeSet::new());
        thread::scope(|scope| {
            let clients: Vec<_> = (0..self.clients).map(|_| scope.spawn(client)).collect();
            for it in clients {
                let (played, seen) = it.join().map_err(|_| anyhow!("a client panicked"))?;
                all.add(played);
                replicas.extend(seen);
            }
            Ok::<_, anyhow::Error>(())
        })?;
        (all.replicas, all.took) = (replicas.len(), began.elapsed());
        Ok(all)
    }
}

impl Played {
    fn add(&mut self, it: Self) {
        self.whole += it.whole;
        self.failed += it.failed;
        self.moved += it.moved;
        self.cached_tokens += it.cached_tokens;
        self.prompt_tokens += it.prompt_tokens;
        self.first_failure = self.first_failure.take().or(it.first_failure);
    }

    pub(super) fn show(&self, what: &str) {
        let Self { whole, failed, moved, cached_tokens, prompt_tokens, replicas, took, .. } = self;
        println!(
            "{what}: {whole} whole, {failed} failed, {moved} turns elsewhere than the one before, \
             {cached_tokens} of {prompt_tokens} prompt tokens cached, {replicas} replicas, {took:.1?}"
        );
        if let Some(failure) = &self.first_failure {
            println!("  the first failure: {failure}");
        }
    }
}

/// Holds one session, turn by turn.
fn hold(
    address: SocketAddr,
    session: u32,
    turns: u32,
    played: &mut Played,
    seen: &mut BTreeSet<String>,
) {
    let (mut said, mut before) = (String::new(), None::<String>);
    for turn in 0..turns {
        for word in 0..WORDS {
            said.extend(["s", &session.to_string(), "t", &turn.to_string()]);
            said.extend(["w", &word.to_string(), " "]);
        }
        match ask(address, session, &said) {
            Ok(it) => {
                played.whole += 1;
                played.cached_tokens += it.cached_tokens;
                played.prompt_tokens += it.prompt_tokens;
                played.moved += u32::from(before.as_ref().is_some_and(|was| *was != it.replica));
                seen.insert(it.replica.clone());
                before = Some(it.replica);
            }
            Err(error) => {
                played.failed += 1;
                played.first_failure.get_or_insert(format!("{error:#}"));
            }
        }
    }
}

fn ask(address: SocketAddr, session: u32, said: &str) -> Result<Turn> {
    let body = format!(
        "{{\"model\":\"m\",\"stream\":true,\"stream_options\":{{\"include_usage\":true}},\"max_tokens\":16,\
         \"messages\":[{{\"role\":\"user\",\"content\":\"{said}\"}}]}}"
    );
    let mut connection = Connection::to(address)?;
    let text = exchange(&mut connection, &format!("x-session-id: s{session}\r\n"), &body)?;
    let (replica, text) = text;
    if !text.ends_with("data: [DONE]\n\n") {
        return Err(anyhow!(
            "a stream without its end: {}",
            text.chars().take(200).collect::<String>()
        ));
    }
    let figure = |name: &str| number_after(&text, name).unwrap_or(0);
    let replica = replica.context("no replica signed the answer")?;
    Ok(Turn {
        replica,
        cached_tokens: figure("\"cached_tokens\":"),
        prompt_tokens: figure("\"prompt_tokens\":"),
    })
}

/// Asks once over a connection; says which replica answered, and what.
fn exchange(
    connection: &mut Connection,
    headers: &str,
    body: &str,
) -> Result<(Option<String>, String)> {
    let length = body.len();
    connection.write(
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\ncontent-type: application/json\r\n\
             {headers}content-length: {length}\r\n\r\n{body}"
        )
        .as_bytes(),
    )?;
    let head = connection.read_head()?.context("it was closed before an answer")?;
    let mut answer = Vec::new();
    connection.read_body(head.length, |piece| {
        answer.extend_from_slice(piece);
        Ok(())
    })?;
    let text = String::from_utf8_lossy(&answer).into_owned();
    if !head.is_success() {
        return Err(anyhow!("{}: {}", head.first_line, text.trim()));
    }
    Ok((head.header("x-mock-replica").map(str::to_owned), text))
}

fn number_after(text: &str, name: &str) -> Option<u64> {
    let rest = text[text.rfind(name)? + name.len()..].trim_start();
    rest.split(|it: char| !it.is_ascii_digit()).next()?.parse().ok()
}

/// Measures what a small request takes on each way, in turn so that all see the same machine. Gives the median and the
/// 99th percentile of each.
pub(super) fn latencies(ways: &[SocketAddr], probes: u32) -> Result<Vec<(Duration, Duration)>> {
    let mut connections = Vec::new();
    for address in ways {
        connections.push((Connection::to(*address)?, Vec::new()));
    }
    for nth in 0..probes + 20 {
        let body = format!(
            "{{\"model\":\"m\",\"max_tokens\":1,\"messages\":[{{\"role\":\"user\",\"content\":\"probe {nth} {}\"}}]}}",
            "x".repeat(1000)
        );
        for (connection, times) in &mut connections {
            let began = Instant::now();
            exchange(connection, "", &body)?;
            // The first ones warm up.
            if 20 <= nth {
                times.push(began.elapsed());
            }
        }
    }
    let middle = |(_, mut times): (Connection, Vec<Duration>)| {
        times.sort_unstable();
        (times[times.len() / 2], times[times.len() * 99 / 100])
    };
    Ok(connections.into_iter().map(middle).collect())
}
