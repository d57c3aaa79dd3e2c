//! What the operator may set about the store.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use crate::tls::RenewableTls;

/// Which store routers share.
#[derive(Clone, Debug, PartialEq)]
pub enum StoreSettings {
    Etcd(EtcdSettings),
    Kubernetes(KubernetesStoreSettings),
}

impl StoreSettings {
    /// How long a leader that is not heard of any more keeps others from leading.
    pub const fn lease(&self) -> Duration {
        match self {
            Self::Etcd(it) => it.lease,
            Self::Kubernetes(it) => it.lease,
        }
    }
}

impl fmt::Display for StoreSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Etcd(EtcdSettings { endpoints, prefix, .. }) => {
                let endpoints: Vec<String> = endpoints.iter().map(ToString::to_string).collect();
                write!(f, "etcd {prefix} at {}", endpoints.join(","))
            }
            Self::Kubernetes(KubernetesStoreSettings { namespace, name, .. }) => {
                write!(f, "kubernetes {}/{name}", namespace.as_deref().unwrap_or_default())
            }
        }
    }
}

/// Which objects of Kubernetes are shared, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesStoreSettings {
    /// A file that names a cluster and how to log in; without one, the cluster that the router itself runs in.
    pub kubeconfig: Option<PathBuf>,
    /// The router's own, or that of the kubeconfig, unless given.
    pub namespace: Option<String>,
    /// The name of the Lease, and of the `ConfigMap`.
    pub name: String,
    /// How long a leader that is not heard of any more keeps others from leading.
    pub lease: Duration,
}

/// How etcd is reached and what is kept there.
#[derive(Clone)]
pub struct EtcdSettings {
    /// `http://` or `https://`, one or more; the next one is tried when one does not answer.
    pub endpoints: Vec<Uri>,
    /// How endpoints under `https://` are checked.
    pub tls: Option<RenewableTls>,
    pub user: Option<EtcdUser>,
    /// What the name of every key begins with.
    pub prefix: String,
    /// How long a leader that is not heard of any more keeps others from leading.
    pub lease: Duration,
}

/// A user of etcd and the password.
#[derive(Clone, PartialEq, Eq)]
pub struct EtcdUser {
    pub name: String,
    pub password: String,
}

/// Files that were read twice make no difference: a restart is needed for none of them.
impl PartialEq for EtcdSettings {
    fn eq(&self, other: &Self) -> bool {
        let rest = |it: &Self| (it.user.clone(), it.prefix.clone(), it.lease, it.tls.is_some());
        self.endpoints == other.endpoints && rest(self) == rest(other)
    }
}

impl fmt::Debug for EtcdSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EtcdSettings")
            .field("endpoints", &self.endpoints)
            .field("user", &self.user.as_ref().map(|it| &it.name))
            .field("prefix", &self.prefix)
            .field("lease", &self.lease)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for EtcdUser {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EtcdUser({}, …)", self.name)
    }
}
