//! One turn of a chat over HTTP, as an `OpenAI` client does it: the whole history goes out, the
//! answer comes back as server-sent events. It sends no session id, because most clients send none;
//! knowing the conversation again is the router's business.

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::Full;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use tokio::time::Instant;

use super::fleet::{MODEL, replica_number};
use super::tally::Sample;
use crate::stream;

/// One message of a conversation, with its role.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Message {
    pub(super) role: &'static str,
    pub(super) content: String,
}

/// Speaks to the router; clones share their connections.
#[derive(Clone, Debug)]
pub(super) struct ChatClient {
    http: Client<HttpConnector, Full<Bytes>>,
    url: String,
}

#[derive(Serialize)]
struct TurnBody<'a> {
    model: &'static str,
    messages: &'a [Message],
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

impl ChatClient {
    pub(super) fn new(base: &str) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http = Client::builder(TokioExecutor::new()).build(connector);
        Self { http, url: format!("{base}/v1/chat/completions") }
    }

    /// Sends the history and returns the answer and what it cost.
    pub(super) async fn ask(&self, messages: &[Message]) -> anyhow::Result<(String, Sample)> {
        let stream_options = StreamOptions { include_usage: true };
        let body = TurnBody { model: MODEL, messages, stream: true, stream_options };
        let request = Request::post(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(&body)?))?;
        let sent_at = Instant::now();
        let response = self.http.request(request).await.map_err(root)?;
        let status = response.status();
        ensure!(status.is_success(), "the router answered {status}");
        let named = response.headers().get("x-mock-replica").and_then(|it| it.to_str().ok());
        let replica = named.and_then(replica_number).context("no replica of the demo answered")?;
        let answer = stream::listen(response.into_body(), sent_at).await?;
        let sample = Sample {
            replica,
            ttft: answer.ttft(),
            prompt_tokens: answer.prompt_tokens,
            cached_tokens: answer.cached_tokens.unwrap_or(0),
            output_tokens: answer.output_tokens,
        };
        Ok((answer.text, sample))
    }
}

/// Drops the wrapping that says only that a client failed.
fn root(error: legacy::Error) -> anyhow::Error {
    anyhow::Error::from(error).context("cannot reach the router")
}
