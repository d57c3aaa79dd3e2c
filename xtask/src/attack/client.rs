//! An attacker's ways to speak to the router: a request with any head and body, sent whole; and bare
//! sockets for whatever is not a whole request.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};

use crate::answer;
use crate::http1::{Connection, Head};

/// How long an answer may take before it counts as none.
pub(super) const IO_TIMEOUT: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) head: Head,
    pub(super) body: Vec<u8>,
}

impl Answer {
    pub(super) fn status(&self) -> u16 {
        self.head.status()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The reason of a refusal, or the status.
    pub(super) fn code(&self) -> String {
        let stream = String::from_utf8_lossy(&self.body);
        let told = answer::code(&self.body).or_else(|| answer::error_event(&stream));
        told.unwrap_or_else(|| self.status().to_string())
    }

    /// The whole head as text, to be searched for what should not be there.
    pub(super) fn head_text(&self) -> String {
        let lines = self.head.headers().iter().map(|it| format!("{}: {}\n", it.0, it.1));
        format!("{}\n{}", self.head.first_line, lines.collect::<String>())
    }
}

/// Writes a request. `headers` are whole lines, each with its end.
pub(super) fn request(
    method: &str,
    target: &str,
    key: Option<&str>,
    headers: &str,
    body: &str,
) -> String {
    let key = key.map(|it| format!("authorization: Bearer {it}\r\n")).unwrap_or_default();
    let kind = if headers.to_ascii_lowercase().contains("content-type:") {
        ""
    } else {
        "content-type: application/json\r\n"
    };
    let length = body.len();
    format!(
        "{method} {target} HTTP/1.1\r\nhost: router\r\n{key}{kind}{headers}connection: close\r\ncontent-length: {length}\r\n\r\n{body}"
    )
}

/// Sends what is given as it is and reads one answer.
pub(super) fn exchange(address: SocketAddr, request: &[u8]) -> io::Result<Answer> {
    let mut connection = Connection::to(address)?;
    connection.set_limit(IO_TIMEOUT)?;
    connection.write(request)?;
    read_answer(&mut connection)
}

/// Reads one answer; one that is only interim is passed over.
pub(super) fn read_answer(connection: &mut Connection) -> io::Result<Answer> {
    loop {
        let head = connection.read_head()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        if (100..200).contains(&head.status()) {
            continue;
        }
        let mut body = Vec::new();
        connection.read_body(head.length, |piece| {
            body.extend_from_slice(piece);
            Ok(())
        })?;
        return Ok(Answer { head, body });
    }
}

/// Posts a JSON body.
pub(super) fn post(
    address: SocketAddr,
    key: Option<&str>,
    target: &str,
    headers: &str,
    body: &str,
) -> io::Result<Answer> {
    exchange(address, request("POST", target, key, headers, body).as_bytes())
}

/// Writes a chat; `more` are further fields, each with a comma before it.
pub(super) fn chat(prompt: &str, more: &str) -> String {
    format!(
        r#"{{"model":"m","max_tokens":8,"messages":[{{"role":"user","content":"{prompt}"}}]{more}}}"#
    )
}

/// A connection over which anything may be written.
pub(super) fn bare(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    Ok(stream)
}

/// A connection from another address of this machine: a client that is not the bystanders' neighbour.
pub(super) fn bare_from(source: Ipv4Addr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((source, 0)).into())?;
    socket.connect_timeout(&address.into(), Duration::from_secs(1))?;
    let stream: TcpStream = socket.into();
    stream.set_read_timeout(Some(IO_TIMEOUT))?;
    stream.set_write_timeout(Some(IO_TIMEOUT))?;
    Ok(stream)
}

/// Writes bytes and reads whatever comes until the other side closes or `limit` passes.
pub(super) fn say_and_listen(
    address: SocketAddr,
    bytes: &[u8],
    limit: Duration,
) -> io::Result<Vec<u8>> {
    let mut stream = bare(address)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(bytes)?;
    let mut heard = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return Ok(heard),
            Ok(count) => heard.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Asks `count` honest questions at once, whose answers take a second; returns how many were answered, and how long the last took.
pub(super) fn crowd(address: SocketAddr, key: &str, count: usize) -> (usize, Duration) {
    let began = Instant::now();
    let answered = thread::scope(|scope| {
        let ask = |number: usize| {
            let body = chat(&format!("newcomer {number}"), r#","ignore_eos":true"#)
                .replace("\"max_tokens\":8", "\"max_tokens\":100");
            scope.spawn(move || post(address, Some(key), "/v1/chat/completions", "", &body))
        };
        let threads: Vec<_> = (0..count).map(ask).collect();
        let answers = threads.into_iter().filter_map(|it| it.join().ok()?.ok());
        answers.filter(|it| it.status() == 200).count()
    });
    (answered, began.elapsed())
}
