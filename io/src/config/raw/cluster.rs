//! How this router finds others and knows them.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::text::HostName;
use super::{EngineTlsSection, Slots, Text, TextValue, slots};
use crate::admin::Secret;
use crate::config::problem::Wrong;
use crate::coordination::PeerAddress;
use crate::discovery::{EnginePort, Source};

/// Several routers that decide as one: each tells the others what it does. Leave the section out for a router that is
/// alone.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ClusterSection {
    /// Address where other routers connect. Needed for this router to take part.
    pub listen: Option<Text<SocketAddr>>,
    /// Address that other routers are told, where `listen` is not the one that reaches this router.
    pub advertise: Option<Text<PeerAddress>>,
    /// Other routers, each `HOST:PORT`. One that is there is enough: it tells of the rest.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<PeerAddress>>")]
    pub peers: Slots<Text<PeerAddress>>,
    /// What all routers know and no other process does, of 16 characters or more. This or `tls` is needed unless all of
    /// them are on this machine. Prefer `secret_file`, which keeps it out of this file.
    #[schemars(extend("writeOnly" = true))]
    pub secret: Option<Text<Secret>>,
    /// File that holds the secret, and nothing else. Give this or `secret`, not both.
    pub secret_file: Option<PathBuf>,
    /// Certificates by which routers know each other, and under which the stream between them is encrypted.
    pub tls: PeerTlsSection,
    /// Where other routers are found, beside `peers`: `dns:HOST:PORT` for every address of a name, `srv:NAME`,
    /// `file:PATH` or `kubernetes`, as pools have it.
    pub discover: Option<Text<Source>>,
    /// What routers keep together: `etcd` or `kubernetes` says which of them leads, and keeps the plan and the orders
    /// over a restart of all of them; `none` leaves that to the majority, and forgets.
    pub store: Text<StoreKind>,
    /// How etcd is reached, where `store` is `etcd`.
    pub etcd: EtcdSection,
    /// Which pods are routers, where `discover` is `kubernetes`, and which objects they share, where `store` is.
    pub kubernetes: ClusterKubernetesSection,
}

/// The cluster of Kubernetes that routers run in.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ClusterKubernetesSection {
    /// Label selector of the routers' own pods: `app.kubernetes.io/name=cleave`. Needed with
    /// `discover = "kubernetes"`.
    #[schemars(length(max = 4096))]
    pub selector: String,
    /// Name or number of the port where routers reach each other, as the pod lists it.
    pub port: Text<EnginePort>,
    /// Namespace of the routers and of what they share.
    #[schemars(length(min = 1, max = 63), extend("x-default" = "the router's own, or that of the kubeconfig"))]
    pub namespace: Option<String>,
    /// File that says where the cluster is and how to log in. Without it, the router must run in the cluster.
    pub kubeconfig: Option<PathBuf>,
    /// Name of the Lease and of the `ConfigMap` that routers share: another one for each cluster of routers.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
    /// How long a leader that is not heard of any more keeps others from leading, in whole seconds; 3 s or more.
    pub lease: Text<Duration>,
}

impl Default for ClusterKubernetesSection {
    fn default() -> Self {
        Self {
            selector: String::new(),
            port: Text(EnginePort::Named("cluster".to_owned())),
            namespace: None,
            kubeconfig: None,
            name: "cleave-cluster".to_owned(),
            lease: Text(Duration::from_secs(8)),
        }
    }
}

/// Certificates by which routers know each other. All of `ca`, `cert` and `key`, or none of them. Files are read again
/// when they change; only to turn TLS on or off needs a restart.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PeerTlsSection {
    /// PEM file of the CAs that sign routers' certificates.
    #[schemars(extend("x-applies" = "reload"))]
    pub ca: Option<PathBuf>,
    /// PEM file of this router's certificate chain, its own certificate first. It serves on both ends of a connection.
    #[schemars(extend("x-applies" = "reload"))]
    pub cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM.
    #[schemars(extend("x-applies" = "reload"))]
    pub key: Option<PathBuf>,
    /// Name that stands in the certificates of all routers: a router with another name is refused. Without it, a router
    /// that is dialled shows the host of its address, and one that dials any name.
    #[schemars(extend("x-applies" = "reload"))]
    pub server_name: Option<Text<HostName>>,
}

/// How etcd is reached and what is kept there.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct EtcdSection {
    /// Addresses of its members, `http://HOST:PORT` or `https://HOST:PORT`. The next one is asked when one fails.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<StoreUrl>>")]
    pub endpoints: Slots<Text<StoreUrl>>,
    /// User of etcd, where it asks for one.
    #[schemars(length(min = 1, max = 256))]
    pub user: Option<String>,
    /// Password of that user. Prefer `password_file`, which keeps it out of this file.
    #[schemars(extend("writeOnly" = true))]
    pub password: Option<Text<Secret>>,
    /// File that holds the password, and nothing else.
    pub password_file: Option<PathBuf>,
    /// What the name of every key begins with: another one for each cluster of routers that shares an etcd.
    #[schemars(length(min = 1, max = 256))]
    pub prefix: String,
    /// How long a leader that is not heard of any more keeps others from leading, in whole seconds; 2 s or more.
    pub lease: Text<Duration>,
    /// How members are checked whose address begins with `https://`.
    pub tls: EngineTlsSection,
}

impl Default for EtcdSection {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            user: None,
            password: None,
            password_file: None,
            prefix: "/cleave/".to_owned(),
            lease: Text(Duration::from_secs(5)),
            tls: EngineTlsSection::default(),
        }
    }
}

/// What routers keep together.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::config) enum StoreKind {
    #[default]
    None,
    Etcd,
    Kubernetes,
}

impl TextValue for StoreKind {
    const FORMAT: &'static str = "";
    const EXAMPLE: &'static str = "etcd";

    fn read(text: &str) -> Result<Self, Wrong> {
        match text {
            "none" => Ok(Self::None),
            "etcd" => Ok(Self::Etcd),
            "kubernetes" => Ok(Self::Kubernetes),
            _ => Err(Wrong::new("is not a choice", "give one of none, etcd, kubernetes")),
        }
    }

    fn write(&self) -> String {
        let word = match self {
            Self::None => "none",
            Self::Etcd => "etcd",
            Self::Kubernetes => "kubernetes",
        };
        word.to_owned()
    }

    fn choices() -> Vec<&'static str> {
        vec!["none", "etcd", "kubernetes"]
    }
}

/// Where a member of etcd listens.
#[derive(Clone)]
pub(in crate::config) struct StoreUrl(pub Uri);

impl TextValue for StoreUrl {
    const FORMAT: &'static str = "store-address";
    const EXAMPLE: &'static str = "http://127.0.0.1:2379";

    fn read(text: &str) -> Result<Self, Wrong> {
        let remedy = "write it as http://HOST:PORT or https://HOST:PORT: http://127.0.0.1:2379";
        let uri: Option<Uri> = text.parse().ok();
        let is_sound = |it: &Uri| {
            let is_known = matches!(it.scheme_str(), Some("http" | "https"));
            let is_bare = matches!(it.path(), "" | "/") && it.query().is_none();
            let has_host = it.host().is_some_and(|it| !it.is_empty());
            is_known && is_bare && has_host && !text.contains('@')
        };
        let sound = uri.filter(is_sound).map(Self);
        sound.ok_or_else(|| Wrong::new("is not the address of etcd", remedy))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}
