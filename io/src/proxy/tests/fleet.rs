//! A router with its listener and threads, two replicas that stream, and clients.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cleave_core::brain;
use http_body_util::{BodyExt as _, Full};
use hyper::Request;
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::proxy::{Pool, Router, Server, Tenants, testing};

/// Nothing here takes this long unless it hangs.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Events of an answer before the gate and after it.
const EVENTS: [usize; 2] = [10, 40];
const EVENT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n";
const DONE: &str = "data: [DONE]\n\n";
const HEAD: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Stream,
    /// One of the replicas says that it is full.
    Busy,
    /// The client leaves at the first piece.
    Left,
}

impl Kind {
    pub(super) fn of(number: usize) -> Self {
        [Self::Stream, Self::Busy, Self::Left][number % 3]
    }
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) retry_after: Option<u64>,
    pub(super) text: String,
    left: bool,
}

impl Answer {
    pub(super) fn is_whole(&self) -> bool {
        let events = self.text.matches(EVENT.trim_end()).count();
        let whole = events == EVENTS[0] + EVENTS[1] && self.text.contains(DONE.trim_end());
        self.status == 200 && (whole || self.left)
    }
}

/// A stream that has begun.
pub(super) enum Stream {
    Http1(BufReader<TcpStream>),
    Http2(http::response::Parts, Incoming),
}

impl Stream {
    /// Waits for the rest of the answer, or for its end.
    pub(super) async fn rest(self) -> Answer {
        let reading = async {
            match self {
                Self::Http1(reader) => read_answer(reader, false).await.unwrap(),
                Self::Http2(head, mut body) => {
                    let mut text = String::new();
                    while let Some(Ok(frame)) = body.frame().await {
                        if let Ok(data) = frame.into_data() {
                            text.push_str(std::str::from_utf8(&data).unwrap());
                        }
                    }
                    let status = head.status.as_u16();
                    // The first piece was taken before.
                    Answer {
                        status,
                        retry_after: None,
                        text: EVENT.repeat(EVENTS[0]) + &text,
                        left: false,
                    }
                }
            }
        };
        timeout(WAIT_MAX, reading).await.expect("an answer ends")
    }
}

pub(super) struct Bench {
    pub(super) router: Arc<Router>,
    address: SocketAddr,
    replicas: Vec<String>,
    gate: watch::Sender<bool>,
    stop: CancellationToken,
    serving: JoinHandle<io::Result<usize>>,
    _replicas: JoinSet<()>,
}

impl Bench {
    pub(super) async fn start() -> Self {
        let gate = watch::Sender::new(false);
        let mut serving_replicas = JoinSet::new();
        let mut replicas = Vec::new();
        for number in 0..3 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            replicas.push(format!("http://{}", listener.local_addr().unwrap()));
            serving_replicas.spawn(replica(listener, number == 0, gate.subscribe()));
        }
        let router = testing::router();
        let listener = testing::listener();
        let address = listener.local_addr().unwrap();
        let server = Server::new(Arc::clone(&router), listener);
        let stop = CancellationToken::new();
        let serving = server.run(stop.clone(), CancellationToken::new(), CancellationToken::new());
        let serving = TaskTracker::new().spawn(serving);
        let bench =
            Self { router, address, replicas, gate, stop, serving, _replicas: serving_replicas };
        bench.apply(false);
        let all_up = || bench.pool().snapshot().replicas.iter().all(|it| it.state == "up");
        bench.until("the replicas are up", all_up).await;
        bench
    }

    /// Takes on two replicas, or three.
    pub(super) fn apply(&self, third: bool) {
        let replicas = &self.replicas[..if third { 3 } else { 2 }];
        let mut pool = testing::pool("p", replicas, brain::Settings::default());
        pool.replicas[0].weight = if third { 2.0 } else { 1.0 };
        self.router.apply(vec![pool], Tenants::default());
    }

    pub(super) fn pool(&self) -> Arc<Pool> {
        self.router.pools()[0].clone()
    }

    pub(super) fn open_gate(&self) {
        self.gate.send_replace(true);
    }

    pub(super) fn close_gate(&self) {
        self.gate.send_replace(false);
    }

    pub(super) async fn until(&self, what: &str, is_so: impl Fn() -> bool) {
        let began = Instant::now();
        while !is_so() {
            assert!(began.elapsed() < WAIT_MAX, "waited for long: {what}");
            sleep(Duration::from_millis(1)).await;
        }
    }

    pub(super) async fn end(self) {
        self.stop.cancel();
        let cut = timeout(WAIT_MAX, self.serving).await.expect("it drains").unwrap().unwrap();
        assert_eq!(cut, 0);
    }

    /// Begins streams, each on a connection of its own, up to the gate.
    pub(super) async fn streams(&self, count: usize) -> Vec<Stream> {
        let mut streams = Vec::new();
        for _ in 0..count {
            let reader = post(self.address, Kind::Stream).await;
            let mut seen = [0; 4096];
            let mut length = 0;
            while !seen[..length].windows(5).any(|it| it == b"data:") {
                length = reader.get_ref().peek(&mut seen).await.unwrap();
                sleep(Duration::from_millis(1)).await;
            }
            streams.push(Stream::Http1(reader));
        }
        streams
    }

    pub(super) async fn http2(&self) -> (SendRequest<Full<Bytes>>, JoinSet<()>) {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let (sender, driver) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        let mut connection = JoinSet::new();
        connection.spawn(async move { _ = driver.await });
        (sender, connection)
    }

    /// Begins streams on one connection, up to the gate.
    pub(super) async fn streams_over(
        &self,
        shared: &mut (SendRequest<Full<Bytes>>, JoinSet<()>),
        count: usize,
    ) -> Vec<Stream> {
        let mut streams = Vec::new();
        for _ in 0..count {
            let request = Request::post("http://router/v1/chat/completions")
                .header("content-type", "application/json")
                .body(Full::from(body(Kind::Stream)))
                .unwrap();
            let (head, mut body) = shared.0.send_request(request).await.unwrap().into_parts();
            let mut first = 0;
            while first < EVENT.len() * EVENTS[0] {
                let frame = body.frame().await.unwrap().unwrap();
                first += frame.into_data().map_or(0, |it| it.len());
            }
            streams.push(Stream::Http2(head, body));
        }
        streams
    }

    /// Asks on a connection of its own and waits for the whole answer.
    pub(super) fn ask(&self, kind: Kind) -> JoinHandle<Answer> {
        let address = self.address;
        TaskTracker::new().spawn(async move {
            let asked =
                async { read_answer(post(address, kind).await, matches!(kind, Kind::Left)).await };
            timeout(WAIT_MAX, asked).await.expect("an answer comes").unwrap()
        })
    }
}

