//! What the admin port says, as far as the view shows it. Fields that an older or newer router leaves
//! out are simply not shown.

use anyhow::Context as _;
use hyper::body::Incoming;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::admin::AdminClient;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Status {
    pub(super) version: String,
    pub(super) ready: bool,
    pub(super) draining: bool,
    pub(super) connections: i64,
    pub(super) pools: Vec<PoolStatus>,
}

/// The routers that decide as one.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Routers {
    /// None for a router that is alone.
    pub(super) own: Option<String>,
    pub(super) state: String,
    #[serde(rename = "routers")]
    pub(super) expected: u64,
    pub(super) present: u64,
    pub(super) leader: Option<String>,
    pub(super) leads: bool,
    pub(super) peers: Vec<PeerRouter>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PeerRouter {
    pub(super) id: String,
    pub(super) address: String,
    pub(super) state: String,
    pub(super) lag_seconds: f64,
    pub(super) bytes_told: u64,
    pub(super) bytes_heard: u64,
    pub(super) in_flight: u64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PoolStatus {
    pub(super) name: String,
    pub(super) policy: String,
    pub(super) models: Vec<String>,
    pub(super) requests_in_flight: u64,
    pub(super) sessions: u64,
    pub(super) sessions_moved_total: u64,
    pub(super) frozen: Option<Given>,
    pub(super) pins: Vec<PinStatus>,
    pub(super) replicas: Vec<ReplicaStatus>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplicaStatus {
    pub(super) url: String,
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) drained: Option<Given>,
    pub(super) in_flight: u64,
    pub(super) sessions: u64,
    pub(super) sent_total: u64,
    pub(super) failed_total: u64,
}

/// The replicas of a workload, as an operator ordered them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PinStatus {
    pub(super) workload: String,
    pub(super) name: Option<String>,
    pub(super) replicas: Vec<String>,
    pub(super) by: String,
    pub(super) at: String,
}

/// By which token an order was given.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Given {
    pub(super) by: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct LoadPage {
    pub(super) pools: Vec<PoolLoad>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct PoolLoad {
    pub(super) name: String,
    pub(super) replicas: Vec<ReplicaLoad>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct ReplicaLoad {
    pub(super) url: String,
    pub(super) booked: Booked,
    pub(super) report: Option<Report>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Booked {
    pub(super) waiting_prompt_tokens: u64,
    pub(super) output_tokens: u64,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Report {
    pub(super) waiting: u64,
    pub(super) running: u64,
    pub(super) kv_used_share: f64,
}

/// One change, as `/events` tells it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Entry {
    pub(super) at: String,
    pub(super) kind: String,
    pub(super) pool: Option<String>,
    pub(super) replica: Option<String>,
    pub(super) state: String,
    pub(super) reason: Option<String>,
    pub(super) detail: Option<String>,
    pub(super) alert: bool,
}

impl PeerRouter {
    /// Bytes in both directions.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes_told.saturating_add(self.bytes_heard)
    }
}

impl LoadPage {
    /// Finds what weighs on a replica.
    pub(super) fn of(&self, pool: &str, url: &str) -> Option<&ReplicaLoad> {
        let pool = self.pools.iter().find(|it| it.name == pool)?;
        pool.replicas.iter().find(|it| it.url == url)
    }
}

/// The admin port of one router.
#[derive(Clone, Debug)]
pub(super) struct Admin(pub(super) AdminClient);

impl Admin {
    /// Reads one page.
    pub(super) async fn read<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<T> {
        let page = async { Ok(serde_json::from_slice(&self.0.read(path).await?)?) };
        let read: anyhow::Result<T> = page.await;
        read.with_context(|| format!("cannot read {}", self.0.url(path)))
    }

    /// Opens a page that may never end.
    pub(super) async fn open(&self, path: &str) -> anyhow::Result<Incoming> {
        self.0.open(path).await
    }
}
