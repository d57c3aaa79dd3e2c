//! An API server of Kubernetes with one kind of object: lists and watches of pods that a test puts there, and all
//! that can go wrong with them.

use std::collections::{BTreeMap, HashMap};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, patch};
use bytes::Bytes;
use futures_util::stream;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::eventually;
use super::kubernetes_objects::KeptObjects;

/// Lines that a watch may leave unread.
const LINES_MAX: usize = 1024;

/// How the server answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Mood {
    #[default]
    Well,
    /// The role does not allow it.
    Forbidding,
    /// What it sends is no JSON of Kubernetes.
    Babbling,
}

/// A pod as tests describe it.
#[derive(Clone, Debug)]
pub(crate) struct PodSpec {
    pub(crate) uid: &'static str,
    pub(crate) address: SocketAddr,
    pub(crate) container: &'static str,
    pub(crate) is_ready: bool,
    pub(crate) is_ending: bool,
    /// Annotations, as JSON without its braces.
    pub(crate) annotations: String,
}

impl PodSpec {
    pub(crate) fn new(uid: &'static str, address: SocketAddr) -> Self {
        let (container, annotations) = ("containerd://1", String::new());
        Self { uid, address, container, is_ready: true, is_ending: false, annotations }
    }

    fn json(&self, version: u64) -> String {
        let Self { uid, address, container, annotations, .. } = self;
        let (ip, port) = (address.ip(), address.port());
        let ready = if self.is_ready { "True" } else { "False" };
        let ending =
            if self.is_ending { r#""deletionTimestamp":"2026-11-16T10:00:00Z","# } else { "" };
        format!(
            r#"{{"metadata":{{{ending}"uid":"{uid}","name":"vllm-{uid}","resourceVersion":"{version}","annotations":{{{annotations}}}}},"spec":{{"containers":[{{"name":"vllm","ports":[{{"name":"http","containerPort":{port}}}]}}]}},"status":{{"phase":"Running","podIP":"{ip}","conditions":[{{"type":"Ready","status":"{ready}"}}],"containerStatuses":[{{"name":"vllm","containerID":"{container}"}}]}}}}"#
        )
    }
}

#[derive(Debug, Default)]
struct Known {
    version: u64,
    pods: BTreeMap<&'static str, PodSpec>,
    watches: Vec<mpsc::Sender<Option<String>>>,
    mood: Mood,
    lists: usize,
    /// The selector of the last list.
    selector: String,
    /// Watches from before this version are told that it is gone.
    oldest: u64,
    /// Replicas that the Deployment is to have.
    replicas: u32,
    /// How many changes of it are refused, as if another writer were faster.
    conflicts: u32,
    /// Pods that were changed, and how.
    marked: Vec<(String, String)>,
    /// What the `InferencePool` says of pods, if it is there.
    inference_pool: Option<String>,
}

/// The server; dropping it ends all it does.
#[derive(Debug)]
pub(crate) struct ApiServer {
    pub(crate) address: SocketAddr,
    known: Arc<Mutex<Known>>,
    serving: JoinSet<()>,
    pub(crate) kubeconfig: PathBuf,
    pub(crate) objects: KeptObjects,
}

impl ApiServer {
    pub(crate) async fn start(name: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let file = format!("kubeconfig-{name}-{}", std::process::id());
        let kubeconfig = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(file);
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: \"http://{address}\"}}}}]\n\
             users: [{{name: u, user: {{token: t}}}}]\ncontexts: [{{name: x, context: {{cluster: c, user: u, namespace: llm}}}}]\n\
             current-context: x\n"
        );
        std::fs::write(&kubeconfig, text).unwrap();
        let known = Arc::new(Mutex::new(Known { version: 100, ..Known::default() }));
        let objects = KeptObjects::default();
        let mut server = Self { address, known, serving: JoinSet::new(), kubeconfig, objects };
        server.serve(listener);
        server
    }

    fn serve(&mut self, listener: TcpListener) {
        let pods = get(pods).with_state(Arc::clone(&self.known));
        let scale = "/apis/apps/v1/namespaces/llm/deployments/vllm/scale";
        let scales = get(show_scale).patch(change_scale).with_state(Arc::clone(&self.known));
        let marks = patch(mark_pod).with_state(Arc::clone(&self.known));
        let routes = axum::Router::new()
            .route("/api/v1/namespaces/llm/pods", pods)
            .route("/api/v1/namespaces/llm/pods/{name}", marks)
            .route(scale, scales)
            .route(
                "/apis/inference.networking.k8s.io/v1/namespaces/llm/inferencepools/chat",
                get(show_pool).with_state(Arc::clone(&self.known)),
            )
            .merge(self.objects.routes());
        self.serving.spawn(async move { axum::serve(listener, routes).await.unwrap() });
    }

