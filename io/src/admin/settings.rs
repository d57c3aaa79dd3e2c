//! What the operator may set about the admin port.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::tls::ServerTls;

/// Where the admin port is and what opens it.
#[derive(Clone, Debug)]
pub struct AdminSettings {
    pub listen: SocketAddr,
    /// Where KEDA asks how many replicas pools should have; nowhere unless given.
    pub keda_listen: Option<SocketAddr>,
    /// One of them is asked for as a bearer token; without any, everything is open.
    pub tokens: Vec<AdminToken>,
    pub tls: Option<ServerTls>,
    /// Names by which it is asked, beside its addresses and `localhost`.
    pub hosts: Vec<String>,
    /// Pools that the page shows side by side, as the demo has them.
    pub compared: Vec<String>,
    /// This program, which answers what-ifs in a process of its own; they are not taken without it.
    pub replayer: Option<PathBuf>,
}

/// A token, its name and what it may do beside reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdminToken {
    pub name: String,
    pub token: Secret,
    pub may_order: bool,
}

/// Text that must never be shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
