//! An engine that follows a script: honest where the script says nothing. It notes every request that
//! reaches it, so that an attack can tell what got through. A thread serves each connection; when the
//! engine is dropped, its threads end.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::http1::Connection;

/// Requests that are kept; an attack of a million must not fill our own memory.
const KEPT_MAX: usize = 20_000;
/// Between two events of an honest stream.
const PAUSE: Duration = Duration::from_millis(2);
/// Events of an honest stream.
const EVENTS: u32 = 8;

pub(super) type Script = Arc<dyn Fn(&Asked, &mut Mouth) -> io::Result<()> + Send + Sync>;

pub(super) fn script(
    says: impl Fn(&Asked, &mut Mouth) -> io::Result<()> + Send + Sync + 'static,
) -> Script {
    Arc::new(says)
}

/// One request as it reached the engine.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    /// As it was written, before any decoding.
    pub(super) target: String,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Asked {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|it| it.0.eq_ignore_ascii_case(name));
        found.map(|it| it.1.as_str())
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(super) fn says(&self, word: &str) -> bool {
        self.body.windows(word.len()).any(|it| it == word.as_bytes())
    }

    /// Tells whether the word is anywhere in the request, head included.
    pub(super) fn holds(&self, word: &str) -> bool {
        let in_head = self.headers.iter().any(|it| it.0.contains(word) || it.1.contains(word));
        in_head || self.target.contains(word) || self.says(word)
    }

    /// The path as uvicorn sees it: without the query, and decoded.
    pub(super) fn decoded_path(&self) -> String {
        let path = self.target.split(['?', '#']).next().unwrap_or_default();
        let path = path
            .split_once("://")
            .map_or(path, |(_, rest)| rest.find('/').map_or("/", |at| &rest[at..]));
        percent_decoded(path)
    }

    /// Tells whether an engine would generate: a POST or PUT on a path that does, decoded.
    pub(super) fn generates(&self) -> bool {
        let path = self.decoded_path();
        let path = path.trim_end_matches('/');
        matches!(self.method.as_str(), "POST" | "PUT") && GENERATING.contains(&path)
    }
}

/// Paths on which vLLM, SGLang, TensorRT-LLM or llama.cpp generate.
pub(super) const GENERATING: [&str; 17] = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/chat/completions/batch",
    "/invocations",
    "/generate",
    "/inference/v1/generate",
    "/vertex_generate",
    "/api/chat",
    "/api/generate",
    "/chat/completions",
    "/completions",
    "/completion",
    "/infill",
    "/cohere/v2/chat",
    "/generative_scoring",
];

fn percent_decoded(path: &str) -> String {
    let bytes = path.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes.get(at + 1..at + 3).and_then(|it| str::from_utf8(it).ok());
        let byte = digits.and_then(|it| u8::from_str_radix(it, 16).ok());
        if let (b'%', Some(byte)) = (bytes[at], byte) {
            decoded.push(byte);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

/// What the engine speaks with.
pub(super) struct Mouth {
    connection: Connection,
    over: Arc<AtomicBool>,
}

impl Mouth {
    /// Tells whether the engine is being ended, which every long loop of a script must ask.
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Relaxed)
    }

    /// Writes bytes as they are.
    pub(super) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.connection.write(bytes)
    }

    pub(super) fn json(&mut self, status: u16, body: &str) -> io::Result<()> {
        self.answer(status, "application/json", "", body)
    }

    pub(super) fn answer(
        &mut self,
        status: u16,
        kind: &str,
        headers: &str,
        body: &str,
    ) -> io::Result<()> {
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\n{headers}content-length: {length}\r\n\r\n{body}"
        );
        self.raw(head.as_bytes())
    }

    pub(super) fn begin_stream(&mut self) -> io::Result<()> {
        self.raw(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
    }

    /// Writes one piece of a stream.
    pub(super) fn piece(&mut self, text: &str) -> io::Result<()> {
        let length = text.len();
        self.raw(format!("{length:x}\r\n{text}\r\n").as_bytes())
    }

    pub(super) fn end_stream(&mut self) -> io::Result<()> {
        self.raw(b"0\r\n\r\n")
    }

    /// Ends the connection without a further word.
    #[expect(clippy::unused_self, reason = "reads as what it does")]
    pub(super) fn hang_up(&self) -> io::Result<()> {
        Err(ErrorKind::ConnectionAborted.into())
    }

    /// Waits, but not beyond the end of the engine.
    pub(super) fn wait(&self, time: Duration) {
        let step = Duration::from_millis(20);
        let mut left = time;
        while !left.is_zero() && !self.is_over() {
            thread::sleep(step.min(left));
            left = left.saturating_sub(step);
        }
    }
}

