//! What the operator may set about the data plane; valid by construction.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain;
use cleave_core::cost::Hardware;
use cleave_core::protocol::{Allowed, AllowedPath};
use http::{HeaderName, HeaderValue};

use crate::replicas::{Access, Origin, ProbeSettings, UploadLimits};
use crate::telemetry::{RecordSettings, TraceSettings};
use crate::tls::ServerTls;
use crate::tokenizer::Tokenizer;

use super::salts::CacheSecret;
use super::scale::ScalingSettings;
use super::stuck::ClientLimits;

/// How clients reach the router, and what they may ask of it.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    pub listen: SocketAddr,
    /// Certificate and key for clients; without them HTTP is plain.
    pub tls: Option<ServerTls>,
    /// Threads that carry requests; each owns its connections.
    pub threads: NonZeroUsize,
    pub limits: Limits,
    pub timeouts: Timeouts,
    /// Headers that may carry a session id, in order; `x-session-id` always comes first.
    pub session_headers: Vec<HeaderName>,
    /// A header whose value names the workload in place of the model, set by a trusted proxy.
    pub workload_header: Option<HeaderName>,
    /// Where orders are written down, if anywhere.
    pub audit_file: Option<PathBuf>,
    /// Memory for the ids of what engines keep.
    pub kept_ids_bytes_max: usize,
    /// Where assignments and orders are kept over a restart, if anywhere.
    pub state_dir: Option<PathBuf>,
    /// What keys the salts of tenants; made and kept in `state_dir` where none is given.
    pub cache_secret: Option<CacheSecret>,
    pub explain: ExplainSettings,
    /// Where traces go; off where there is nothing.
    pub traces: Option<TraceSettings>,
    /// Whether and where requests are recorded.
    pub record: RecordSettings,
    /// Paths that clients may use beside those of inference.
    pub paths_allowed: Vec<AllowedPath>,
}

impl ProxySettings {
    /// How slowly clients may take their answers.
    pub(super) const fn client_limits(&self) -> ClientLimits {
        ClientLimits {
            write: self.timeouts.write,
            bytes_per_s_min: self.limits.client_bytes_per_s_min,
        }
    }

    /// What clients' bodies are held to.
    pub(super) const fn upload_limits(&self) -> UploadLimits {
        UploadLimits {
            bytes_max: self.limits.body_bytes_max,
            piece: self.timeouts.body,
            whole: self.timeouts.body_whole,
            bytes_per_s_min: self.limits.client_bytes_per_s_min,
        }
    }
}

/// Which decisions are kept, to be asked about.
#[derive(Clone, Debug, PartialEq)]
pub struct ExplainSettings {
    /// The share of requests whose decision is kept, from 0 to 1.
    pub sample: f64,
    /// How many are kept; the oldest makes room.
    pub kept_max: usize,
    /// Whether any client may have its decision kept, and see of it what concerns no other.
    pub clients: bool,
    /// What a request says to have its decision kept and shown whole.
    pub token: Option<HeaderValue>,
}

/// Bounds on what clients can make the router hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Largest request body; beyond it the answer is 413.
    pub body_bytes_max: usize,
    /// Request bodies held at once over all requests; beyond it reading waits.
    pub buffered_bytes_max: usize,
    /// Open client connections; beyond it idle ones make room, or new ones wait in the listener's backlog.
    pub connections_max: usize,
    /// The slowest rate at which a client may send a body or take an answer, on the average.
    pub client_bytes_per_s_min: u64,
}

/// How long each stage may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// For a client to send a request head, or to finish its TLS handshake; so also how long a
    /// connection may lie idle.
    pub header: Duration,
    /// Between two pieces of a request body.
    pub body: Duration,
    /// For a whole request body.
    pub body_whole: Duration,
    /// For a client to take anything of what it is sent.
    pub write: Duration,
    /// To connect to a replica.
    pub connect: Duration,
    /// From sending a request to a replica to the first byte of its answer, after the head.
    pub first_byte: Duration,
    /// Between two pieces of an answer.
    pub idle: Duration,
    /// For streams to finish when the router is told to stop.
    pub drain: Duration,
    /// How long it goes on accepting after SIGTERM, while it says that it is not ready.
    pub drain_delay: Option<Duration>,
}

