//! The load: a number of connections, each a thread that asks, reads and asks again, either as fast
//! as it can or at a given pace. It reports what it saw between `measure` and `stop`; what happens
//! before is warm-up.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::mock::MODEL;
use crate::http1::Connection;

const WARM: u8 = 0;
const MEASURE: u8 = 1;
const STOP: u8 = 2;

/// What each connection does.
#[derive(Debug, Clone, Copy)]
pub(super) struct LoadPlan {
    pub(super) connections: u32,
    pub(super) body_bytes: usize,
    pub(super) streams: bool,
    /// Time between two requests of one connection; none means one after the other.
    pub(super) interval: Option<Duration>,
    /// Time over which the first requests are spread, so that connections do not march in step.
    pub(super) spread: Duration,
}

/// What was seen while it was measured.
#[derive(Debug, Default)]
pub(super) struct LoadSeen {
    pub(super) answers: u32,
    pub(super) chunks: u32,
    pub(super) errors: u32,
    pub(super) latencies: Vec<Duration>,
    pub(super) first_chunks: Vec<Duration>,
}

/// A load that is running.
#[derive(Debug)]
pub(super) struct BenchLoad {
    phase: Arc<AtomicU8>,
    threads: Vec<JoinHandle<LoadSeen>>,
}

impl BenchLoad {
    pub(super) fn start(address: SocketAddr, plan: LoadPlan) -> Self {
        let phase = Arc::new(AtomicU8::new(WARM));
        let threads = (0..plan.connections)
            .map(|nth| {
                let mut client = LoadClient::new(address, plan, nth, &phase);
                thread::spawn(move || {
                    thread::sleep(plan.spread * nth / plan.connections);
                    client.run();
                    client.seen
                })
            })
            .collect();
        Self { phase, threads }
    }

    pub(super) fn measure(&self) {
        self.phase.store(MEASURE, Relaxed);
    }

    /// Ends the measurement at once and the load as soon as its threads notice.
    pub(super) fn stop(self) -> LoadSeen {
        self.phase.store(STOP, Relaxed);
        let mut total = LoadSeen::default();
        for thread in self.threads {
            let seen = thread.join().expect("a load thread does not panic");
            total.answers += seen.answers;
            total.chunks += seen.chunks;
            total.errors += seen.errors;
            total.latencies.extend(seen.latencies);
            total.first_chunks.extend(seen.first_chunks);
        }
        total
    }
}

/// Asks once over a connection of its own; good for finding out whether a proxy is up.
pub(super) fn probe(address: SocketAddr) -> io::Result<bool> {
    let plan = LoadPlan {
        connections: 1,
        body_bytes: 1024,
        streams: false,
        interval: None,
        spread: Duration::ZERO,
    };
    let mut connection = Connection::to(address)?;
    connection.write(&request(0, plan))?;
    Ok(connection.read_head()?.is_some_and(|it| it.is_success()))
}

