//! The stores that routers may share, behind one set of questions. What they are asked, and what an answer means, is
//! the same for all of them: `core/cluster/tenure.rs`.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use cleave_core::cluster::StoreAnswer;
use cleave_core::domain::{Moment, RouterId};
use http::Uri;

use super::etcd::EtcdClient;
use super::kubernetes::KubernetesClient;
use super::settings::StoreSettings;
use crate::discovery::SourceTrouble;

/// etcd takes requests of a little more than this.
const ETCD_VALUE_BYTES_MAX: usize = 1 << 20;
/// How often is looked whether there is something to write. An API server is shared with all of the cluster.
const ETCD_LOOK: Duration = Duration::from_millis(200);
const KUBERNETES_LOOK: Duration = Duration::from_secs(1);

/// Why the store did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoreError {
    #[error("no connection to {0}: {1}")]
    Connect(Uri, io::Error),
    #[error("no answer: {0}")]
    Exchange(#[from] hyper::Error),
    #[error("an answer that cannot be read")]
    Answer,
    #[error("no answer in time")]
    Late,
    #[error("{message} (gRPC status {code})")]
    Refused { code: String, message: String },
    #[error("{}", .0.detail)]
    Cluster(SourceTrouble),
    #[error("another router leads by now")]
    Overtaken,
}

impl From<SourceTrouble> for StoreError {
    fn from(trouble: SourceTrouble) -> Self {
        Self::Cluster(trouble)
    }
}

/// How a router asks its store.
pub(super) enum StoreClient {
    Etcd(Box<EtcdClient>),
    Kubernetes(Box<KubernetesClient>),
}

impl StoreClient {
    pub(super) fn new(settings: StoreSettings) -> Self {
        match settings {
            StoreSettings::Etcd(it) => Self::Etcd(Box::new(EtcdClient::new(it))),
            StoreSettings::Kubernetes(it) => Self::Kubernetes(Box::new(KubernetesClient::new(it))),
        }
    }

    pub(super) async fn grant(&mut self, ttl: Duration) -> Result<StoreAnswer, StoreError> {
        match self {
            Self::Etcd(it) => it.grant(ttl).await,
            Self::Kubernetes(it) => Ok(it.grant()),
        }
    }

    pub(super) async fn renew(&mut self, lease: i64) -> Result<StoreAnswer, StoreError> {
        match self {
            Self::Etcd(it) => it.renew(lease).await,
            Self::Kubernetes(it) => it.renew(lease).await,
        }
    }

    /// Gives a lease back, and with it the seat.
    pub(super) async fn revoke(&mut self, lease: i64) -> Result<(), StoreError> {
        match self {
            Self::Etcd(it) => it.revoke(lease).await,
            Self::Kubernetes(it) => it.revoke().await,
        }
    }

    /// Takes the seat if it is free, and says which router has it.
    pub(super) async fn campaign(
        &mut self,
        own: RouterId,
        address: &str,
        lease: i64,
        now: impl Fn() -> Moment,
    ) -> Result<StoreAnswer, StoreError> {
        match self {
            Self::Etcd(it) => it.campaign(own, address, lease).await,
            Self::Kubernetes(it) => it.campaign(own, address, lease, now).await,
        }
    }

    /// Lists what is kept of pools, by names below the prefix.
    pub(super) async fn read(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        match self {
            Self::Etcd(it) => it.read().await,
            Self::Kubernetes(it) => it.read().await,
        }
    }

    /// Writes a value if the seat was taken at this revision; tells whether it was.
    pub(super) async fn write(
        &mut self,
        fence: i64,
        name: &str,
        value: Vec<u8>,
    ) -> Result<bool, StoreError> {
        match self {
            Self::Etcd(it) => it.write(fence, name, value).await,
            Self::Kubernetes(it) => it.write(fence, name, &value).await,
        }
    }

    /// Gives up what is under way.
    pub(super) fn reset(&mut self) {
        match self {
            Self::Etcd(it) => it.reset(),
            Self::Kubernetes(it) => it.reset(),
        }
    }

    /// How long is waited at most between two looks whether there is something to write.
    pub(super) const fn look(&self) -> Duration {
        match self {
            Self::Etcd(_) => ETCD_LOOK,
            Self::Kubernetes(_) => KUBERNETES_LOOK,
        }
    }

    /// Says why there is no room for a value beside what is kept, and what to do.
    pub(super) fn overflow(
        &self,
        kept: &BTreeMap<String, Vec<u8>>,
        name: &str,
        value: &[u8],
    ) -> Option<String> {
        match self {
            Self::Etcd(_) => (ETCD_VALUE_BYTES_MAX < value.len()).then(|| {
                format!("it has {} bytes, and etcd takes {ETCD_VALUE_BYTES_MAX}", value.len())
            }),
            Self::Kubernetes(_) => super::kubernetes::overflow(kept, name, value),
        }
    }
}

/// Writes what stands in the seat: which router has it, and where it is reached.
pub(super) fn write_holder(own: RouterId, address: &str) -> String {
    format!("{own} {address}")
}

/// Reads which router has the seat; none where another program wrote it.
pub(super) fn read_holder(text: &str) -> Option<RouterId> {
    u64::from_str_radix(text.split(' ').next()?, 16).ok().map(RouterId)
}
