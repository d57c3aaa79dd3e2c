//! What the operator may set about the admin port.

use std::fmt;
use std::net::SocketAddr;

/// Where the admin port is and what opens it.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    pub listen: SocketAddr,
    /// Asked for as a bearer token when set.
    pub token: Option<Secret>,
    /// Names by which it is asked, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
}

/// Text that must never be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
