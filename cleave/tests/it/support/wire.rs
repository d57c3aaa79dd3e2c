//! One end of an HTTP/1.1 connection, with its bytes in plain sight. A library would repair, reorder
//! or gather what these tests are about.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::WAIT_MAX;

/// A request's or an answer's head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) first_line: String,
    pub(crate) headers: Vec<(String, String)>,
}

impl Head {
    fn parse(bytes: &[u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = text.split("\r\n");
        let first_line = lines.next().unwrap_or_default().to_owned();
        let pair = |it: &str| {
            let (name, value) = it.split_once(':').unwrap_or_else(|| panic!("no header: {it:?}"));
            (name.to_ascii_lowercase(), value.trim().to_owned())
        };
        Self { first_line, headers: lines.map(pair).collect() }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|it| it.0 == name).map(|it| it.1.as_str())
    }

    pub(crate) fn status(&self) -> u16 {
        let code = self.first_line.split(' ').nth(1).and_then(|it| it.parse().ok());
        code.unwrap_or_else(|| panic!("no status line: {:?}", self.first_line))
    }

    fn framing(&self) -> Framing {
        if self.header("transfer-encoding").is_some() {
            Framing::Chunks
        } else if let Some(length) = self.header("content-length") {
            Framing::Length(length.parse().unwrap())
        } else if self.first_line.starts_with("HTTP/") {
            Framing::UntilClose
        } else {
            Framing::Length(0)
        }
    }
}

/// What is still to come of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunks,
    UntilClose,
}

/// A body that ended before it was whole.
#[derive(Debug)]
pub(crate) struct Cut;

/// A connection and the bytes that have arrived and not been used.
#[derive(Debug)]
pub(crate) struct Wire<S = TcpStream> {
    pub(crate) stream: S,
    buffer: Vec<u8>,
    left: Framing,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(crate) fn over(stream: S) -> Self {
        Self { stream, buffer: Vec::new(), left: Framing::Length(0) }
    }

    pub(crate) async fn send(&mut self, bytes: &[u8]) {
        self.try_send(bytes).await.expect("the other side takes it");
    }

    pub(crate) async fn try_send(&mut self, bytes: &[u8]) -> io::Result<()> {
        timeout(WAIT_MAX, self.stream.write_all(bytes)).await.expect("taken in time")
    }

    /// Reads one head; none when the other side closed before it.
    pub(crate) async fn head(&mut self) -> Option<Head> {
        loop {
            if let Some(end) = self.buffer.windows(4).position(|it| it == b"\r\n\r\n") {
                let head = Head::parse(&self.buffer[..end]);
                self.buffer.drain(..end + 4);
                self.left = head.framing();
                return Some(head);
            }
            if !matches!(self.fill().await, Ok(1..)) {
                return None;
            }
        }
    }

    /// Takes what has arrived of the body, without its framing; none at its end.
    pub(crate) async fn piece(&mut self) -> Result<Option<Vec<u8>>, Cut> {
        loop {
            match self.left {
                Framing::Length(0) => return Ok(None),
                Framing::Length(left) if !self.buffer.is_empty() => {
                    let piece = self.take(left.min(self.buffer.len()));
                    self.left = Framing::Length(left - piece.len());
                    return Ok(Some(piece));
                }
                Framing::UntilClose if !self.buffer.is_empty() => {
                    return Ok(Some(self.take(self.buffer.len())));
                }
                Framing::Chunks => {
                    if let Some(chunk) = self.take_chunk() {
                        if !chunk.is_empty() {
                            return Ok(Some(chunk));
                        }
                        self.left = Framing::Length(0);
                        continue;
                    }
                }
                Framing::Length(_) | Framing::UntilClose => {}
            }
            match self.fill().await {
                Ok(1..) => {}
                Ok(0) if self.left == Framing::UntilClose => return Ok(None),
                Ok(0) | Err(_) => return Err(Cut),
            }
        }
    }

    /// Reads what is left of the body.
    pub(crate) async fn body(&mut self) -> Result<Vec<u8>, Cut> {
        let mut body = Vec::new();
        while let Some(piece) = self.piece().await? {
            body.extend_from_slice(&piece);
        }
        Ok(body)
    }

    /// Waits until the other side hangs up, in whatever way. Fails when it sends anything.
    pub(crate) async fn closed(&mut self) {
        let came = self.fill().await;
        assert!(matches!(came, Ok(0) | Err(_)), "{:?}", String::from_utf8_lossy(&self.buffer));
    }

    /// Reads until the other side hangs up, whatever it sends before.
    pub(crate) async fn drained(&mut self) {
        while matches!(self.fill().await, Ok(1..)) {}
    }

    async fn fill(&mut self) -> io::Result<usize> {
        let read = timeout(WAIT_MAX, self.stream.read_buf(&mut self.buffer)).await;
        read.expect("something comes in time, or the end")
    }

    fn take(&mut self, bytes: usize) -> Vec<u8> {
        self.buffer.drain(..bytes).collect()
    }

    /// Takes one whole chunk; an empty one is the last.
    fn take_chunk(&mut self) -> Option<Vec<u8>> {
        let line = self.buffer.windows(2).position(|it| it == b"\r\n")?;
        let digits = std::str::from_utf8(&self.buffer[..line]).expect("a chunk size is text");
        let size = usize::from_str_radix(digits, 16).expect("a chunk size is hexadecimal");
        let whole = line + 2 + size + 2;
        if self.buffer.len() < whole {
            return None;
        }
        let chunk = self.take(whole);
        assert!(chunk.ends_with(b"\r\n"), "a chunk ends with CRLF");
        Some(chunk[line + 2..line + 2 + size].to_vec())
    }
}
