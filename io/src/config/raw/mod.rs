//! The file as users write it, one definition per knob: its name, type, range, default and the
//! sentence that explains it. The schema and the reference page are generated from here, and the
//! schema in turn checks the file. Nothing here decides what a combination of knobs means; that is
//! `settle`.

mod cluster;
mod engine;
mod kubernetes;
mod ports;
mod record;
mod scaling;
mod sections;
mod subsets;
mod tenancy;
mod text;
mod traces;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use cleave_core::policy::PolicyKind;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::admin::Secret;
use crate::discovery::Source;
use crate::proxy::CacheScope;
use crate::replicas::Origin;
pub(super) use cluster::{
    ClusterKubernetesSection, ClusterSection, EtcdSection, PeerTlsSection, StoreKind,
};
pub(super) use engine::{EngineFields, EngineHeaders, EngineTlsSection};
pub(super) use kubernetes::{KubernetesSection, PodKeysSection};
pub(super) use ports::{AdminSection, AdminTokenSection, PathsSection, TlsSection};
pub(super) use record::RecordSection;
pub(super) use scaling::ScalingSection;
pub(super) use sections::{
    BreakerSection, ExplainSection, HealthSection, LimitsSection, LogSection, QuarantineSection,
    RetriesSection, SessionsSection, TimeoutsSection,
};
pub(super) use subsets::{SubsetsSection, WorkloadSection};
pub(super) use tenancy::{ClassSection, ContractSection, Keys, LineSection, TenantSection};
pub(super) use text::{AdminRights, Text, TextValue, check};
pub(super) use traces::TracesSection;

/// A list in which a refused element leaves an empty slot, so that the others keep their index
/// and later problems name the right one.
pub(super) type Slots<T> = Vec<Option<T>>;

/// Everything that can be set about the router.
///
/// Every key is optional, but at least one replica is needed.
/// Keys that need a `restart` are read once, at the start.
/// Keys that need a `reload` are applied while the router runs, when the file changes or on SIGHUP.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(title = "Cleave configuration", extend("x-applies" = "restart"))]
pub(super) struct Raw {
    /// Address where clients connect.
    pub listen: Text<SocketAddr>,
    /// Threads that carry requests; each owns its connections.
    #[schemars(range(min = 1, max = 1024), extend("x-default" = "one per core"))]
    pub threads: Option<NonZeroUsize>,
    /// How a replica is picked for a request, in every pool that does not say otherwise. `priced`
    /// weighs for every replica, in milliseconds, the wait there, what is cached there and the
    /// delay for others.
    pub policy: Text<PolicyKind>,
    /// File of coefficients, as `cleave calibrate` writes it: what work takes on each class of replicas.
    /// For every pool that does not name its own. Without one, times are guessed from the model's name.
    #[schemars(extend("x-applies" = "reload"))]
    pub costs: Option<PathBuf>,
    /// Lets every pool learn what work takes from what its streams show, and price by that where it
    /// is clearly better than `costs` or the guess.
    pub learn_costs: bool,
    /// Lets a streamed answer that breaks off go on from another replica, in every pool that does not
    /// say otherwise. The engines must be able to continue a message: vLLM and SGLang are.
    #[schemars(extend("x-applies" = "reload"))]
    pub resume: bool,
    /// Passes clients' own keys and cookies on to the engines (`authorization`, `x-api-key`, `api-key`,
    /// `x-goog-api-key`, `cookie`), in every pool that does not say otherwise. Needed only where engines
    /// check each client's key themselves.
    #[schemars(extend("x-applies" = "reload"))]
    pub forward_credentials: bool,
    #[schemars(extend("x-applies" = "reload"))]
    pub engine_fields: EngineFields,
    #[schemars(extend("x-applies" = "reload"))]
    pub engine_headers: EngineHeaders,
    /// Key that the engines ask for, as vLLM and SGLang do with `--api-key`, in every pool and for every replica
    /// that does not say otherwise. It is sent with requests and with the router's own questions, and no client
    /// sees it. Prefer `api_key_file`, or the environment: `CLEAVE__API_KEY`.
    #[schemars(extend("writeOnly" = true, "x-applies" = "reload"))]
    pub api_key: Option<Text<Secret>>,
    /// File that holds that key, and nothing else; read again when it changes.
    #[schemars(extend("x-applies" = "reload"))]
    pub api_key_file: Option<PathBuf>,
    #[schemars(extend("x-applies" = "reload"))]
    pub engine_tls: EngineTlsSection,
    /// The replicas, when one pool is enough; short for one entry in `pools` named `default`.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Replica>", extend("x-applies" = "reload"))]
    pub replicas: Slots<Replica>,
    pub admin: AdminSection,
    pub tls: TlsSection,
    pub paths: PathsSection,
    pub limits: LimitsSection,
    pub timeouts: TimeoutsSection,
    pub sessions: SessionsSection,
    pub subsets: SubsetsSection,
    pub retries: RetriesSection,
    pub breaker: BreakerSection,
    pub health: HealthSection,
    pub quarantine: QuarantineSection,
    pub explain: ExplainSection,
    pub log: LogSection,
    pub traces: TracesSection,
    pub record: RecordSection,
    pub cluster: ClusterSection,
    pub line: LineSection,
    /// The classes of service, in place of `interactive`, `standard` and `batch`.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<ClassSection>")]
    pub classes: Slots<ClassSection>,
    #[schemars(extend("x-applies" = "reload"))]
    pub keys: Keys,
    /// Tenants: their keys, classes, shares and contracts.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<TenantSection>", extend("x-applies" = "reload"))]
    pub tenants: Slots<TenantSection>,
    /// Workloads whose subsets differ from the usual ones.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<WorkloadSection>")]
    pub workloads: Slots<WorkloadSection>,
    /// The pools: replicas that serve the same models. A request goes to the pool of its `model`.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<PoolSection>", extend("x-applies" = "reload"))]
    pub pools: Slots<PoolSection>,
}

