//! Which pods are replicas, as users write it.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Slots, Text, slots};
use crate::discovery::{EnginePort, KubernetesSettings, PodKeys};

/// Which pods are the pool's replicas, with `discover = "kubernetes"`. A pod joins when it is ready, gets nothing new
/// while it is not, and is drained as soon as its end is ordered.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct KubernetesSection {
    /// Label selector of the pods, as `kubectl` takes it: `app=vllm,tier!=test`. Needed, unless `inference_pool` says it.
    #[schemars(length(max = 4096))]
    pub selector: String,
    /// Name of an `InferencePool` (Gateway API Inference Extension) that says which pods, and on which port, in place of
    /// `selector` and `port`.
    #[schemars(length(min = 1, max = 253), extend("x-default" = "none"))]
    pub inference_pool: Option<String>,
    /// Namespace of the pods.
    #[schemars(length(min = 1, max = 63), extend("x-default" = "the router's own, or that of the kubeconfig"))]
    pub namespace: Option<String>,
    /// Name or number of the port on which the engine listens, as the pod lists it.
    pub port: Text<EnginePort>,
    /// Asks engines by HTTPS.
    pub https: bool,
    /// Files that say where a cluster is and how to log in; the replicas of all of them are one pool. Without one, the
    /// router must run in the cluster, with a service account that may get, list and watch pods.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<PathBuf>")]
    pub kubeconfigs: Slots<PathBuf>,
    /// Roles whose pods take clients' requests. A pod that says no role takes them too.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<String>")]
    pub roles: Slots<String>,
    /// Reads the zone of each pod's node, for clusters that do not write it on the pod (before Kubernetes 1.35). The
    /// service account must be allowed to list nodes.
    pub node_zones: bool,
    pub keys: PodKeysSection,
}

/// Labels or annotations of a pod that say something of its replica; an annotation counts before a label.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PodKeysSection {
    /// Its share of sessions, as `weight` of a replica.
    #[schemars(length(min = 1, max = 317))]
    pub weight: String,
    /// The class of its hardware, as `class` of a replica.
    #[schemars(length(min = 1, max = 317))]
    pub class: String,
    /// Where it can be lost together with others; without it, `topology.kubernetes.io/zone`.
    #[schemars(length(min = 1, max = 317))]
    pub zone: String,
    /// Models it serves, with commas between them. A pod that says so joins only a pool that has one of them in `models`.
    #[schemars(length(min = 1, max = 317))]
    pub model: String,
    /// Its role, one of `roles` if it is to take requests.
    #[schemars(length(min = 1, max = 317))]
    pub role: String,
}

impl Default for KubernetesSection {
    fn default() -> Self {
        let KubernetesSettings { port, roles, .. } = KubernetesSettings::default();
        Self {
            selector: String::new(),
            inference_pool: None,
            namespace: None,
            port: Text(port),
            https: false,
            kubeconfigs: Vec::new(),
            roles: roles.into_iter().map(Some).collect(),
            node_zones: false,
            keys: PodKeysSection::default(),
        }
    }
}

impl Default for PodKeysSection {
    fn default() -> Self {
        let PodKeys { weight, class, zone, model, role } = PodKeys::default();
        Self { weight, class, zone, model, role }
    }
}
