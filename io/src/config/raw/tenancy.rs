//! The sections about waiting and sharing: the line, classes, tenants and their keys.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use cleave_core::brain::LineSettings;
use schemars::JsonSchema;
use serde::Deserialize;

use super::text::{HashedKey, Text};
use super::{Slots, slots};
use crate::admin::Secret;
use crate::proxy::UnknownKeys;

const MIB: usize = 1 << 20;

/// The line in which requests wait while every replica is at its knee: there a longer queue in the
/// engine adds latency and no throughput.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct LineSection {
    /// Whether requests wait here. Without it they wait in the engines, and classes and fairness have
    /// nothing to order.
    pub hold: bool,
    /// Requests that may wait at once, in each pool; beyond it the tenant with the most waiting is
    /// refused.
    #[schemars(range(min = 1, max = 10_000_000))]
    pub length_max: usize,
    /// Request bodies that may wait at once, in MiB, in each pool.
    #[schemars(range(min = 1, max = 1_048_576))]
    pub waiting_mib_max: usize,
    /// Whether new sessions wait while those that live fill the fleet's KV memory.
    pub gate: bool,
    /// The share of the fleet's KV memory that sessions may fill before new ones wait.
    #[schemars(range(min = 0.1, max = 1.0))]
    pub kv_share: f64,
    /// The class of requests that ask for none.
    #[schemars(length(min = 1, max = 64))]
    pub default_class: String,
}

impl Default for LineSection {
    fn default() -> Self {
        let LineSettings { holds, gates, limits, gate, classes } = LineSettings::default();
        Self {
            hold: holds,
            length_max: limits.count_max,
            waiting_mib_max: limits.bytes_max / MIB,
            gate: gates,
            kv_share: gate.kv_share,
            default_class: classes.get(classes.default_id()).name.clone(),
        }
    }
}

/// A level of service.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct ClassSection {
    /// What requests ask for, as in `x-cleave-class: interactive`; letters, digits, `-` and `_`.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Its share of the work while requests of other classes wait too.
    #[schemars(range(min = 0.001, max = 1000.0))]
    pub weight: f64,
    /// When the first token should be there. The shortest of all classes decides how long a prompt
    /// may wait for others inside a replica.
    pub first_token: Option<Text<Duration>>,
    /// How long the time between two tokens of an answer should be at most; 80 ms where no class says.
    /// Answers of all classes share the replicas, so that the shortest of all classes counts for all.
    pub token_gap: Option<Text<Duration>>,
    /// How long a request may wait in the line before it is refused.
    #[serde(default = "wait_max_default")]
    pub wait_max: Text<Duration>,
}

/// A client or a group of clients with keys, a share and perhaps a contract.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct TenantSection {
    /// Names the tenant in `/tenants` and in metrics; must be unique, and neither `default` nor `other`.
    #[schemars(length(min = 1, max = 64))]
    pub name: String,
    /// Its API keys, one at least, each as the SHA-256 in hexadecimal: `printf %s KEY | sha256sum`.
    #[serde(default, deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<HashedKey>>")]
    pub key_sha256: Slots<Text<HashedKey>>,
    /// The classes it may use; the first is the one it gets unasked. All of them when empty.
    #[serde(default)]
    pub classes: Vec<String>,
    /// Its share of the work among those of its class.
    #[serde(default = "weight_default")]
    #[schemars(range(min = 0.001, max = 1000.0))]
    pub weight: f64,
    /// What it may use in each pool; without one, as much as there is.
    #[serde(default)]
    pub contract: ContractSection,
    /// What it may use in single pools, by the pool's name, instead.
    #[serde(default)]
    pub pools: BTreeMap<String, ContractSection>,
}

/// What may be used in a minute. Work beyond it runs only on capacity that is idle, or not at all.
#[derive(Clone, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ContractSection {
    /// Model units a minute; a reference replica makes 100.
    #[schemars(range(min = 0.0, max = 1_000_000_000.0))]
    pub mu_per_min: Option<f64>,
    /// Tokens a minute, of prompts and answers together.
    #[schemars(range(min = 0, max = 1_000_000_000_000_u64))]
    pub tokens_per_min: Option<u64>,
    /// Requests a minute.
    #[schemars(range(min = 0, max = 1_000_000_000))]
    pub requests_per_min: Option<u64>,
    /// How much may be saved up for a burst: what the contract gives in this time.
    #[schemars(extend("x-default" = "nothing"))]
    pub burst: Option<Text<Duration>>,
    /// Whether what is beyond it is refused also while capacity is idle.
    pub hard: bool,
}

/// API keys, and what keeps their owners apart.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Keys {
    /// What becomes of a key that is no tenant's: `refuse` answers 401, `share` serves it like a
    /// request without a contract. `/v1/models` is answered without a key in any case.
    #[schemars(extend("x-default" = "`\"refuse\"`"))]
    pub unknown: Option<Text<UnknownKeys>>,
    /// Keys the salts that keep tenants apart (`cache = "per_tenant"`); 16 characters at least. Give all
    /// routers before the same engines the same one, else each fills a cache of its own. Prefer
    /// `cache_secret_file`, which keeps it out of this file.
    #[schemars(extend("writeOnly" = true, "x-applies" = "restart", "x-default" = "made from `cluster.secret` where there is one, else made at the first start and kept in `subsets.state_dir`"))]
    pub cache_secret: Option<Text<Secret>>,
    /// File that holds the secret, and nothing else. Give this or `cache_secret`, not both.
    #[schemars(extend("x-applies" = "restart"))]
    pub cache_secret_file: Option<PathBuf>,
}

fn wait_max_default() -> Text<Duration> {
    Text(Duration::from_secs(120))
}

fn weight_default() -> f64 {
    1.0
}
