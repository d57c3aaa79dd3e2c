//! A client that speaks HTTP/2 from the first byte, over any connection.

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::WAIT_MAX;

#[derive(Debug)]
pub(crate) struct Http2 {
    sender: SendRequest<Full<Bytes>>,
    /// Drives the connection, and hangs up when dropped.
    _connection: JoinSet<()>,
}

impl Http2 {
    pub(crate) async fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self::with_window(1 << 20, stream).await
    }

    /// Takes no more than `bytes` of an answer that is not read.
    pub(crate) async fn with_window(
        bytes: u32,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    ) -> Self {
        let mut builder = Builder::new(TokioExecutor::new());
        builder.initial_stream_window_size(bytes);
        let shaken = builder.handshake(TokioIo::new(stream)).await;
        let (sender, driver) = shaken.expect("the router speaks HTTP/2");
        let mut connection = JoinSet::new();
        connection.spawn(async move { _ = driver.await });
        Self { sender, _connection: connection }
    }

    /// Posts a JSON body and waits for the head of its answer.
    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Response<Incoming> {
        self.send("POST", path, body).await
    }

    /// Asks with any method and waits for the head of the answer.
    pub(crate) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: &str,
    ) -> Response<Incoming> {
        let request = Request::builder()
            .method(method)
            .uri(format!("http://router{path}"))
            .header("content-type", "application/json")
            .body(Full::from(body.to_owned()))
            .unwrap();
        let answer = timeout(WAIT_MAX, self.sender.send_request(request)).await;
        answer.expect("an answer comes in time").expect("the stream stands")
    }
}

/// Takes the next piece of an answer; none at its end, which may come in a frame of its own.
pub(crate) async fn next_piece(body: &mut Incoming) -> Option<Bytes> {
    loop {
        let frame = timeout(WAIT_MAX, body.frame()).await.expect("a piece comes in time")?;
        let data = frame.expect("the stream stands").into_data().ok()?;
        if !data.is_empty() {
            return Some(data);
        }
    }
}
