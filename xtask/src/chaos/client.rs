//! The load: threads that chat in sessions, streamed or not, and compare every character of what
//! they get with what an untormented replica says. What happened to each request is written down,
//! with every pause it saw.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use crate::answer::{self, Usage};
use crate::http1::{self, Connection};
use crate::rig::TOKEN;

/// Turns of one session.
const TURNS: u32 = 12;
/// Shorter pauses are what streams are made of.
const PAUSE_MIN: Duration = Duration::from_millis(100);
/// Tokens of the long prompt that one client sends now and then: its prefill is no hang.
const LONG_PROMPT_TOKENS: usize = 100_000;
/// What every turn of a session begins with, so that it is better served where it was before.
const PREAMBLE_WORDS: usize = 4_000;
/// A question that all clients ask, as health checks and benchmarks do.
const GREETING: &str = "hello, are you there?";

/// One request as the load knows it.
#[derive(Clone, Debug)]
pub(super) struct Question {
    path: &'static str,
    /// All but whether it streams.
    body: String,
    text: String,
    usage: Option<Usage>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum RequestKind {
    Stream,
    Plain,
    /// A stream after a prompt that takes seconds to compute.
    Long,
    /// A plain answer to the common question.
    Greeting,
}

impl RequestKind {
    pub(super) const fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::Long)
    }
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Answered,
    /// Not what should have been said.
    Wrong,
    /// The client was told why not.
    Refused,
    /// It had begun, and did not come to its end; the client was told so.
    Broken,
    /// Nothing came, and no word why.
    Lost,
}

#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) kind: RequestKind,
    pub(crate) session: u64,
    pub(crate) ended: Instant,
    pub(crate) fate: Fate,
    pub(crate) why: String,
    pub(crate) replica: Option<String>,
    /// Why it went there, in the router's words.
    pub(crate) decision: Option<String>,
    /// When nothing came for longer than usual.
    pub(crate) pauses: Vec<(Instant, Instant)>,
}

/// A load that is running.
pub(crate) struct ChaosLoad {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<Vec<Record>>>,
}

impl ChaosLoad {
    pub(crate) fn start(
        router: SocketAddr,
        reference: SocketAddr,
        clients: u32,
        seed: u64,
    ) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let threads = (0..clients)
            .map(|number| {
                let stop = Arc::clone(&stop);
                let rng = Pcg64Mcg::seed_from_u64(seed ^ (u64::from(number) << 32));
                let mut client =
                    ChaosClient { router, reference, number, rng, records: Vec::new() };
                thread::spawn(move || {
                    client.run(&stop);
                    client.records
                })
            })
            .collect();
        Self { stop, threads }
    }

    /// Lets every client finish what it has asked.
    pub(crate) fn stop(self) -> Vec<Record> {
        self.stop.store(true, Relaxed);
        let join = |it: JoinHandle<Vec<Record>>| it.join().expect("a client does not panic");
        self.threads.into_iter().flat_map(join).collect()
    }
}

