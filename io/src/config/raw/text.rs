//! Values that users write as text: addresses, durations, names. Each kind says once how it is
//! read, what is wrong when it cannot be, and what the schema shows for it; the check of the file,
//! the deserialiser and the reference page all use that one definition. Nothing here repeats what
//! was written, because what was written may be a secret in the wrong place.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::Duration;

use cleave_core::policy::PolicyKind;
use cleave_core::protocol::AllowedPath;
use http::{HeaderName, uri::PathAndQuery};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use tracing_subscriber::EnvFilter;

use super::cluster::StoreUrl;
use super::subsets::WorkloadId;
use super::traces::{CollectorUrl, HeaderText};
use crate::admin::Secret;
use crate::config::problem::Wrong;
use crate::coordination::PeerAddress;
use crate::discovery::{EnginePort, Source};
use crate::proxy::{CacheScope, KeyHash, ScaleTarget, UnknownKeys};
use crate::replicas::Origin;
use crate::telemetry::{LogFormat, TraceProtocol};

/// Longer than any sensible value; keeps sums and doublings of durations far from overflow.
const DURATION_MAX: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A kind of value that is written as text.
pub(in crate::config) trait TextValue: Sized {
    /// What the schema calls it; empty for a choice between words.
    const FORMAT: &'static str;
    const EXAMPLE: &'static str;

    fn read(text: &str) -> Result<Self, Wrong>;

    fn write(&self) -> String;

    /// Lists the words to choose from, for kinds that are a choice.
    fn choices() -> Vec<&'static str> {
        Vec::new()
    }
}

/// A value as it stands in the file: text there, its meaning here.
#[derive(Clone, Default)]
pub(in crate::config) struct Text<K>(pub K);

/// Reads text of the kind that the schema names by `format`; unknown formats admit everything.
pub(in crate::config) fn check(format: &str, text: &str) -> Result<(), Wrong> {
    fn reads<K: TextValue>(text: &str) -> Result<(), Wrong> {
        K::read(text).map(drop)
    }
    match format {
        SocketAddr::FORMAT => reads::<SocketAddr>(text),
        Duration::FORMAT => reads::<Duration>(text),
        Origin::FORMAT => reads::<Origin>(text),
        Source::FORMAT => reads::<Source>(text),
        EnginePort::FORMAT => reads::<EnginePort>(text),
        HeaderName::FORMAT => reads::<HeaderName>(text),
        PathAndQuery::FORMAT => reads::<PathAndQuery>(text),
        AllowedPath::FORMAT => reads::<AllowedPath>(text),
        Secret::FORMAT => reads::<Secret>(text),
        PeerAddress::FORMAT => reads::<PeerAddress>(text),
        LogFilter::FORMAT => reads::<LogFilter>(text),
        HashedKey::FORMAT => reads::<HashedKey>(text),
        HostName::FORMAT => reads::<HostName>(text),
        WorkloadId::FORMAT => reads::<WorkloadId>(text),
        CollectorUrl::FORMAT => reads::<CollectorUrl>(text),
        HeaderText::FORMAT => reads::<HeaderText>(text),
        StoreUrl::FORMAT => reads::<StoreUrl>(text),
        ScaleTarget::FORMAT => reads::<ScaleTarget>(text),
        _ => Ok(()),
    }
}

impl TextValue for SocketAddr {
    const FORMAT: &'static str = "listen-address";
    const EXAMPLE: &'static str = "127.0.0.1:8080";