/// Answers as an engine does that means well.
pub(super) fn honest(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    let path = asked.decoded_path();
    match (asked.method.as_str(), path.as_str()) {
        ("GET", "/health" | "/ping") => mouth.json(200, "{}"),
        ("GET", "/v1/models") => mouth.json(
            200,
            r#"{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"x","max_model_len":131072}]}"#,
        ),
        ("GET", "/metrics") => mouth.answer(200, "text/plain; version=0.0.4", "", METRICS),
        (_, "/v1/responses") => mouth.json(200, &responses(asked, "{}")),
        ("POST" | "PUT", _) if asked.generates() => generate(asked, mouth),
        _ => mouth.json(404, r#"{"detail":"Not Found"}"#),
    }
}

/// A page of a vLLM that is idle and has room.
pub(super) const METRICS: &str = "vllm:num_requests_running{model_name=\"m\"} 0\n\
     vllm:num_requests_waiting{model_name=\"m\"} 0\n\
     vllm:kv_cache_usage_perc{model_name=\"m\"} 0\n\
     vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"32768\"} 1\n\
     process_start_time_seconds 1700000000\n";

/// Writes a response as SGLang does: the client's `metadata` comes after the usage.
pub(super) fn responses(asked: &Asked, metadata: &str) -> String {
    let tokens = asked.body.len() / 4 + 1;
    format!(
        r#"{{"id":"resp_1","object":"response","created_at":1,"status":"completed","model":"m","output":[{{"type":"message","id":"m1","role":"assistant","status":"completed","content":[{{"type":"output_text","text":"hello","annotations":[]}}]}}],"usage":{{"input_tokens":{tokens},"output_tokens":1,"total_tokens":{}}},"metadata":{metadata}}}"#,
        tokens + 1
    )
}

pub(super) fn event(content: &str) -> String {
    format!(
        "data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{content}\"}},\"text\":\"{content}\",\"finish_reason\":null}}]}}\n\n"
    )
}

pub(super) fn usage(prompt: usize, completion: u32) -> String {
    let total = prompt + usize::try_from(completion).unwrap_or(0);
    format!(
        r#"{{"prompt_tokens":{prompt},"completion_tokens":{completion},"total_tokens":{total}}}"#
    )
}

/// Tells whether a body wants its answer in pieces.
pub(super) fn wants_stream(asked: &Asked) -> bool {
    asked.says("\"stream\":true") || asked.says("\"stream\": true")
}

fn generate(asked: &Asked, mouth: &mut Mouth) -> io::Result<()> {
    let prompt = asked.body.len() / 4 + 1;
    if !wants_stream(asked) {
        let usage = usage(prompt, 1);
        return mouth.json(200, &format!(
            r#"{{"id":"c1","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":"w"}},"text":"w","finish_reason":"stop"}}],"usage":{usage}}}"#
        ));
    }
    mouth.begin_stream()?;
    for _ in 0..EVENTS {
        mouth.piece(&event("w"))?;
        thread::sleep(PAUSE);
    }
    if asked.says("include_usage") {
        let usage = usage(prompt, EVENTS);
        mouth.piece(&format!("data: {{\"id\":\"c1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\"choices\":[],\"usage\":{usage}}}\n\n"))?;
    }
    mouth.piece("data: [DONE]\n\n")?;
    mouth.end_stream()
}

/// A running engine.
pub(super) struct Fake {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Fake {
    pub(super) fn start(script: Script) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (asked, over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let shared = (Arc::clone(&asked), Arc::clone(&over));
        let thread = thread::spawn(move || {
            let (asked, over) = shared;
            for stream in listener.incoming().filter_map(Result::ok) {
                if over.load(Relaxed) {
                    return;
                }
                let (asked, over) = (Arc::clone(&asked), Arc::clone(&over));
                let script = Arc::clone(&script);
                // Whatever ends a connection ends its thread; the router is what is watched.
                thread::spawn(move || _ = serve(stream, &script, &asked, over));
            }
        });
        Ok(Self { address, asked, over, thread: Some(thread) })
    }

    /// Returns what was asked of it, the router's own questions left out.
    pub(super) fn asked(&self) -> Vec<Asked> {
        lock(&self.asked).clone()
    }

    pub(super) fn forget(&self) {
        lock(&self.asked).clear();
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
        // The listener waits for a connection; this is the last one.
        _ = TcpStream::connect(self.address);
        if let Some(thread) = self.thread.take() {
            _ = thread.join();
        }
    }
}

fn lock(asked: &Mutex<Vec<Asked>>) -> MutexGuard<'_, Vec<Asked>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

fn serve(
    stream: TcpStream,
    script: &Script,
    notes: &Mutex<Vec<Asked>>,
    over: Arc<AtomicBool>,
) -> io::Result<()> {
    let mut mouth = Mouth { connection: Connection::over(stream)?, over };
    while let Some(head) = mouth.connection.read_head()? {
        let mut body = Vec::new();
        mouth.connection.read_body(head.length, |it| {
            body.extend_from_slice(it);
            Ok(())
        })?;
        let mut words = head.first_line.split(' ').map(str::to_owned);
        let method = words.next().unwrap_or_default();
        let target = words.next().unwrap_or_default();
        let asked = Asked { method, target, headers: head.headers().to_vec(), body };
        let own = asked.method == "GET"
            && matches!(asked.target.as_str(), "/health" | "/metrics" | "/v1/models");
        if !own {
            let mut notes = lock(notes);
            if notes.len() < KEPT_MAX {
                notes.push(asked.clone());
            }
        }
        script(&asked, &mut mouth)?;
        if head.closes || mouth.is_over() {
            return Ok(());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(method: &str, target: &str) -> Asked {
        let (method, target) = (method.to_owned(), target.to_owned());
        Asked { method, target, headers: Vec::new(), body: Vec::new() }
    }

    #[test]
    fn a_path_is_decoded_as_engines_do() {
        for target in [
            "/v1/chat/completions",
            "/v1/chat/completion%73",
            "/v1/chat/completion%73?x=1",
            "http://x/v1/chat%2Fcompletions",
            "/generate/",
        ] {
            assert!(asked("POST", target).generates(), "{target}");
        }
        for target in ["/v1/chat/completion%2573", "/v1/embeddings", "/%zz"] {
            assert!(!asked("POST", target).generates(), "{target}");
        }
        assert!(!asked("GET", "/generate").generates());
    }
}
