//! Clients: one thread for each, one request after the other, until the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use std::io;

use crate::http1::Connection;

/// What one client does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    pub(super) model: &'static str,
    pub(super) pause: Duration,
    /// Words of a prompt.
    pub(super) words: usize,
    pub(super) tokens: u32,
    pub(super) key: Option<&'static str>,
    /// How many conversations it has; none for prompts that are all different.
    pub(super) sessions: Option<usize>,
}

/// Clients that ask until they are dropped.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    pub(super) fn start(routers: [SocketAddr; 2], clients: &[Client]) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let start = |(number, client): (usize, &Client)| {
            let (stop, client) = (Arc::clone(&stop), *client);
            thread::spawn(move || {
                for turn in 0.. {
                    if stop.load(Relaxed) {
                        return;
                    }
                    let session = client.sessions.map(|it| turn % it);
                    let id = session.unwrap_or(turn);
                    let text = format!("{number}-{id} ").repeat(client.words);
                    // What becomes of it is for the router's figures.
                    _ = ask(routers[turn % routers.len()], &client, session, &text);
                    thread::sleep(client.pause);
                }
            })
        };
        Self { threads: clients.iter().enumerate().map(start).collect(), stop }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            _ = thread.join();
        }
    }
}

/// Asks for a streamed answer and reads it to its end; returns its status.
pub(super) fn ask(
    router: SocketAddr,
    client: &Client,
    session: Option<usize>,
    text: &str,
) -> io::Result<u16> {
    let mut connection = Connection::to(router)?;
    let Client { model, tokens, .. } = client;
    let body = format!(
        r#"{{"model":"{model}","stream":true,"stream_options":{{"include_usage":true}},"max_tokens":{tokens},"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    let key = client.key.map_or(String::new(), |it| format!("Authorization: Bearer {it}\r\n"));
    let session = session.map_or(String::new(), |it| format!("X-Session-Id: s-{it}\r\n"));
    let length = body.len();
    connection.write(
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: {router}\r\nContent-Type: application/json\r\n\
             {key}{session}Connection: close\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .as_bytes(),
    )?;
    let head = connection.read_head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
    let status = head.status();
    connection.read_body(head.length, |_| Ok(()))?;
    Ok(status)
}
