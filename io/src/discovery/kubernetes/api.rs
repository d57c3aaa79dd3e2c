//! The API server: how it is reached, and what is asked of it. `kube` logs in and connects; lists and watches are
//! read here, because every answer must have a limit in bytes and in time. Nothing here tries again.

use std::collections::BTreeMap;
use std::error::Error;
use std::path::Path;
use std::time::Duration;

use cleave_core::protocol::{
    BadApiAnswer, InferencePool, PodChange, PodPage, read_api_status, read_inference_pool,
    read_node_zones, read_pod_change, read_pods,
};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use kube::client::{Body, ConfigExt as _};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::Request as ApiRequest;
use kube::core::params::{ListParams, WatchParams};
use kube::{Client, Config};
use tokio::time::timeout;
use tower::{BoxError, ServiceBuilder};

use super::settings::KubernetesSettings;
use crate::discovery::found::SourceTrouble;

const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long an answer may take, a page of a list with its body.
const ANSWER_MAX: Duration = Duration::from_secs(30);
/// How soon it is noticed that the other end of a watch is gone without a word.
const KEEPALIVE: Duration = Duration::from_secs(20);
/// How long a watch lasts; the server ends it then, and the next one goes on from there.
const WATCH_SECONDS: u32 = 120;
/// A watch that says nothing for longer is dead: by then the server should have ended it.
const SILENCE_MAX: Duration = Duration::from_secs(150);
const PAGE_PODS: u32 = 500;
/// A page of pods has some 20 kB for each of them.
const PAGE_BYTES_MAX: usize = 64 << 20;
/// The store behind the API server takes no object of more than 1.5 MB.
pub(super) const OBJECT_BYTES_MAX: usize = 4 << 20;

/// One API server, with what is asked of it.
pub(super) struct Api {
    client: Client,
    /// Where the pods are.
    namespace: String,
    pods: ApiRequest,
    selector: String,
    /// What to grant where something is denied.
    rights: &'static str,
}

/// What watching pods needs.
pub(super) const POD_RIGHTS: &str =
    "grant get, list and watch on pods (deploy/kubernetes/base/rbac.yaml)";
/// What following an `InferencePool` needs.
pub(super) const POOL_RIGHTS: &str = "grant get on inferencepools, and get, list and watch on pods \
                                      (deploy/kubernetes/overlays/epp)";

/// Why the API server did not answer as it should.
#[derive(Debug)]
pub(super) enum ApiError {
    /// The version that a watch or a page asked for is too old: a new list is needed.
    Expired,
    /// What was to be changed has changed meanwhile.
    Conflict,
    Trouble(SourceTrouble),
}

impl From<BadApiAnswer> for ApiError {
    fn from(error: BadApiAnswer) -> Self {
        Self::Trouble(SourceTrouble::new("garbage", format!("the API server's answer: {error}")))
    }
}

impl Api {
    /// Reads how to log in, anew each time: credentials and certificates change. Connects to nothing yet.
    pub(super) async fn open(
        settings: &KubernetesSettings,
        kubeconfig: Option<&Path>,
        rights: &'static str,
    ) -> Result<Self, ApiError> {
        let bad = |word, what: &dyn Error| {
            let detail = format!("{}: {}", place(kubeconfig), chain(what));
            ApiError::Trouble(SourceTrouble::new(word, detail))
        };
        let config = match kubeconfig {
            None => Config::incluster().map_err(|error| bad("not_in_cluster", &error))?,
            Some(file) => {
                let read = Kubeconfig::read_from(file).map_err(|it| bad("kubeconfig", &it))?;
                let options = KubeConfigOptions::default();
                let read = Config::from_custom_kubeconfig(read, &options).await;
                read.map_err(|error| bad("kubeconfig", &error))?
            }
        };
        let client = client(&config).map_err(|error| bad("credentials", &error))?;
        let namespace =
            settings.namespace.as_deref().unwrap_or(client.default_namespace()).to_owned();
        let pods = ApiRequest::new(format!("/api/v1/namespaces/{namespace}/pods"));
        Ok(Self { client, namespace, pods, selector: settings.selector.clone(), rights })
    }

    /// The namespace that is meant where none is named.
    pub(super) fn namespace(&self) -> &str {
        self.client.default_namespace()
    }