/// Asks `times` over one connection, each time after the whole answer to the last.
pub(super) fn ask_one_by_one(address: SocketAddr, streams: bool, times: u32) -> io::Result<()> {
    let (connections, interval, spread) = (1, None, Duration::ZERO);
    let plan = LoadPlan { connections, body_bytes: 1024, streams, interval, spread };
    let mut client = LoadClient::new(address, plan, 0, &Arc::new(AtomicU8::new(MEASURE)));
    for _ in 0..times {
        client.ask()?;
    }
    if client.seen.answers == times { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
}

struct LoadClient {
    address: SocketAddr,
    plan: LoadPlan,
    request: Vec<u8>,
    connection: Option<Connection>,
    phase: Arc<AtomicU8>,
    seen: LoadSeen,
}

impl LoadClient {
    fn new(address: SocketAddr, plan: LoadPlan, nth: u32, phase: &Arc<AtomicU8>) -> Self {
        Self {
            address,
            plan,
            request: request(nth, plan),
            connection: None,
            phase: Arc::clone(phase),
            seen: LoadSeen::default(),
        }
    }

    fn run(&mut self) {
        let mut next = Instant::now();
        while self.phase.load(Relaxed) != STOP {
            if self.ask().is_err() && self.phase.load(Relaxed) == MEASURE {
                self.seen.errors += 1;
            }
            if let Some(interval) = self.plan.interval {
                next += interval;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
        }
    }

    fn ask(&mut self) -> io::Result<()> {
        let mut connection = match self.connection.take() {
            Some(kept) => kept,
            None => Connection::to(self.address)?,
        };
        let measured_from_start = self.phase.load(Relaxed) == MEASURE;
        let began = Instant::now();
        connection.write(&self.request)?;
        let head = connection.read_head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut first_chunk = None;
        let mut line_ended = false;
        connection.read_body(head.length, |piece| {
            let phase = self.phase.load(Relaxed);
            first_chunk.get_or_insert_with(|| began.elapsed());
            if self.plan.streams && phase == MEASURE {
                self.seen.chunks += events(piece, &mut line_ended);
            }
            // A stream may last longer than a bench can wait for it.
            if phase == STOP { Err(io::ErrorKind::Interrupted.into()) } else { Ok(()) }
        })?;
        if !head.closes {
            self.connection = Some(connection);
        }
        if measured_from_start && self.phase.load(Relaxed) == MEASURE {
            self.seen.answers += u32::from(head.is_success());
            self.seen.errors += u32::from(!head.is_success());
            self.seen.latencies.push(began.elapsed());
            self.seen.first_chunks.extend(first_chunk);
        }
        Ok(())
    }
}

/// Counts the events that end in `piece`: one for every empty line.
fn events(piece: &[u8], line_ended: &mut bool) -> u32 {
    let mut count = 0;
    for &byte in piece {
        let ends_line = byte == b'\n';
        let ends_event = ends_line && *line_ended;
        count += u32::from(ends_event);
        *line_ended = ends_line && !ends_event;
    }
    count
}

/// Builds a chat request with a body of `plan.body_bytes`, in a session of its own.
fn request(nth: u32, plan: LoadPlan) -> Vec<u8> {
    let stream = if plan.streams { ",\"stream\":true" } else { "" };
    let opening = format!(
        "{{\"model\":\"{MODEL}\"{stream},\"max_tokens\":128,\"messages\":[{{\"role\":\"user\",\"content\":\""
    );
    let closing = "\"}]}";
    let text = "The quick brown fox jumps over the lazy dog, again and again.\\n";
    let room = plan.body_bytes.saturating_sub(opening.len() + closing.len());
    let mut body = opening;
    body.extend(std::iter::repeat_n(text, room / text.len()));
    body.extend(std::iter::repeat_n('.', room % text.len()));
    body.push_str(closing);
    let length = body.len();
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer bench\r\nContent-Type: application/json\r\nx-session-id: bench-{nth}\r\nContent-Length: {length}\r\n\r\n{body}"
    )
    .into()
}

#[cfg(test)]
mod tests {
    use super::super::mock::{BenchMock, STREAM_CHUNKS};
    use super::*;

    fn plan(streams: bool, body_bytes: usize) -> LoadPlan {
        LoadPlan { connections: 2, body_bytes, streams, interval: None, spread: Duration::ZERO }
    }

    #[test]
    fn a_body_has_the_size_that_was_asked_for() {
        for bytes in [1024, 8192, 1 << 20] {
            let request = request(0, plan(false, bytes));
            let head = request.windows(4).position(|it| it == b"\r\n\r\n").unwrap();
            assert_eq!(request.len() - head - 4, bytes);
        }
    }

    #[test]
    fn events_are_counted_across_pieces() {
        let mut line_ended = false;
        assert_eq!(events(b"data: a\n", &mut line_ended), 0);
        assert_eq!(events(b"\ndata: b\n\ndata: c", &mut line_ended), 2);
        assert_eq!(events(b"\n\n", &mut line_ended), 1);
    }

    #[test]
    fn an_answer_is_counted_with_its_chunks_while_it_is_measured() {
        let mock = BenchMock::start().unwrap();
        assert!(probe(mock.address).unwrap());
        for (streams, phase, answers, chunks) in
            [(false, MEASURE, 1, 0), (true, MEASURE, 1, STREAM_CHUNKS), (true, WARM, 0, 0)]
        {
            let plan = plan(streams, 1024);
            let phase = Arc::new(AtomicU8::new(phase));
            let mut client = LoadClient::new(mock.address, plan, 0, &phase);
            client.ask().unwrap();
            assert_eq!((client.seen.answers, client.seen.chunks), (answers, chunks));
            assert_eq!(client.seen.first_chunks.len(), client.seen.latencies.len());
        }
    }
}
