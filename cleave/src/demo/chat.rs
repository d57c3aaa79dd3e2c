//! One turn of a chat over HTTP, as an `OpenAI` client does it: the whole history goes out, the
//! answer comes back as server-sent events. It sends no session id, because most clients send none;
//! knowing the conversation again is the router's business.

use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::TokioExecutor;
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use super::fleet::{MODEL, replica_number};
use super::tally::Sample;

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
struct Body<'a> {
    model: &'static str,
    messages: &'a [Message],
    stream: bool,
    stream_options: StreamOptions,
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

#[derive(Debug, Deserialize)]
struct Event {
    #[serde(default)]
    choices: Vec<Choice>,
    usage: Option<Usage>,
}

#[derive(Debug, Deserialize)]
struct Choice {
    delta: Delta,
}

#[derive(Debug, Deserialize)]
struct Delta {
    #[serde(default)]
    content: String,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Usage {
    prompt_tokens: u32,
    completion_tokens: u32,
    prompt_tokens_details: Details,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Details {
    cached_tokens: u32,
}

/// An answer as it arrives.
#[derive(Debug, Default)]
struct Arriving {
    /// Bytes of a line that is not whole yet.
    rest: Vec<u8>,
    text: String,
    first_token: Option<Duration>,
    usage: Option<Usage>,
    is_done: bool,
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
        let body = Body { model: MODEL, messages, stream: true, stream_options };
        let request = Request::post(&self.url)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(&body)?))?;
        let sent_at = Instant::now();
        let response = self.http.request(request).await.map_err(root)?;
        let status = response.status();
        ensure!(status.is_success(), "the router answered {status}");
        let named = response.headers().get("x-mock-replica").and_then(|it| it.to_str().ok());
        let replica = named.and_then(replica_number).context("no replica of the demo answered")?;
        let mut body = response.into_body();
        let mut arriving = Arriving::default();
        while let Some(frame) = body.frame().await {
            if let Ok(data) = frame?.into_data() {
                arriving.take(&data, sent_at.elapsed())?;
            }
        }
        let Arriving { text, first_token: Some(ttft), usage: Some(usage), is_done: true, .. } =
            arriving
        else {
            bail!("the stream ended before the answer did");
        };
        let sample = Sample {
            replica,
            ttft,
            prompt_tokens: usage.prompt_tokens,
            cached_tokens: usage.prompt_tokens_details.cached_tokens,
            output_tokens: usage.completion_tokens,
        };
        Ok((text, sample))
    }
}

/// Drops the wrapping that says only that a client failed.
fn root(error: legacy::Error) -> anyhow::Error {
    anyhow::Error::from(error).context("cannot reach the router")
}

impl Arriving {
    /// Takes in the bytes that came `after` this time.
    fn take(&mut self, bytes: &[u8], after: Duration) -> anyhow::Result<()> {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.iter().rposition(|it| *it == b'\n').map_or(0, |it| it + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        for line in lines.split(|it| *it == b'\n') {
            match line.strip_prefix(b"data: ") {
                None => {}
                Some(b"[DONE]") => self.is_done = true,
                Some(data) => self.note(serde_json::from_slice(data)?, after),
            }
        }
        Ok(())
    }

    fn note(&mut self, event: Event, after: Duration) {
        for choice in event.choices {
            if !choice.delta.content.is_empty() {
                self.first_token.get_or_insert(after);
                self.text.push_str(&choice.delta.content);
            }
        }
        self.usage = event.usage.or(self.usage);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &str = "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\"Lorem\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{\"content\":\" ipsum\"}}]}\n\n\
        data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\
        \"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n\
        data: [DONE]\n\n";

    #[test]
    fn an_answer_reads_the_same_however_it_is_cut() {
        for piece in [1, 7, 64, STREAM.len()] {
            let mut arriving = Arriving::default();
            for bytes in STREAM.as_bytes().chunks(piece) {
                arriving.take(bytes, Duration::ZERO).unwrap();
            }
            assert_eq!(arriving.text, "Lorem ipsum");
            assert_eq!(arriving.usage.unwrap().prompt_tokens_details.cached_tokens, 4);
            assert!(arriving.is_done);
        }
    }

    #[test]
    fn the_first_token_is_the_first_text_not_the_first_event() {
        let mut arriving = Arriving::default();
        let events: Vec<&str> = STREAM.split_inclusive("\n\n").collect();
        for (event, second) in events.into_iter().zip(0..) {
            arriving.take(event.as_bytes(), Duration::from_secs(second)).unwrap();
        }
        assert_eq!(arriving.first_token, Some(Duration::from_secs(1)));
    }
}
