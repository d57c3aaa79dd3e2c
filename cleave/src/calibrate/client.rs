//! Speaks to one replica as any `OpenAI` client would: plain HTTP/1.1, streamed answers, and its own
//! clock. It tries nothing twice: a request that was repeated in secret would be measured as one.

use anyhow::{Context as _, anyhow, ensure};
use bytes::Bytes;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde::Serialize;
use tokio::time::Instant;

use crate::stream::{self, Answer};

const BODY_BYTES_MAX: usize = 8 << 20;
const REFUSAL_CHARS_MAX: usize = 300;

/// The API path of a replica, and whether it takes `ignore_eos`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestForm {
    pub(super) api: Api,
    pub(super) ignore_eos: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Api {
    Completions,
    Chat,
}

impl Api {
    const fn path(self) -> &'static str {
        match self {
            Self::Completions => "/v1/completions",
            Self::Chat => "/v1/chat/completions",
        }
    }
}

/// One request.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) prompt: String,
    pub(super) output_tokens: u32,
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum QuestionError {
    /// The replica does not want this request; it may want others.
    Refused { status: StatusCode, words: String },
    /// The replica cannot be measured.
    Broken(anyhow::Error),
}

impl QuestionError {
    pub(super) fn into_error(self) -> anyhow::Error {
        match self {
            Self::Refused { status, words } => anyhow!("the replica answered {status}: {words}"),
            Self::Broken(error) => error,
        }
    }
}

#[derive(Serialize)]
struct QuestionBody<'a> {
    model: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    messages: Option<[QuestionMessage<'a>; 1]>,
    max_tokens: u32,
    temperature: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    ignore_eos: Option<bool>,
    stream: bool,
    stream_options: UsageOption,
}

#[derive(Serialize)]
struct QuestionMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Serialize)]
struct UsageOption {
    include_usage: bool,
}

/// Asks one replica; clones share their connections.
#[derive(Clone, Debug)]
pub(super) struct ReplicaClient {
    http: Client<HttpConnector, Full<Bytes>>,
    /// Without a slash at the end.
    base: String,
}

impl ReplicaClient {
    pub(super) fn new(url: &str) -> anyhow::Result<Self> {
        let base = url.trim_end_matches('/').trim_end_matches("/v1").to_owned();
        let uri: http::Uri = base.parse().with_context(|| format!("{url:?} is no URL"))?;
        ensure!(
            uri.scheme_str() == Some("http") && uri.authority().is_some(),
            "{url:?}: give the replica's own address, as in http://gpu-0:8000 (plain HTTP)"
        );
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let http =
            Client::builder(TokioExecutor::new()).retry_canceled_requests(false).build(connector);
        Ok(Self { http, base })
    }

    pub(super) fn base(&self) -> &str {
        &self.base
    }

    /// Gets a page.
    pub(super) async fn get(&self, path: &str) -> anyhow::Result<(StatusCode, Bytes)> {
        let request = Request::get(format!("{}{path}", self.base)).body(Full::default())?;
        let response =
            self.http.request(request).await.map_err(|error| self.no_answer(path, error))?;
        Ok((response.status(), self.collect(response).await?))
    }

    /// Asks for an answer and clocks it.
    pub(super) async fn ask(
        &self,
        model: &str,
        dialect: RequestForm,
        ask: &Question,
    ) -> Result<Answer, QuestionError> {
        let (prompt, messages) = match dialect.api {
            Api::Completions => (Some(ask.prompt.as_str()), None),
            Api::Chat => (None, Some([QuestionMessage { role: "user", content: &ask.prompt }])),
        };
        let body = QuestionBody {
            model,
            prompt,
            messages,
            max_tokens: ask.output_tokens,
            temperature: 0.0,
            ignore_eos: dialect.ignore_eos.then_some(true),
            stream: true,
            stream_options: UsageOption { include_usage: true },
        };
        let request = self.post(dialect.api, &body).map_err(QuestionError::Broken)?;
        let sent_at = Instant::now();
        let response =
            self.http.request(request).await.map_err(|error| {
                QuestionError::Broken(self.no_answer(dialect.api.path(), error))
            })?;
        let status = response.status();
        if !status.is_success() {
            let words = self.collect(response).await.map_err(QuestionError::Broken)?;
            return Err(QuestionError::Refused { status, words: opening_words(&words) });
        }
        let answer = stream::listen(response.into_body(), sent_at).await;
        answer.map_err(|error| QuestionError::Broken(error.into()))
    }

    fn post(&self, api: Api, body: &QuestionBody<'_>) -> anyhow::Result<Request<Full<Bytes>>> {
        let request = Request::post(format!("{}{}", self.base, api.path()))
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::from(serde_json::to_vec(body)?))?;
        Ok(request)
    }

    async fn collect(&self, response: Response<Incoming>) -> anyhow::Result<Bytes> {
        let body = Limited::new(response.into_body(), BODY_BYTES_MAX).collect().await;
        let body = body.map_err(|error| anyhow!("{} broke off an answer: {error}", self.base))?;
        Ok(body.to_bytes())
    }

    /// Says why nothing came for a request: there is no replica, or it closed the connection.
    fn no_answer(&self, path: &str, error: hyper_util::client::legacy::Error) -> anyhow::Error {
        let base = &self.base;
        let told = if error.is_connect() {
            format!("cannot reach {base}; is the replica up, and is this its address?")
        } else {
            format!("{base} sent no HTTP answer to {path}; look into its log")
        };
        anyhow::Error::from(error).context(told)
    }
}

/// Shortens what a replica says of a request that it refuses.
pub(super) fn opening_words(body: &[u8]) -> String {
    String::from_utf8_lossy(body).chars().take(REFUSAL_CHARS_MAX).collect()
}
