//! A client that says exactly what it is told to, and shows exactly what came back.

use std::net::SocketAddr;

use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpSocket, TcpStream};

use super::wire::{Cut, Head, Wire};

/// JSON of any form, for tests that look at a few values of a page.
#[expect(clippy::disallowed_types, reason = "tests look into pages of every shape")]
pub(crate) type Json = serde_json::Value;

/// A request in the making.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    first_line: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Vec<u8>,
}

impl Request {
    pub(crate) fn get(path: &str) -> Self {
        let first_line = format!("GET {path} HTTP/1.1");
        Self { first_line, headers: Vec::new(), body: Vec::new() }.header("host", "localhost")
    }

    /// A POST of a JSON body.
    pub(crate) fn post(path: &str, body: impl Into<Vec<u8>>) -> Self {
        Self::post_as(path, "application/json", body)
    }

    pub(crate) fn post_as(path: &str, kind: &str, body: impl Into<Vec<u8>>) -> Self {
        let body = body.into();
        let first_line = format!("POST {path} HTTP/1.1");
        let length = body.len().to_string();
        Self { first_line, headers: Vec::new(), body }
            .header("host", "localhost")
            .header("content-type", kind)
            .header("content-length", length)
    }

    /// One turn of a chat.
    pub(crate) fn chat(text: &str) -> Self {
        Self::post("/v1/chat/completions", chat_body(text, ""))
    }

    /// One turn of a chat whose answer is streamed.
    pub(crate) fn stream(text: &str) -> Self {
        Self::post("/v1/chat/completions", chat_body(text, r#","stream":true"#))
    }

    pub(crate) fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.headers.push((name.to_owned(), value.as_ref().to_owned()));
        self
    }

    pub(crate) fn session(self, id: &str) -> Self {
        self.header("x-session-id", id)
    }

    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut out = format!("{}\r\n", self.first_line).into_bytes();
        for (name, value) in &self.headers {
            out.extend_from_slice(name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(value);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(&self.body);
        out
    }
}

fn chat_body(text: &str, more: &str) -> String {
    format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":"{text}"}}],"max_tokens":16{more}}}"#
    )
}

/// A whole answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

/// An error as OpenAI writes it.
#[derive(Debug, Deserialize)]
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) r#type: String,
    pub(crate) code: String,
}

#[derive(Deserialize)]
struct OpenAi {
    error: Refusal,
}

impl Answer {
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.header(name)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    /// Reads the body as JSON.
    pub(crate) fn json(&self) -> Json {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", self.status(), self.text()))
    }

    /// Reads the error, which must have OpenAI's form.
    pub(crate) fn refusal(&self) -> Refusal {
        let body: OpenAi = serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {} {:?}", self.status(), self.text()));
        assert_eq!(self.header("content-type"), Some("application/json"));
        body.error
    }
}

impl Wire<TcpStream> {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.expect("the router listens");
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }

    /// Connects from another address of this machine, 127.0.0.`host`.
    pub(crate) async fn connect_from(host: u8, address: SocketAddr) -> Self {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(([127, 0, 0, host], 0).into()).unwrap();
        let stream = socket.connect(address).await.expect("the router listens");
        stream.set_nodelay(true).unwrap();
        Self::over(stream)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    /// Sends a request and reads its whole answer.
    pub(crate) async fn ask(&mut self, request: &Request) -> Answer {
        self.send(&request.bytes()).await;
        self.answer().await
    }

    pub(crate) async fn answer(&mut self) -> Answer {
        self.try_answer().await.expect("an answer, whole")
    }

    pub(crate) async fn try_answer(&mut self) -> Result<Answer, Cut> {
        let head = self.head().await.ok_or(Cut)?;
        Ok(Answer { head, body: self.body().await? })
    }
}

/// Sends one request on a connection of its own.
pub(crate) async fn ask(address: SocketAddr, request: &Request) -> Answer {
    Wire::connect(address).await.ask(request).await
}
