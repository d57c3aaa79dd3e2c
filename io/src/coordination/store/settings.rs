//! What the operator may set about the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;

use crate::tls::EngineTls;

/// How etcd is reached and what is kept there.
#[derive(Clone)]
pub struct EtcdSettings {
    /// `http://` or `https://`, one or more; the next one is tried when one does not answer.
    pub endpoints: Vec<Uri>,
    /// How endpoints under `https://` are checked.
    pub tls: Option<Arc<EngineTls>>,
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