/// Replicas that serve the same models.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct PoolSection {
    /// Names the pool in logs, metrics and status; must be unique.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// Models the pool serves. When empty, the replicas are asked.
    #[serde(default, deserialize_with = "slots")]
    #[schemars(with = "Vec<ModelName>")]
    pub models: Slots<ModelName>,
    /// Other names for its models: `alias = "model"`.
    #[serde(default)]
    pub aliases: BTreeMap<String, ModelName>,
    /// How a replica is picked in this pool; the top-level `policy` unless given.
    #[schemars(extend("x-applies" = "restart", "x-default" = "the top-level `policy`"))]
    pub policy: Option<Text<PolicyKind>>,
    /// File of coefficients for this pool; the top-level `costs` unless given.
    #[schemars(extend("x-default" = "the top-level `costs`"))]
    pub costs: Option<PathBuf>,
    /// Class of its replicas, unless they name their own: one in `costs`, or without that a GPU
    /// that is built in (`b200`, `mi300x`, `h200`, `h100`, `a100`, `l40s`, `l4`).
    #[schemars(length(min = 1, max = 256), extend("x-default" = "the first class listed for the model"))]
    pub class: Option<String>,
    /// Lets a streamed answer that breaks off go on from another replica of this pool; the top-level
    /// `resume` unless given.
    #[schemars(extend("x-default" = "the top-level `resume`"))]
    pub resume: Option<bool>,
    /// Passes clients' own keys and cookies on to the engines of this pool; the top-level
    /// `forward_credentials` unless given.
    #[schemars(extend("x-default" = "the top-level `forward_credentials`"))]
    pub forward_credentials: Option<bool>,
    /// In place of the top-level `engine_fields`.
    pub engine_fields: Option<EngineFields>,
    /// In place of the top-level `engine_headers`.
    pub engine_headers: Option<EngineHeaders>,
    /// Key that the engines of this pool ask for; the top-level `api_key` unless given.
    #[schemars(extend("writeOnly" = true, "x-default" = "the top-level `api_key`"))]
    pub api_key: Option<Text<Secret>>,
    /// File that holds that key, and nothing else; read again when it changes.
    pub api_key_file: Option<PathBuf>,
    /// In place of the top-level `engine_tls`.
    pub engine_tls: Option<EngineTlsSection>,
    /// Which tenants share a replica's prefix cache. With `shared` all do, as engines do it by
    /// themselves. With `per_tenant` each tenant finds only its own prompts: every tenant, or API
    /// key where there are none, gets a `cache_salt` of its own in the body that goes out, which
    /// vLLM, SGLang and TensorRT-LLM obey. Bodies for which the router cannot do so are refused.
    #[serde(default)]
    pub cache: Text<CacheScope>,
    /// The `tokenizer.json` of the pool's models, to count prompts as the engines do. Without it they
    /// are estimated from their bytes. Needs a build with the feature `tokenizer`.
    pub tokenizer: Option<PathBuf>,
    /// The pool's replicas, each a URL or a table. May be empty, to be filled later.
    #[serde(default, deserialize_with = "slots")]
    #[schemars(with = "Vec<Replica>")]
    pub replicas: Slots<Replica>,
    /// Where more of the pool's replicas are found: `file:PATH` (an address on each line, read again
    /// when it changes), `dns:HOST:PORT` (every address of the name), `srv:NAME` (every service) or `kubernetes` (every
    /// pod that the section `kubernetes` of the pool describes); `dns+https:HOST:PORT` and `srv+https:NAME` for replicas
    /// under TLS.
    pub discover: Option<Text<Source>>,
    pub kubernetes: Option<KubernetesSection>,
    pub scaling: Option<ScalingSection>,
}

