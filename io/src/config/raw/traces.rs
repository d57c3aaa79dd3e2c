//! The section about traces.

use std::collections::BTreeMap;
use std::time::Duration;

use http::Uri;
use schemars::JsonSchema;
use serde::Deserialize;

use super::engine::EngineTlsSection;
use super::text::{Text, TextValue};
use crate::config::problem::Wrong;
use crate::telemetry::TraceProtocol;

/// Traces of requests, sent to a collector of OpenTelemetry over OTLP. Off without an `endpoint`.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct TracesSection {
    /// Address of the collector, `http://` or `https://`. For `http` the path `/v1/traces` is added to it.
    pub endpoint: Option<Text<CollectorUrl>>,
    /// How spans are sent: `http` is protobuf over HTTP (usually port 4318), `grpc` is gRPC (usually 4317).
    pub protocol: Text<TraceProtocol>,
    /// The share of requests that are recorded whatever comes of them. Those that fail, are slow or are explained
    /// are always recorded.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub sample: f64,
    /// Records also each request whose `traceparent` says that its client records it.
    pub follow_parent: bool,
    /// Headers sent to the collector, as a key that it asks for.
    #[schemars(extend("writeOnly" = true))]
    pub headers: BTreeMap<String, Text<HeaderText>>,
    /// Name of the router in traces.
    #[schemars(length(min = 1, max = 256))]
    pub service_name: String,
    /// How long spans are gathered before they are sent.
    pub interval: Text<Duration>,
    /// How long the collector may take for a batch.
    pub timeout: Text<Duration>,
    /// How a collector is reached whose address begins with `https://`.
    pub tls: EngineTlsSection,
}

impl Default for TracesSection {
    fn default() -> Self {
        Self {
            endpoint: None,
            protocol: Text(TraceProtocol::default()),
            sample: 0.01,
            follow_parent: true,
            headers: BTreeMap::new(),
            service_name: "cleave".to_owned(),
            interval: Text(Duration::from_secs(5)),
            timeout: Text(Duration::from_secs(10)),
            tls: EngineTlsSection::default(),
        }
    }
}

/// Where a collector listens.
#[derive(Clone)]
pub(in crate::config) struct CollectorUrl(pub Uri);

impl TextValue for CollectorUrl {
    const FORMAT: &'static str = "collector-address";
    const EXAMPLE: &'static str = "http://127.0.0.1:4318";

    fn read(text: &str) -> Result<Self, Wrong> {
        let remedy =
            "write it as http://HOST:PORT or https://HOST:PORT, for example http://127.0.0.1:4318";
        let uri: Option<Uri> = text.parse().ok();
        let is_sound = |it: &Uri| {
            let is_known = matches!(it.scheme_str(), Some("http" | "https"));
            let is_plain = it.query().is_none() && !text.contains('@');
            is_known && is_plain && it.host().is_some_and(|it| !it.is_empty())
        };
        let sound = uri.filter(is_sound).map(Self);
        sound.ok_or_else(|| Wrong::new("is not the address of a collector", remedy))
    }

    fn write(&self) -> String {
        self.0.to_string()
    }
}

/// The value of a header, which may be a secret.
#[derive(Clone)]
pub(in crate::config) struct HeaderText(pub String);

impl TextValue for HeaderText {
    const FORMAT: &'static str = "header-value";
    const EXAMPLE: &'static str = "Bearer long-and-random";

    fn read(text: &str) -> Result<Self, Wrong> {
        let is_sound =
            !text.is_empty() && text.bytes().all(|it| it == b' ' || it.is_ascii_graphic());
        is_sound.then(|| Self(text.to_owned())).ok_or_else(|| {
            Wrong::new("cannot be the value of a header", "use visible ASCII characters and spaces")
        })
    }

    fn write(&self) -> String {
        "…".to_owned()
    }
}
