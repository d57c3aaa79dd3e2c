//! What the operator may set about traces.

use std::time::Duration;

use http::{HeaderMap, Uri};

use crate::tls::RenewableTls;

/// Where traces go, and which requests are in them.
#[derive(Clone, Debug, PartialEq)]
pub struct TraceSettings {
    /// Where the collector listens, with the path before OTLP's own, if there is one.
    pub endpoint: Uri,
    pub protocol: TraceProtocol,
    /// Sent with every batch.
    pub headers: HeaderMap,
    /// For a collector behind `https://`.
    pub tls: Option<RenewableTls>,
    pub service_name: String,
    /// The share of requests that are recorded whatever comes of them, from 0 to 1.
    pub sample: f64,
    /// Whether a request is recorded because its client says that it records it.
    pub follows_parent: bool,
    /// How long spans are gathered before they are sent.
    pub interval: Duration,
    /// How long the collector may take for a batch.
    pub timeout: Duration,
}

/// How batches are sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TraceProtocol {
    /// Protobuf over HTTP/1.1, usually to port 4318.
    #[default]
    Http,
    /// gRPC, usually to port 4317.
    Grpc,
}