/// A model's name as clients send it.
#[derive(Clone, Deserialize, serde::Serialize, JsonSchema, PartialEq, Eq, PartialOrd, Ord)]
#[serde(transparent)]
pub(super) struct ModelName(#[schemars(length(min = 1, max = 256))] pub String);

/// One replica: its URL alone, or a table with what else is to be said of it.
#[derive(Deserialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Replica {
    Url(Text<Origin>),
    Table(ReplicaTable),
}

/// One replica and what is to be said of it alone.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReplicaTable {
    /// Address of the engine, `http://` or `https://`, without a path.
    pub url: Text<Origin>,
    /// The replica's share of sessions, relative to the others. At 0 it takes no new session.
    #[serde(default = "weight_default")]
    #[schemars(range(min = 0.0, max = 1000.0))]
    pub weight: f64,
    /// The class of its hardware; the pool's `class` unless given.
    #[schemars(length(min = 1, max = 256), extend("x-default" = "the pool's `class`"))]
    pub class: Option<String>,
    /// Where it can be lost together with others: a rack, a zone. A workload's replicas are spread
    /// over zones.
    #[schemars(length(min = 1, max = 256), extend("x-default" = "none"))]
    pub zone: Option<String>,
    /// Key that its engine asks for; the pool's `api_key` unless given.
    #[schemars(extend("writeOnly" = true, "x-default" = "the pool's `api_key`"))]
    pub api_key: Option<Text<Secret>>,
    /// File that holds that key, and nothing else; read again when it changes.
    pub api_key_file: Option<PathBuf>,
    /// In place of the pool's `engine_tls`.
    pub engine_tls: Option<EngineTlsSection>,
}

impl Default for Raw {
    fn default() -> Self {
        Self {
            listen: Text(([127, 0, 0, 1], 8080).into()),
            threads: None,
            policy: Text(cleave_core::brain::Settings::default().policy),
            costs: None,
            learn_costs: cleave_core::brain::Settings::default().learns_costs,
            resume: false,
            forward_credentials: false,
            engine_fields: EngineFields::default(),
            engine_headers: EngineHeaders::default(),
            api_key: None,
            api_key_file: None,
            engine_tls: EngineTlsSection::default(),
            replicas: Vec::new(),
            admin: AdminSection::default(),
            tls: TlsSection::default(),
            paths: PathsSection::default(),
            limits: LimitsSection::default(),
            timeouts: TimeoutsSection::default(),
            sessions: SessionsSection::default(),
            subsets: SubsetsSection::default(),
            workloads: Vec::new(),
            retries: RetriesSection::default(),
            breaker: BreakerSection::default(),
            health: HealthSection::default(),
            quarantine: QuarantineSection::default(),
            explain: ExplainSection::default(),
            log: LogSection::default(),
            traces: TracesSection::default(),
            record: RecordSection::default(),
            cluster: ClusterSection::default(),
            line: LineSection::default(),
            classes: Vec::new(),
            keys: Keys::default(),
            tenants: Vec::new(),
            pools: Vec::new(),
        }
    }
}

fn weight_default() -> f64 {
    1.0
}

/// Reads a list whose refused elements were reported before; their slots stay empty.
fn slots<'de, D, T>(deserializer: D) -> Result<Slots<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let elements = Vec::<toml::Value>::deserialize(deserializer)?;
    Ok(elements.into_iter().map(|it| it.try_into().ok()).collect())
}
