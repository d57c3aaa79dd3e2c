//! Which pods are the replicas of a pool, and where else their words are read.

use std::fmt;
use std::path::PathBuf;

/// What is watched, and how pods become replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesSettings {
    /// Files that name a cluster and how to log in; without one, the cluster that the router itself runs in.
    pub kubeconfigs: Vec<PathBuf>,
    /// The namespace of the pods; the router's own, or that of the kubeconfig, unless given.
    pub namespace: Option<String>,
    /// A label selector as `kubectl` takes it.
    pub selector: String,
    pub port: EnginePort,
    /// The `InferencePool` that says selector and port, in place of those here.
    pub inference_pool: Option<String>,
    /// Whether engines are asked by HTTPS.
    pub is_secure: bool,
    /// What the pool serves; a pod that names its models joins only if one of them is here. Empty for any.
    pub models: Vec<String>,
    /// The roles that take requests. A pod without a role takes them too.
    pub roles: Vec<String>,
    /// Whether a pod counts before it is ready: routers become so by being told what others know.
    pub is_early: bool,
    /// Whether the zones of nodes are read, which needs the right to list nodes.
    pub node_zones: bool,
    pub keys: PodKeys,
}

/// The port on which engines listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EnginePort {
    Named(String),
    Numbered(u16),
}

/// The labels or annotations of a pod that say something of its replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodKeys {
    pub weight: String,
    pub class: String,
    pub zone: String,
    pub model: String,
    pub role: String,
}

impl Default for PodKeys {
    fn default() -> Self {
        let [weight, class, zone, model, role] =
            ["cleave/weight", "cleave/class", "cleave/zone", "cleave/model", "cleave/role"]
                .map(str::to_owned);
        Self { weight, class, zone, model, role }
    }
}

/// Roles that take clients' requests by themselves; `decode` has its prompts read elsewhere by its own means.
pub const SERVING_ROLES: [&str; 3] = ["decode", "both", "prefill-decode"];

impl Default for KubernetesSettings {
    fn default() -> Self {
        Self {
            kubeconfigs: Vec::new(),
            namespace: None,
            selector: String::new(),
            port: EnginePort::Named("http".to_owned()),
            inference_pool: None,
            is_secure: false,
            models: Vec::new(),
            roles: SERVING_ROLES.map(str::to_owned).to_vec(),
            is_early: false,
            node_zones: false,
            keys: PodKeys::default(),
        }
    }
}

impl From<&str> for EnginePort {
    fn from(text: &str) -> Self {
        text.parse().map_or_else(|_| Self::Named(text.to_owned()), Self::Numbered)
    }
}

impl fmt::Display for EnginePort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Numbered(number) => number.fmt(f),
        }
    }
}