    /// Asks for a page of the pods that match; `rest` is what the page before said of the next one.
    pub(super) async fn list(&self, rest: Option<&str>) -> Result<PodPage, ApiError> {
        let mut params = ListParams::default().labels(&self.selector).limit(PAGE_PODS);
        params.continue_token = rest.map(str::to_owned);
        let bytes = self.get(self.pods.list(&params).map_err(unaskable)?).await?;
        Ok(read_pods(&bytes)?)
    }

    /// Asks for what changed since a version, until the server ends it.
    pub(super) async fn watch(&self, version: &str) -> Result<Changes, ApiError> {
        let params = WatchParams::default().labels(&self.selector).timeout(WATCH_SECONDS);
        let request = self.pods.watch(&params, version).map_err(unaskable)?;
        let answer = timeout(ANSWER_MAX, self.send(request)).await.map_err(|_| late())??;
        Ok(Changes { body: answer.into_body(), buffer: Vec::new(), searched: 0 })
    }

    /// Asks for an `InferencePool`.
    pub(super) async fn inference_pool(&self, name: &str) -> Result<InferencePool, ApiError> {
        let namespace = &self.namespace;
        let path = format!(
            "/apis/inference.networking.k8s.io/v1/namespaces/{namespace}/inferencepools/{name}"
        );
        let request = Request::get(&path).body(Vec::new());
        let request = request.map_err(|_| super::scale::unaskable(&path))?;
        match self.get_within(request, OBJECT_BYTES_MAX).await {
            Ok(bytes) => Ok(read_inference_pool(&bytes)?),
            Err(ApiError::Trouble(it)) if it.word == "absent" => {
                let detail = format!(
                    "there is no InferencePool {name} in the namespace {namespace}: is that its name \
                     (kubernetes.inference_pool), and are the CRDs of the Gateway API Inference Extension \
                     installed (inference.networking.k8s.io/v1)? {}",
                    it.detail
                );
                Err(ApiError::Trouble(SourceTrouble::new("absent", detail)))
            }
            Err(error) => Err(error),
        }
    }

    /// Lists pods by this selector from now on.
    pub(super) fn select(&mut self, selector: &str) {
        selector.clone_into(&mut self.selector);
    }

    /// Asks for the zone of each node that has one.
    pub(super) async fn node_zones(&self) -> Result<BTreeMap<String, String>, ApiError> {
        let (mut zones, mut params) = (BTreeMap::new(), ListParams::default().limit(PAGE_PODS));
        loop {
            let request = ApiRequest::new("/api/v1/nodes").list_metadata(&params);
            let bytes = self.get(request.map_err(unaskable)?).await?;
            let (page, rest) = read_node_zones(&bytes)?;
            zones.extend(page);
            if rest.is_none() || super::roster::PODS_MAX < zones.len() {
                return Ok(zones);
            }
            params.continue_token = rest;
        }
    }

    pub(super) async fn get(&self, request: Request<Vec<u8>>) -> Result<Vec<u8>, ApiError> {
        self.get_within(request, PAGE_BYTES_MAX).await
    }

    /// Asks for something of bounded length.
    pub(super) async fn get_within(
        &self,
        request: Request<Vec<u8>>,
        bytes_max: usize,
    ) -> Result<Vec<u8>, ApiError> {
        let whole = async {
            let body = Limited::new(self.send(request).await?.into_body(), bytes_max);
            let body = body.collect().await.map_err(|error| unreachable(&*error))?;
            Ok(body.to_bytes().into())
        };
        timeout(ANSWER_MAX, whole).await.map_err(|_| late())?
    }

    async fn send(&self, request: Request<Vec<u8>>) -> Result<Response<Body>, ApiError> {
        let sent = self.client.send(request.map(Body::from)).await;
        let answer = sent.map_err(|error| unreachable(&error))?;
        if answer.status().is_success() {
            Ok(answer)
        } else {
            Err(refused(answer, self.rights).await)
        }
    }
}

/// A watch that is open.
pub(super) struct Changes {
    body: Body,
    buffer: Vec<u8>,
    /// How much of the buffer has no end of a line in it.
    searched: usize,
}