/// A prompt that no other begins like, so that each is a session of its own.
fn body(kind: Kind) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    let messages = format!("[{{\"role\":\"user\",\"content\":\"{number} {kind:?}\"}}]");
    format!("{{\"model\":\"m\",\"stream\":true,\"messages\":{messages}}}")
}

async fn post(address: SocketAddr, kind: Kind) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let body = body(kind);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: r\r\ncontent-type: application/json\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).await.unwrap();
    BufReader::with_capacity(1 << 16, stream)
}

async fn read_answer(mut reader: BufReader<TcpStream>, leaves: bool) -> io::Result<Answer> {
    let head = read_head(&mut reader).await?.expect("a head comes");
    let status = head[""].split(' ').nth(1).unwrap().parse().unwrap();
    let retry_after = head.get("retry-after").map(|it| it.parse().unwrap());
    if leaves && status == 200 {
        reader.fill_buf().await?;
        return Ok(Answer { status, retry_after, text: String::new(), left: true });
    }
    let mut rest = Vec::new();
    reader.read_to_end(&mut rest).await?;
    let text = String::from_utf8(rest).unwrap();
    // Chunks are not taken apart; each is a whole piece of what the replica wrote.
    Ok(Answer { status, retry_after, text, left: false })
}

/// Reads a head: its first line under the empty name, headers in lower case.
async fn read_head(
    reader: &mut BufReader<TcpStream>,
) -> io::Result<Option<BTreeMap<String, String>>> {
    let mut head = BTreeMap::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.trim_end();
        if line.is_empty() {
            return Ok(Some(head));
        }
        match line.split_once(": ") {
            Some((name, value)) => head.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => head.insert(String::new(), line.to_owned()),
        };
    }
}

async fn replica(listener: TcpListener, is_busy: bool, gate: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((stream, _)) = listener.accept().await {
        let gate = gate.clone();
        connections.spawn(async move {
            // A client that hangs up has what it wanted.
            _ = serve(BufReader::new(stream), is_busy, gate).await;
        });
    }
}

async fn serve(
    mut reader: BufReader<TcpStream>,
    is_busy: bool,
    mut gate: watch::Receiver<bool>,
) -> io::Result<()> {
    while let Some(head) = read_head(&mut reader).await? {
        let length = head.get("content-length").map_or(0, |it| it.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).await?;
        let body = String::from_utf8(body).unwrap();
        let path = head[""].split(' ').nth(1).unwrap().to_owned();
        let plain = |status: &str, text: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{text}", text.len())
        };
        if path == "/v1/models" {
            let list = r#"{"object":"list","data":[{"id":"m","object":"model"}]}"#;
            reader.write_all(plain("200 OK", list).as_bytes()).await?;
        } else if path == "/health" {
            reader.write_all(plain("200 OK", "").as_bytes()).await?;
        } else if path != "/v1/chat/completions" {
            reader.write_all(plain("404 Not Found", "").as_bytes()).await?;
        } else if is_busy && body.contains("Busy") {
            reader.write_all(plain("429 Too Many Requests", "").as_bytes()).await?;
        } else if !body.contains("\"stream\":true") {
            reader.write_all(plain("200 OK", "{}").as_bytes()).await?;
        } else {
            let chunk = |text: &str| format!("{:x}\r\n{text}\r\n", text.len());
            let begin = chunk(&EVENT.repeat(EVENTS[0]));
            reader.write_all((HEAD.to_owned() + &begin).as_bytes()).await?;
            _ = gate.wait_for(|is_open| *is_open).await;
            for _ in 0..EVENTS[1] {
                reader.write_all(chunk(EVENT).as_bytes()).await?;
            }
            reader.write_all((chunk(DONE) + "0\r\n\r\n").as_bytes()).await?;
        }
    }
    Ok(())
}
