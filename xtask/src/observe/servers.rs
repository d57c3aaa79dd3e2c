//! Servers for what mock replicas cannot do: one that refuses the router's key, one whose engine falls silent, and a page
//! of figures as a router writes it that panics. A router has no switch for that, and needs none.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::http1::Connection;

/// For how long an engine says how loaded it is before it falls silent.
const TALKS_FOR: Duration = Duration::from_secs(8);

/// What is served.
#[derive(Clone, Copy, Debug)]
pub(super) enum Play {
    KeyRefused,
    EngineSilent,
    Panicking,
}

/// A server that runs until it is dropped.
pub(super) struct SmallServer {
    pub(super) address: SocketAddr,
    ended: Arc<AtomicBool>,
}

impl SmallServer {
    pub(super) fn start(play: Play) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let address = listener.local_addr()?;
        let (ended, began) = (Arc::new(AtomicBool::new(false)), Instant::now());
        let is_over = Arc::clone(&ended);
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if is_over.load(Relaxed) {
                    return;
                }
                thread::spawn(move || {
                    let Ok(mut connection) = Connection::over(stream) else { return };
                    // The other side hangs up when it has had enough.
                    while serve(&mut connection, play, began).is_ok_and(|it| it) {}
                });
            }
        });
        Ok(Self { address, ended })
    }
}

impl Drop for SmallServer {
    fn drop(&mut self) {
        self.ended.store(true, Relaxed);
        // It waits for a connection.
        _ = std::net::TcpStream::connect(self.address);
    }
}

/// Answers one request; tells whether there was one.
fn serve(connection: &mut Connection, play: Play, began: Instant) -> io::Result<bool> {
    let Some(head) = connection.read_head()? else { return Ok(false) };
    connection.read_body(head.length, |_| Ok(()))?;
    let path = head.first_line.split(' ').nth(1).unwrap_or_default();
    let (status, body) = answer(play, path, began.elapsed());
    let length = body.len();
    connection.write(
        format!("HTTP/1.1 {status}\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n\r\n{body}")
            .as_bytes(),
    )?;
    Ok(true)
}

fn answer(play: Play, path: &str, age: Duration) -> (&'static str, String) {
    match (play, path) {
        (Play::KeyRefused | Play::EngineSilent, "/health") => ("200 OK", String::new()),
        (Play::KeyRefused, _) => ("401 Unauthorized", "{}".to_owned()),
        (Play::EngineSilent, "/metrics") if age < TALKS_FOR => {
            let names = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"];
            let lines = names.map(|it| format!("vllm:{it}{{model_name=\"mute\"}} 0\n"));
            ("200 OK", lines.concat())
        }
        (Play::EngineSilent, _) => ("503 Service Unavailable", String::new()),
        (Play::Panicking, _) => {
            let seconds = age.as_secs();
            ("200 OK", format!("cleave_panics_total{{kind=\"request\"}} {seconds}\n"))
        }
    }
}