impl Changes {
    /// Waits for the next change; `None` when the server has ended the watch. May be dropped and called again.
    pub(super) async fn next(&mut self) -> Result<Option<PodChange>, ApiError> {
        loop {
            let end = self.buffer[self.searched..].iter().position(|it| *it == b'\n');
            if let Some(end) = end.map(|it| it + self.searched) {
                let change = read_pod_change(&self.buffer[..end])?;
                self.buffer.drain(..=end);
                self.searched = 0;
                return match &change {
                    PodChange::Ended(status) if status.code == 410 => Err(ApiError::Expired),
                    PodChange::Ended(status) => {
                        let detail = format!("the watch was ended: {}", plain(&status.message));
                        Err(ApiError::Trouble(SourceTrouble::new("refused", detail)))
                    }
                    PodChange::Put(_) | PodChange::Gone { .. } | PodChange::Mark { .. } => {
                        Ok(Some(change))
                    }
                };
            }
            self.searched = self.buffer.len();
            if OBJECT_BYTES_MAX < self.searched {
                let detail = "a line of the watch is longer than any pod";
                return Err(ApiError::Trouble(SourceTrouble::new("garbage", detail)));
            }
            let frame = timeout(SILENCE_MAX, self.body.frame()).await.map_err(|_| late())?;
            let Some(frame) = frame else { return Ok(None) };
            if let Ok(data) = frame.map_err(|error| unreachable(&error))?.into_data() {
                self.buffer.extend_from_slice(&data);
            }
        }
    }
}

/// Builds what sends requests: as `kube` would, but without its retries and log lines, because the caller has both.
fn client(config: &Config) -> Result<Client, kube::Error> {
    let mut http = HttpConnector::new();
    http.enforce_http(false);
    http.set_connect_timeout(Some(CONNECT_MAX));
    http.set_keepalive(Some(KEEPALIVE));
    let connector = config.rustls_https_connector_with_connector(http)?;
    let http: HttpClient<_, Body> = HttpClient::builder(TokioExecutor::new()).build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(http);
    Ok(Client::new(service, config.default_namespace.clone()))
}

async fn refused(answer: Response<Body>, rights: &str) -> ApiError {
    let status = answer.status();
    match status {
        StatusCode::GONE => return ApiError::Expired,
        StatusCode::CONFLICT => return ApiError::Conflict,
        _ => {}
    }
    let body = Limited::new(answer.into_body(), 64 << 10).collect().await;
    let said = body.ok().and_then(|it| read_api_status(&it.to_bytes())).unwrap_or_default();
    let said = format!("{} {}", status.as_u16(), plain(&said.message));
    let (word, remedy) = match status {
        StatusCode::UNAUTHORIZED => ("unauthorized", "it does not take the router's credentials"),
        StatusCode::FORBIDDEN => ("forbidden", rights),
        StatusCode::BAD_REQUEST => ("refused", "is kubernetes.selector a label selector?"),
        StatusCode::NOT_FOUND => ("absent", ""),
        _ if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            ("unavailable", "")
        }
        _ => ("refused", ""),
    };
    let remedy = if remedy.is_empty() { String::new() } else { format!("; {remedy}") };
    ApiError::Trouble(SourceTrouble::new(word, format!("the API server says {said}{remedy}")))
}

fn unreachable(error: &dyn Error) -> ApiError {
    ApiError::Trouble(SourceTrouble::new(
        "unreachable",
        format!("the API server: {}", chain(error)),
    ))
}

fn late() -> ApiError {
    let detail = "the API server does not answer in time";
    ApiError::Trouble(SourceTrouble::new("unreachable", detail))
}

fn unaskable(error: kube::core::request::Error) -> ApiError {
    ApiError::Trouble(SourceTrouble::new("refused", format!("it cannot be asked: {error}")))
}

fn place(kubeconfig: Option<&Path>) -> String {
    kubeconfig.map_or_else(|| "in the router's own pod".to_owned(), |it| it.display().to_string())
}

/// Writes an error with all its causes, each said once.
fn chain(error: &dyn Error) -> String {
    let mut text = plain(&error.to_string());
    let mut cause = error.source();
    while let Some(it) = cause {
        let said = plain(&it.to_string());
        if !text.contains(&said) {
            text = format!("{text}: {said}");
        }
        cause = it.source();
    }
    text
}

/// Takes what others wrote into one line of bounded length.
fn plain(text: &str) -> String {
    text.chars().map(|it| if it.is_control() { ' ' } else { it }).take(300).collect()
}