    /// The settings of a pool whose replicas are the server's pods.
    pub(crate) fn pool(&self) -> String {
        format!(
            "[[pools]]\nname = \"found\"\ndiscover = \"kubernetes\"\n\
             kubernetes = {{ selector = \"app=vllm\", kubeconfigs = [\"{}\"] }}\n",
            self.kubeconfig.display()
        )
    }

    /// The settings of a pool whose replicas an `InferencePool` names.
    pub(crate) fn inference_pool(&self) -> String {
        self.pool().replace("selector = \"app=vllm\"", "inference_pool = \"chat\"")
    }

    /// Puts an `InferencePool` there, by the JSON of its target ports and a label.
    pub(crate) fn set_inference_pool(&self, label: (&str, &str), ports: &str) {
        let (key, value) = label;
        self.known.lock().unwrap().inference_pool = Some(format!(
            r#"{{"spec":{{"selector":{{"matchLabels":{{"{key}":"{value}"}}}},"targetPorts":{ports}}}}}"#
        ));
    }

    /// Sets how many replicas the Deployment has, and how many changes of that are refused.
    pub(crate) fn set_replicas(&self, replicas: u32, conflicts: u32) {
        let mut known = self.known.lock().unwrap();
        (known.replicas, known.conflicts) = (replicas, conflicts);
    }

    /// How many replicas the Deployment is to have, and how many conflicts are left.
    pub(crate) fn replicas(&self) -> (u32, u32) {
        let known = self.known.lock().unwrap();
        (known.replicas, known.conflicts)
    }

    /// Pods that were changed, and how.
    pub(crate) fn marked(&self) -> Vec<(String, String)> {
        self.known.lock().unwrap().marked.clone()
    }