impl Question {
    /// Makes up a question, and has the reference say what is to be said.
    pub(super) fn new(
        reference: SocketAddr,
        kind: RequestKind,
        client: u32,
        session: u64,
        turn: u32,
    ) -> Result<Self> {
        let chat = "/v1/chat/completions";
        let message = |text: &str| format!(r#""messages":[{{"role":"user","content":"{text}"}}]"#);
        let limited =
            |tokens: u32| format!(r#""model":"m","ignore_eos":true,"max_tokens":{tokens}"#);
        let text = format!("chaos {client} {turn}");
        let preamble = format!("{session:04} ").repeat(PREAMBLE_WORDS);
        let tokens = 16 + turn * 13 % 80;
        match kind {
            RequestKind::Greeting => {
                Self::ask(reference, chat, format!("{},{}", limited(12), message(GREETING)))
            }
            RequestKind::Long => {
                let words = format!("{text} {}", "word".repeat(LONG_PROMPT_TOKENS));
                Self::ask(reference, chat, format!("{},{}", limited(8), message(&words)))
            }
            // A session keeps to one way of asking: prompts of two share nothing.
            RequestKind::Stream | RequestKind::Plain if session % 3 == 2 => {
                let body = format!(r#"{},"prompt":"{preamble} {text}\n""#, limited(tokens));
                Self::ask(reference, "/v1/completions", body)
            }
            RequestKind::Stream | RequestKind::Plain => {
                let message = message(&format!("{preamble} {text}"));
                Self::ask(reference, chat, format!("{},{message}", limited(tokens)))
            }
        }
    }

    fn ask(reference: SocketAddr, path: &'static str, body: String) -> Result<Self> {
        let (head, answer) = http1::post(reference, path, &format!("{{{body}}}"))?;
        ensure!(head.is_success(), "the reference answers {}", head.first_line);
        let (text, usage) = answer::read_plain(&answer)?;
        Ok(Self { path, body, text, usage })
    }

    pub(super) fn request(
        &self,
        client: u32,
        session: u64,
        streams: bool,
        wants_usage: bool,
    ) -> String {
        let stream = match (streams, wants_usage) {
            (false, _) => "",
            (true, false) => r#","stream":true"#,
            (true, true) => r#","stream":true,"stream_options":{"include_usage":true}"#,
        };
        let body = format!("{{{}{stream}}}", self.body);
        format!(
            "POST {} HTTP/1.1\r\nHost: chaos\r\nAuthorization: Bearer client-{client}\r\nContent-Type: application/json\r\nConnection: close\r\nx-cleave-explain: {TOKEN}\r\nx-session-id: chaos-{session}\r\nContent-Length: {}\r\n\r\n{body}",
            self.path,
            body.len()
        )
    }
}

struct ChaosClient {
    router: SocketAddr,
    reference: SocketAddr,
    number: u32,
    rng: Pcg64Mcg,
    records: Vec<Record>,
}

impl ChaosClient {
    fn run(&mut self, stop: &AtomicBool) {
        let mut turn = 0;
        while !stop.load(Relaxed) {
            let session = u64::from(self.number) << 32 | u64::from(turn / TURNS);
            let record = if self.number == 0 && turn % 4 == 0 {
                self.ask(RequestKind::Long, session, turn)
            } else if self.rng.random_bool(0.1) {
                self.ask(RequestKind::Greeting, session, turn)
            } else if self.rng.random_bool(0.7) {
                self.ask(RequestKind::Stream, session, turn)
            } else {
                self.ask(RequestKind::Plain, session, turn)
            };
            self.records.push(record);
            turn += 1;
            thread::sleep(Duration::from_millis(self.rng.random_range(10..60)));
        }
    }

    fn ask(&mut self, kind: RequestKind, session: u64, turn: u32) -> Record {
        let wants_usage = self.rng.random_bool(0.25);
        let question = Question::new(self.reference, kind, self.number, session, turn)
            .expect("the reference is left alone");
        let question = &question;
        let request = question.request(self.number, session, kind.is_stream(), wants_usage);
        let sent = Instant::now();
        let mut seen = AnswerSeen::since(sent);
        let (fate, why) = match seen.exchange(self.router, &request) {
            Ok(status) => judge(question, kind, wants_usage, status, &seen.body),
            Err((true, error)) => (Fate::Broken, error.to_string()),
            Err((false, error)) => (Fate::Lost, error.to_string()),
        };
        let AnswerSeen { pauses, replica, decision, .. } = seen;
        Record { kind, session, ended: Instant::now(), fate, why, replica, decision, pauses }
    }
}

/// What a client sees of one answer.
pub(super) struct AnswerSeen {
    last: Instant,
    pauses: Vec<(Instant, Instant)>,
    pub(super) body: Vec<u8>,
    pub(super) replica: Option<String>,
    pub(super) decision: Option<String>,
}

impl AnswerSeen {
    pub(super) const fn since(last: Instant) -> Self {
        Self { last, pauses: Vec::new(), body: Vec::new(), replica: None, decision: None }
    }

    /// Sends a request and reads its answer; returns the status. A failure says whether anything of the
    /// answer had come.
    pub(super) fn exchange(
        &mut self,
        router: SocketAddr,
        request: &str,
    ) -> Result<u16, (bool, io::Error)> {
        let before = |error| (false, error);
        let mut connection = Connection::to(router).map_err(before)?;
        connection.write(request.as_bytes()).map_err(before)?;
        let head = connection.read_head().map_err(before)?;
        let head = head.ok_or((false, io::ErrorKind::UnexpectedEof.into()))?;
        self.on_sign_of_life();
        self.replica = head.header("x-mock-replica").map(str::to_owned);
        self.decision = head.header("x-cleave-decision").map(str::to_owned);
        let read = connection.read_body(head.length, |piece| {
            self.on_sign_of_life();
            self.body.extend_from_slice(piece);
            Ok(())
        });
        read.map_err(|error| (true, error))?;
        Ok(head.status())
    }

    fn on_sign_of_life(&mut self) {
        let now = Instant::now();
        if PAUSE_MIN < now - self.last {
            self.pauses.push((self.last, now));
        }
        self.last = now;
    }
}

/// Compares an answer with what should have been said.
pub(super) fn judge(
    question: &Question,
    kind: RequestKind,
    wants_usage: bool,
    status: u16,
    body: &[u8],
) -> (Fate, String) {
    if status != 200 {
        let code = answer::code(body).unwrap_or_else(|| format!("status {status}"));
        return (Fate::Refused, code);
    }
    let read = if kind.is_stream() {
        let stream = String::from_utf8_lossy(body);
        if let Some(code) = answer::error_event(&stream) {
            return (Fate::Broken, code);
        }
        answer::read_stream(&stream, question.path.ends_with("chat/completions"))
    } else {
        answer::read_plain(body)
    };
    let figures = if !kind.is_stream() || wants_usage { question.usage } else { None };
    match read {
        Err(error) => (Fate::Wrong, error.to_string()),
        Ok((text, _)) if text != question.text => {
            (Fate::Wrong, format!("said {text:?} instead of {:?}", question.text))
        }
        Ok((_, usage)) if usage != figures => {
            (Fate::Wrong, format!("usage {usage:?} instead of {figures:?}"))
        }
        Ok(_) => (Fate::Answered, String::new()),
    }
}

/// Counts requests by the reasons for their fate.
pub(super) fn reasons<'a>(records: impl Iterator<Item = &'a str>) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for reason in records {
        *counts.entry(reason.to_owned()).or_default() += 1;
    }
    counts
}
