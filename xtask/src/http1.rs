//! Just enough HTTP/1.1 for both ends of a measurement. A library would cost as much processor time
//! per message as the proxies under test, and so hide the differences between them.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const BUFFER_BYTES: usize = 256 * 1024;
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Nothing takes this long unless it is lost; a hang behind a long prompt takes half a minute to find.
const LOST_AFTER: Duration = Duration::from_secs(120);

/// A page of figures is read at once or not at all.
const PAGE_LIMIT: Duration = Duration::from_secs(5);

/// How much follows a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Length {
    Known(usize),
    Chunked,
}

/// What matters of a request's or an answer's head.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) first_line: String,
    pub(crate) length: Length,
    pub(crate) closes: bool,
    headers: Vec<(String, String)>,
}

impl Head {
    pub(crate) fn is_success(&self) -> bool {
        self.status() == 200
    }

    /// Returns an answer's status; 0 when it has none.
    pub(crate) fn status(&self) -> u16 {
        self.first_line.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0)
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|it| it.0.eq_ignore_ascii_case(name));
        found.map(|it| it.1.as_str())
    }

    /// All headers but those that say how much follows.
    pub(crate) fn headers(&self) -> &[(String, String)] {
        &self.headers
    }

    fn parse(bytes: &[u8]) -> io::Result<Self> {
        let text = str::from_utf8(bytes).map_err(|_| broken("head is not text"))?;
        let mut lines = text.split("\r\n");
        let mut head = Self {
            first_line: lines.next().unwrap_or_default().to_owned(),
            length: Length::Known(0),
            closes: false,
            headers: Vec::new(),
        };
        for (name, value) in lines.filter_map(|it| it.split_once(':')) {
            let value = value.trim();
            if name.eq_ignore_ascii_case("content-length") {
                let bytes = value.parse().map_err(|_| broken("length is not a number"))?;
                head.length = Length::Known(bytes);
            } else if name.eq_ignore_ascii_case("transfer-encoding") {
                head.length = Length::Chunked;
            } else if name.eq_ignore_ascii_case("connection") {
                head.closes = value.eq_ignore_ascii_case("close");
            } else {
                head.headers.push((name.to_owned(), value.to_owned()));
            }
        }
        Ok(head)
    }
}

fn broken(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Says whether a GET of `path` is answered with 200 now.
pub(crate) fn is_up(address: SocketAddr, path: &str) -> bool {
    let ask = || {
        let mut connection = Connection::to(address)?;
        connection.set_limit(PAGE_LIMIT)?;
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
        connection.write(request.as_bytes())?;
        connection.read_head()
    };
    ask().is_ok_and(|head: Option<Head>| head.is_some_and(|it| it.is_success()))
}

/// Reads a page over a connection of its own.
pub(crate) fn get_as(token: &str, address: SocketAddr, path: &str) -> io::Result<(Head, Vec<u8>)> {
    let mut connection = Connection::to(address)?;
    connection.set_limit(PAGE_LIMIT)?;
    connection.ask(&format!(
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
    ))
}

/// Posts a JSON body over a connection of its own.
pub(crate) fn post(address: SocketAddr, path: &str, body: &str) -> io::Result<(Head, Vec<u8>)> {
    let mut connection = Connection::to(address)?;
    let length = body.len();
    connection.ask(&format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
    ))
}

/// Finds a free port. Another process may take it before its user does; then that start fails and
/// says so.
pub(crate) fn free_address() -> io::Result<SocketAddr> {
    TcpListener::bind("127.0.0.1:0")?.local_addr()
}

/// One connection and the bytes that have arrived and not been used.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
}