    /// Puts a pod there, new or changed, and tells those that watch.
    pub(crate) fn put(&self, pod: PodSpec) {
        let mut known = self.known.lock().unwrap();
        known.version += 1;
        let json = pod.json(known.version);
        let kind = if known.pods.insert(pod.uid, pod).is_some() { "MODIFIED" } else { "ADDED" };
        known.tell(&format!(r#"{{"type":"{kind}","object":{json}}}"#));
    }

    /// Takes a pod away; `is_told` unless the watch loses it.
    pub(crate) fn delete(&self, uid: &str, is_told: bool) {
        let mut known = self.known.lock().unwrap();
        known.version += 1;
        let json = known.pods.remove(uid).unwrap().json(known.version);
        if is_told {
            known.tell(&format!(r#"{{"type":"DELETED","object":{json}}}"#));
        }
    }

    pub(crate) fn set_mood(&self, mood: Mood) {
        self.known.lock().unwrap().mood = mood;
    }

    /// Writes a line into every watch.
    pub(crate) fn say(&self, line: &str) {
        self.known.lock().unwrap().tell(line);
    }

    /// Breaks every watch off; `is_gone` if what happened meanwhile is not kept.
    pub(crate) fn cut(&self, is_gone: bool) {
        let mut known = self.known.lock().unwrap();
        known.oldest = if is_gone { known.version } else { known.oldest };
        for watch in std::mem::take(&mut known.watches) {
            _ = watch.try_send(None);
        }
    }

    /// Takes no connection any more, and drops those it has.
    pub(crate) async fn go_away(&mut self) {
        self.serving.shutdown().await;
        self.cut(false);
    }

    /// Is there again.
    pub(crate) async fn come_back(&mut self) {
        let mut listener = None;
        let address = self.address;
        eventually("the port is free", async || {
            listener = TcpListener::bind(address).await.ok();
            listener.is_some()
        })
        .await;
        self.serve(listener.unwrap());
    }

    pub(crate) fn lists(&self) -> usize {
        self.known.lock().unwrap().lists
    }

    pub(crate) fn selector(&self) -> String {
        self.known.lock().unwrap().selector.clone()
    }

    /// Waits until something watches.
    pub(crate) async fn watched(&self) {
        let is_watched = async || {
            let mut known = self.known.lock().unwrap();
            known.watches.retain(|it| !it.is_closed());
            !known.watches.is_empty()
        };
        eventually("the pods are watched", is_watched).await;
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        _ = std::fs::remove_file(&self.kubeconfig);
    }
}

impl Known {
    fn tell(&mut self, line: &str) {
        self.watches.retain(|it| it.try_send(Some(format!("{line}\n"))).is_ok());
    }
}

async fn pods(
    State(known): State<Arc<Mutex<Known>>>,
    Query(query): Query<HashMap<String, String>>,
) -> Response {
    let mut known = known.lock().unwrap();
    match known.mood {
        Mood::Well => {}
        Mood::Forbidding => {
            let text = r#"{"kind":"Status","code":403,"message":"pods is forbidden"}"#;
            return (StatusCode::FORBIDDEN, text).into_response();
        }
        Mood::Babbling => return "<html>It works!</html>".into_response(),
    }
    if query.get("watch").is_none_or(|it| it != "true") {
        known.lists += 1;
        known.selector = query.get("labelSelector").cloned().unwrap_or_default();
        let version = known.version;
        let items: Vec<String> = known.pods.values().map(|it| it.json(version)).collect();
        let items = items.join(",");
        return format!(r#"{{"metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}"#)
            .into_response();
    }
    let from: u64 = query["resourceVersion"].parse().unwrap();
    let (send, lines) = mpsc::channel(LINES_MAX);
    if from < known.oldest {
        let gone = r#"{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}"#;
        send.try_send(Some(format!("{gone}\n"))).unwrap();
    } else {
        // What changed since then, as far as it is still there.
        for pod in known.pods.values().filter(|_| from < known.version) {
            let line = format!(r#"{{"type":"MODIFIED","object":{}}}"#, pod.json(known.version));
            send.try_send(Some(line + "\n")).unwrap();
        }
        known.watches.push(send);
    }
    let next = async |mut lines: mpsc::Receiver<Option<String>>| {
        let line = lines.recv().await?;
        let line = line.map(Bytes::from).ok_or_else(|| std::io::Error::other("cut"));
        Some((line, lines))
    };
    Body::from_stream(stream::unfold(lines, next)).into_response()
}

impl Known {
    fn scale(&self) -> String {
        let Self { version, replicas, .. } = self;
        format!(
            r#"{{"kind":"Scale","metadata":{{"name":"vllm","resourceVersion":"{version}"}},"spec":{{"replicas":{replicas}}}}}"#
        )
    }
}

async fn show_scale(State(known): State<Arc<Mutex<Known>>>) -> Response {
    let known = known.lock().unwrap();
    if known.mood == Mood::Forbidding {
        let text = r#"{"kind":"Status","code":403,"message":"deployments.apps is forbidden"}"#;
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    known.scale().into_response()
}

async fn show_pool(State(known): State<Arc<Mutex<Known>>>) -> Response {
    // Without its definition the API server does not know the path, and says so in plain text.
    let missing = || (StatusCode::NOT_FOUND, "404 page not found").into_response();
    let pool = known.lock().unwrap().inference_pool.clone();
    pool.map_or_else(missing, IntoResponse::into_response)
}

async fn change_scale(State(known): State<Arc<Mutex<Known>>>, body: String) -> Response {
    let mut known = known.lock().unwrap();
    let version = format!(r#""resourceVersion":"{}""#, known.version);
    if 0 < known.conflicts || !body.contains(&version) {
        known.conflicts = known.conflicts.saturating_sub(1);
        known.version += 1;
        let text = r#"{"kind":"Status","code":409,"message":"the object has been modified"}"#;
        return (StatusCode::CONFLICT, text).into_response();
    }
    let number = body.split(r#""replicas":"#).nth(1).unwrap().trim_end_matches('}');
    known.replicas = number.parse().unwrap();
    known.version += 1;
    known.scale().into_response()
}

async fn mark_pod(
    State(known): State<Arc<Mutex<Known>>>,
    Path(name): Path<String>,
    body: String,
) -> Response {
    let mut known = known.lock().unwrap();
    let is_there = known.pods.keys().any(|uid| name.strip_prefix("vllm-") == Some(*uid));
    known.marked.push((name, body));
    if is_there {
        "{}".into_response()
    } else {
        (StatusCode::NOT_FOUND, r#"{"kind":"Status","code":404,"message":"pods not found"}"#)
            .into_response()
    }
}
