//! A replica for very many streams: each gets an event now and then, for as long as its client
//! listens.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::sleep;

use crate::bench::mock::MODEL;

const REQUEST_BYTES_MAX: usize = 64 << 10;
const EVENT: &[u8] = b"8c\r\ndata: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n\r\n";
const STREAM_HEAD: &[u8] =
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Serves until the process is ended, on an address it prints.
pub(super) async fn serve(pace: Duration) -> io::Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        if let Ok((stream, _)) = listener.accept().await {
            // A connection that breaks is the proxy's doing, and its own count will show it.
            connections.spawn(async move { _ = answer(stream, pace).await });
        }
    }
}

async fn answer(mut stream: TcpStream, pace: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::with_capacity(2048);
    loop {
        buffer.clear();
        let Some(streams) = read_request(&mut stream, &mut buffer).await? else { return Ok(()) };
        if streams {
            stream.write_all(STREAM_HEAD).await?;
            // Ten thousand of these are held.
            drop(buffer);
            loop {
                stream.write_all(EVENT).await?;
                sleep(pace).await;
            }
        }
        let body = format!(
            r#"{{"object":"list","data":[{{"id":"{MODEL}","object":"model"}}],"choices":[]}}"#
        );
        let length = body.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all((head + &body).as_bytes()).await?;
    }
}

/// Reads one request; tells whether it asks for a stream. None when the proxy has closed.
async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> io::Result<Option<bool>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|it| it == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).to_ascii_lowercase();
            let length = head.lines().find_map(|it| it.strip_prefix("content-length:"));
            let length: usize = length.and_then(|it| it.trim().parse().ok()).unwrap_or(0);
            if end + 4 + length <= buffer.len() {
                let wanted = b"\"stream\":true";
                let body = &buffer[end + 4..];
                return Ok(Some(body.windows(wanted.len()).any(|it| it == wanted)));
            }
        }
        if REQUEST_BYTES_MAX < buffer.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}