/// One pool: the models it serves and where. This part may change while the router runs.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolSettings {
    pub name: String,
    /// What the pool serves; empty means: ask the replicas.
    pub models: Vec<String>,
    /// Other names for models, alias to model.
    pub aliases: BTreeMap<String, String>,
    pub cache: CacheScope,
    /// Counts its prompts; without one they are estimated.
    pub tokenizer: Option<Tokenizer>,
    pub replicas: Vec<ReplicaSettings>,
    /// Whether these are all: not before those that are discovered were found.
    pub is_whole: bool,
    /// What opens the replicas that are discovered.
    pub access: Access,
    /// What work takes on the replicas that are discovered.
    pub classes: HardwareClasses,
    pub brain: brain::Settings,
    pub probe: ProbeSettings,
    /// Whether a stream that broke off goes on from another replica.
    pub resume: bool,
    pub passing: Passing,
    /// How many replicas it may have; nothing of that runs where it is not set.
    pub scaling: Option<ScalingSettings>,
}

/// What of a client's request reaches engines although it is secret or would steer them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passing {
    /// The client's own keys and cookies.
    pub credentials: bool,
    /// Fields of the body.
    pub fields: Allowed,
    pub headers: Allowed,
}

/// Which tenants share a replica's prefix cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheScope {
    /// All of them, as engines do it by themselves.
    #[default]
    Shared,
    /// Each tenant only its own.
    PerTenant,
}

/// One replica of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct ReplicaSettings {
    pub origin: Origin,
    /// Its share of sessions, relative to the others; at 0 it takes no new session.
    pub weight: f64,
    /// What work takes there.
    pub hardware: Arc<Hardware>,
    /// Where it can be lost together with others, if that is known.
    pub zone: Option<String>,
    pub access: Access,
    pub hosting: Hosting,
}

/// What an orchestrator says of what runs at a replica's address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosting {
    /// What runs there: another one at the same address is another replica.
    pub unit: Option<Arc<str>>,
    /// What the orchestrator calls it.
    pub name: Option<Arc<str>>,
    /// Which process of it runs: another one has a cold cache.
    pub process: Option<Arc<str>>,
    /// Whether it may be sent new work.
    pub is_ready: bool,
}

impl Default for Hosting {
    fn default() -> Self {
        Self { unit: None, name: None, process: None, is_ready: true }
    }
}

/// What work takes on replicas that are not listed one by one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HardwareClasses {
    /// On those that name no class.
    pub usual: Arc<Hardware>,
    pub named: BTreeMap<String, Arc<Hardware>>,
}

impl Default for ExplainSettings {
    fn default() -> Self {
        Self { sample: 0.01, kept_max: 1000, clients: false, token: None }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes_max: 32 << 20,
            buffered_bytes_max: 256 << 20,
            connections_max: 16_384,
            client_bytes_per_s_min: 1 << 10,
        }
    }
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            header: Duration::from_secs(60),
            body: Duration::from_secs(30),
            body_whole: Duration::from_secs(15 * 60),
            write: Duration::from_secs(30),
            connect: Duration::from_secs(2),
            first_byte: Duration::from_secs(10 * 60),
            idle: Duration::from_secs(5 * 60),
            drain: Duration::from_secs(60),
            drain_delay: None,
        }
    }
}

/// The headers that coding agents and other routers' clients already send.
pub fn default_session_headers() -> Vec<HeaderName> {
    [
        "x-claude-code-session-id",
        "session-id",
        "session_id",
        "x-session-affinity",
        "x-dynamo-session-id",
        "thread-id",
        "x-smg-routing-key",
    ]
    .into_iter()
    .map(HeaderName::from_static)
    .collect()
}