impl Connection {
    pub(crate) fn to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(LOST_AFTER))?;
        stream.set_write_timeout(Some(LOST_AFTER))?;
        Self::over(stream)
    }

    /// Takes over an accepted connection, which may idle for as long as the other side likes.
    pub(crate) fn over(stream: TcpStream) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER_BYTES], begin: 0, end: 0 })
    }

    /// Waits no longer than `limit` for the other side.
    pub(crate) fn set_limit(&self, limit: Duration) -> io::Result<()> {
        self.stream.set_read_timeout(Some(limit))?;
        self.stream.set_write_timeout(Some(limit))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request and reads its whole answer.
    fn ask(&mut self, request: &str) -> io::Result<(Head, Vec<u8>)> {
        self.write(request.as_bytes())?;
        let head = self.read_head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let mut body = Vec::new();
        self.read_body(head.length, |piece| {
            body.extend_from_slice(piece);
            Ok(())
        })?;
        Ok((head, body))
    }

    /// Reads one head; none when the other side closed between messages.
    pub(crate) fn read_head(&mut self) -> io::Result<Option<Head>> {
        loop {
            let waiting = &self.buffer[self.begin..self.end];
            if let Some(length) = waiting.windows(4).position(|it| it == b"\r\n\r\n") {
                let head = Head::parse(&waiting[..length])?;
                self.begin += length + 4;
                return Ok(Some(head));
            }
            if HEAD_BYTES_MAX < waiting.len() {
                return Err(broken("head is too long"));
            }
            let was_empty = waiting.is_empty();
            match self.fill() {
                Err(error) if was_empty && error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Ok(None);
                }
                other => other?,
            }
        }
    }

    /// Reads one body and shows every piece of it as it arrives, without its framing.
    pub(crate) fn read_body(
        &mut self,
        length: Length,
        mut piece: impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        match length {
            Length::Known(bytes) => self.take(bytes, &mut piece),
            Length::Chunked => loop {
                let size = self.read_chunk_size()?;
                self.take(size, &mut piece)?;
                self.take(2, &mut |_| Ok(()))?;
                if size == 0 {
                    return Ok(());
                }
            },
        }
    }

    fn take(
        &mut self,
        mut bytes: usize,
        piece: &mut impl FnMut(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        while 0 < bytes {
            if self.begin == self.end {
                self.fill()?;
            }
            let now = bytes.min(self.end - self.begin);
            piece(&self.buffer[self.begin..self.begin + now])?;
            self.begin += now;
            bytes -= now;
        }
        Ok(())
    }

    fn read_chunk_size(&mut self) -> io::Result<usize> {
        loop {
            let waiting = &self.buffer[self.begin..self.end];
            if let Some(length) = waiting.iter().position(|it| *it == b'\n') {
                let line = str::from_utf8(&waiting[..length]).map_err(|_| broken("chunk size"))?;
                let digits = line.trim_end().split(';').next().unwrap_or_default();
                let size = usize::from_str_radix(digits, 16).map_err(|_| broken("chunk size"))?;
                self.begin += length + 1;
                return Ok(size);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.begin == self.end {
            (self.begin, self.end) = (0, 0);
        } else if self.end == self.buffer.len() {
            self.buffer.copy_within(self.begin..self.end, 0);
            (self.begin, self.end) = (0, self.end - self.begin);
        }
        let count = loop {
            match self.stream.read(&mut self.buffer[self.end..]) {
                // A signal to this process says nothing of the other side.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                read => break read?,
            }
        };
        self.end += count;
        if 0 < count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Shutdown;

    use super::*;

    /// Sends `bytes` and closes, and gives the connection that receives them.
    fn receiving(bytes: &[u8]) -> Connection {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        sender.write_all(bytes).unwrap();
        sender.shutdown(Shutdown::Write).unwrap();
        Connection::over(listener.accept().unwrap().0).unwrap()
    }

    fn body(connection: &mut Connection) -> Vec<u8> {
        let head = connection.read_head().unwrap().unwrap();
        let mut body = Vec::new();
        connection
            .read_body(head.length, |it| {
                body.extend_from_slice(it);
                Ok(())
            })
            .unwrap();
        body
    }

    #[test]
    fn bodies_of_known_length_follow_each_other() {
        let mut connection = receiving(
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nabHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nc",
        );
        assert_eq!(body(&mut connection), b"ab");
        assert_eq!(body(&mut connection), b"c");
        assert_eq!(connection.read_head().unwrap(), None);
    }

    #[test]
    fn chunks_are_joined_and_their_framing_is_gone() {
        let mut connection = receiving(
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n1;x=y\r\nd\r\n0\r\n\r\n",
        );
        assert_eq!(body(&mut connection), b"abcd");
        assert_eq!(connection.read_head().unwrap(), None);
    }

    #[test]
    fn a_cut_body_is_an_error() {
        let mut connection = receiving(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab");
        let head = connection.read_head().unwrap().unwrap();
        assert!(connection.read_body(head.length, |_| Ok(())).is_err());
    }

    #[test]
    fn a_head_says_what_matters() {
        let head = Head::parse(b"HTTP/1.1 502 Bad\r\nConnection: Close").unwrap();
        assert!(!head.is_success());
        assert!(head.closes);
    }
}