    fn read(text: &str) -> Result<Self, Wrong> {
        text.parse().map_err(|_| {
            Wrong::new(
                "is not an address to listen on",
                "write it as IP:PORT, for example 127.0.0.1:8080, or 0.0.0.0:8080 for every \
                 interface",
            )
        })
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for Duration {
    // JSON Schema's own `duration` is ISO 8601, which is hardly ever written by hand.
    const FORMAT: &'static str = "time-span";
    const EXAMPLE: &'static str = "5s";

    fn read(text: &str) -> Result<Self, Wrong> {
        let remedy = "write a number and its unit, for example 250ms, 5s or 10m";
        match humantime::parse_duration(text) {
            Err(_) => Err(Wrong::new("is not a duration", remedy)),
            Ok(Self::ZERO) => Err(Wrong::new("is zero", remedy)),
            Ok(span) if DURATION_MAX < span => {
                Err(Wrong::new("is too long", "give at most one year"))
            }
            Ok(span) => Ok(span),
        }
    }

    fn write(&self) -> String {
        humantime::format_duration(*self).to_string()
    }
}

impl TextValue for Origin {
    const FORMAT: &'static str = "replica-address";
    const EXAMPLE: &'static str = "http://gpu-0:8000";

    fn read(text: &str) -> Result<Self, Wrong> {
        text.parse().map_err(|error| Wrong::new("is not the address of a replica", error))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for Source {
    const FORMAT: &'static str = "discovery-source";
    const EXAMPLE: &'static str = "dns:replicas.internal:8000";

    fn read(text: &str) -> Result<Self, Wrong> {
        text.parse().map_err(|error| Wrong::new("is no place to find replicas", error))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for EnginePort {
    const FORMAT: &'static str = "port-name";
    const EXAMPLE: &'static str = "http";

    fn read(text: &str) -> Result<Self, Wrong> {
        let is_part = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
        let port = Self::from(text);
        let is_sound = match &port {
            Self::Named(name) => (1..=15).contains(&name.len()) && name.bytes().all(is_part),
            Self::Numbered(number) => *number != 0,
        };
        let remedy = "give its name (up to 15 lower-case letters, digits, hyphens) or its number";
        is_sound.then_some(port).ok_or_else(|| Wrong::new("is not a port of a container", remedy))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for HeaderName {
    const FORMAT: &'static str = "header-name";
    const EXAMPLE: &'static str = "x-session-affinity";

    fn read(text: &str) -> Result<Self, Wrong> {
        text.parse().map_err(|_| {
            Wrong::new(
                "is not a header name",
                "use letters, digits, `-` and `_`, without the colon",
            )
        })
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for PathAndQuery {
    const FORMAT: &'static str = "path";
    const EXAMPLE: &'static str = "/health";

    fn read(text: &str) -> Result<Self, Wrong> {
        text.parse().ok().filter(|_| text.starts_with('/')).ok_or_else(|| {
            Wrong::new("is not a path", "begin it with a slash, for example /health")
        })
    }

    fn write(&self) -> String {
        self.to_string()
    }
}

impl TextValue for PeerAddress {
    const FORMAT: &'static str = "peer-address";
    const EXAMPLE: &'static str = "router-2.internal:7400";

    fn read(text: &str) -> Result<Self, Wrong> {
        let remedy = "give HOST:PORT, for example router-2.internal:7400";
        Self::read(text).ok_or_else(|| Wrong::new("is not the address of a router", remedy))
    }

    fn write(&self) -> String {
        self.as_str().to_owned()
    }
}

impl TextValue for Secret {
    const FORMAT: &'static str = "secret";
    const EXAMPLE: &'static str = "long-and-random";

    fn read(text: &str) -> Result<Self, Wrong> {
        if text.is_empty() {
            return Err(Wrong::new("is empty", "give a token, or leave the key out"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Wrong::new(
                "cannot be sent as a bearer token",
                "use visible ASCII characters without spaces",
            ));
        }
        Ok(Self(text.to_owned()))
    }

    fn write(&self) -> String {
        "…".to_owned()
    }
}

/// The name of a machine, without a port.
#[derive(Clone)]
pub(in crate::config) struct HostName(pub String);

impl TextValue for HostName {
    const FORMAT: &'static str = "host-name";
    const EXAMPLE: &'static str = "router.internal";

    fn read(text: &str) -> Result<Self, Wrong> {
        let is_part = |it: u8| it.is_ascii_alphanumeric() || b"-_.".contains(&it);
        let is_name = (1..=253).contains(&text.len()) && text.bytes().all(is_part);
        is_name.then(|| Self(text.to_owned())).ok_or_else(|| {
            Wrong::new("is not the name of a host", "give the name alone, without http:// and port")
        })
    }

    fn write(&self) -> String {
        self.0.clone()
    }
}

/// A filter as `tracing` reads it, checked.
#[derive(Clone)]
pub(in crate::config) struct LogFilter(pub String);

impl TextValue for LogFilter {
    const FORMAT: &'static str = "log-filter";
    const EXAMPLE: &'static str = "info,cleave_io::proxy=debug";

    fn read(text: &str) -> Result<Self, Wrong> {
        // `tracing` takes a lone word it does not know for a module, so a misspelt level would
        // silence everything else without a word.
        let levels = ["off", "error", "warn", "info", "debug", "trace"];
        let is_plain = |it: &str| it.contains(['=', '[']) || levels.contains(&it);
        let sound = text.split(',').all(is_plain) && EnvFilter::builder().parse(text).is_ok();
        sound.then(|| Self(text.to_owned())).ok_or_else(|| {
            Wrong::new(
                "is not a log filter",
                format!("give one of {}, or MODULE=LEVEL after a comma", levels.join(", ")),
            )
        })
    }

    fn write(&self) -> String {
        self.0.clone()
    }
}

/// An API key, by its hash.
#[derive(Clone)]
pub(in crate::config) struct HashedKey(pub KeyHash);

impl TextValue for HashedKey {
    const FORMAT: &'static str = "sha256";
    const EXAMPLE: &'static str =
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    fn read(text: &str) -> Result<Self, Wrong> {
        KeyHash::from_hex(text).map(Self).ok_or_else(|| {
            Wrong::new(
                "is not a SHA-256 in hexadecimal",
                "hash the key, never write it down: printf %s KEY | sha256sum",
            )
        })
    }

    fn write(&self) -> String {
        self.0.to_hex()
    }
}

/// Makes a kind of value a choice between words, each with what it means.
macro_rules! choice {
    ($kind:ty: $($word:literal => $meaning:ident),+) => {
        impl TextValue for $kind {
            const FORMAT: &'static str = "";
            const EXAMPLE: &'static str = "";

            fn read(text: &str) -> Result<Self, Wrong> {
                match text {
                    $($word => Ok(Self::$meaning),)+
                    _ => Err(Wrong::new(
                        "is not a choice",
                        format!("give one of {}", Self::choices().join(", ")),
                    )),
                }
            }

            fn write(&self) -> String {
                match self {
                    $(Self::$meaning => $word.to_owned(),)+
                }
            }

            fn choices() -> Vec<&'static str> {
                vec![$($word),+]
            }
        }
    };
}

/// What a token of the admin port may do.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub(in crate::config) enum AdminRights {
    #[default]
    Read,
    Order,
}

choice!(AdminRights: "read" => Read, "order" => Order);
choice!(UnknownKeys: "refuse" => Refuse, "share" => Share);
choice!(CacheScope: "shared" => Shared, "per_tenant" => PerTenant);
choice!(LogFormat: "text" => Text, "json" => Json);
choice!(TraceProtocol: "http" => Http, "grpc" => Grpc);

impl TextValue for PolicyKind {
    const FORMAT: &'static str = "";
    const EXAMPLE: &'static str = "priced";

    fn read(text: &str) -> Result<Self, Wrong> {
        Self::among(Self::SERVED, text).map_err(|error| Wrong::new("is not a policy", error))
    }

    fn write(&self) -> String {
        self.to_string()
    }

    fn choices() -> Vec<&'static str> {
        Self::SERVED.iter().map(|it| it.as_str()).collect()
    }
}

impl<'de, K: TextValue> Deserialize<'de> for Text<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        K::read(&text).map(Self).map_err(|wrong| de::Error::custom(wrong.what))
    }
}

impl<K: TextValue> Serialize for Text<K> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.write())
    }
}

impl<K: TextValue> JsonSchema for Text<K> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Text".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let choices = K::choices();
        if choices.is_empty() {
            json_schema!({ "type": "string", "format": K::FORMAT, "examples": [K::EXAMPLE] })
        } else {
            json_schema!({ "type": "string", "enum": choices })
        }
    }
}

#[cfg(test)]
mod tests;
