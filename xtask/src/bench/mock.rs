//! The fast replica that every proxy is measured in front of: ready-made answers, one thread per
//! connection, no thinking. The product's own mock replica imitates an engine and would be the
//! slowest part of the measurement.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::http1::{Connection, Head, Length};

pub(super) const MODEL: &str = "bench";
pub(super) const STREAM_CHUNKS: u32 = 200;

/// A request above this size is never looked into.
const STREAM_REQUEST_BYTES_MAX: usize = 4096;

/// The replica's address and its one setting. It ends with the process.
#[derive(Debug)]
pub(super) struct BenchMock {
    pub(super) address: SocketAddr,
    pace_us: Arc<AtomicU64>,
}

struct Answers {
    chat: Vec<u8>,
    models: Vec<u8>,
    empty: Vec<u8>,
    stream_head: Vec<u8>,
    events: Vec<Vec<u8>>,
}

impl BenchMock {
    /// Serves on a port of the kernel's choice.
    pub(super) fn start() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mock = Self { address: listener.local_addr()?, pace_us: Arc::default() };
        let answers = Arc::new(Answers::new());
        let pace_us = Arc::clone(&mock.pace_us);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (answers, pace_us) = (Arc::clone(&answers), Arc::clone(&pace_us));
                // A connection that breaks is the proxy's doing, and its own count will show it.
                thread::spawn(move || _ = serve(stream, &answers, &pace_us));
            }
        });
        Ok(mock)
    }

    /// Sets the time between two chunks of every stream; zero means as fast as possible.
    pub(super) fn pace(&self, pace: Duration) {
        self.pace_us.store(u64::try_from(pace.as_micros()).unwrap_or(u64::MAX), Relaxed);
    }
}

fn serve(stream: TcpStream, answers: &Answers, pace_us: &AtomicU64) -> io::Result<()> {
    let mut connection = Connection::over(stream)?;
    // Proxies keep idle connections for longer than a cell lasts.
    while let Some(head) = connection.read_head()? {
        let streams = read_request(&mut connection, &head)?;
        if streams {
            send_stream(&mut connection, answers, Duration::from_micros(pace_us.load(Relaxed)))?;
        } else if head.first_line.starts_with("POST ") {
            connection.write(&answers.chat)?;
        } else if head.first_line.contains("/v1/models") {
            connection.write(&answers.models)?;
        } else {
            connection.write(&answers.empty)?;
        }
        if head.closes {
            break;
        }
    }
    Ok(())
}

/// Reads a body and tells whether it asks for a stream.
fn read_request(connection: &mut Connection, head: &Head) -> io::Result<bool> {
    if let Length::Known(bytes) = head.length
        && STREAM_REQUEST_BYTES_MAX < bytes
    {
        connection.read_body(head.length, |_| Ok(()))?;
        return Ok(false);
    }
    let mut body = Vec::new();
    connection.read_body(head.length, |piece| {
        if body.len() < STREAM_REQUEST_BYTES_MAX {
            body.extend_from_slice(piece);
        }
        Ok(())
    })?;
    let wanted = b"\"stream\":true";
    Ok(body.windows(wanted.len()).any(|it| it == wanted))
}

fn send_stream(connection: &mut Connection, answers: &Answers, pace: Duration) -> io::Result<()> {
    connection.write(&answers.stream_head)?;
    let mut next = Instant::now();
    for event in &answers.events {
        thread::sleep(next.saturating_duration_since(Instant::now()));
        connection.write(event)?;
        next += pace;
    }
    connection.write(b"0\r\n\r\n")
}

impl Answers {
    fn new() -> Self {
        let text = "All happy replicas are alike; each slow one is slow in its own way. ".repeat(9);
        let chat = format!(
            r#"{{"id":"chatcmpl-1","object":"chat.completion","created":1,"model":"{MODEL}","choices":[{{"index":0,"message":{{"role":"assistant","content":"{text}"}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":256,"completion_tokens":128,"total_tokens":384}}}}"#
        );
        let models = format!(
            r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model","created":1,"owned_by":"bench"}}]}}"#
        );
        let stream_head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";
        Self {
            chat: json(&chat),
            models: json(&models),
            empty: json("{}"),
            stream_head: stream_head.into(),
            events: (0..STREAM_CHUNKS).map(event).collect(),
        }
    }
}

fn json(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}").into()
}

/// Writes one event of about 200 bytes, framed as a chunk. The text differs from event to event,
/// because some clients take a stream of equal chunks for a fault.
fn event(number: u32) -> Vec<u8> {
    let data = if number + 1 == STREAM_CHUNKS {
        "data: [DONE]\n\n".to_owned()
    } else {
        format!(
            "data: {{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"{MODEL}\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\" word {number:04} of the answer\"}},\"finish_reason\":null}}]}}\n\n"
        )
    };
    format!("{:x}\r\n{data}\r\n", data.len()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(mock: &BenchMock, body: &str) -> Vec<u8> {
        let mut connection = Connection::to(mock.address).unwrap();
        let length = body.len();
        let request =
            format!("POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {length}\r\n\r\n{body}");
        connection.write(request.as_bytes()).unwrap();
        let head = connection.read_head().unwrap().unwrap();
        assert!(head.is_success());
        let mut answer = Vec::new();
        connection
            .read_body(head.length, |it| {
                answer.extend_from_slice(it);
                Ok(())
            })
            .unwrap();
        answer
    }

    #[test]
    fn a_chat_gets_about_a_kilobyte() {
        let answer = ask(&BenchMock::start().unwrap(), r#"{"model":"bench"}"#);
        assert!((700..1200).contains(&answer.len()), "{} bytes", answer.len());
    }

    #[test]
    fn a_stream_gets_all_its_events_and_no_two_alike() {
        let answer = ask(&BenchMock::start().unwrap(), r#"{"model":"bench","stream":true}"#);
        let answer = String::from_utf8(answer).unwrap();
        let events: std::collections::BTreeSet<&str> = answer.split_terminator("\n\n").collect();
        assert_eq!(u32::try_from(events.len()).unwrap(), STREAM_CHUNKS);
        assert!(answer.ends_with("data: [DONE]\n\n"));
    }
}
