//! For tests of the data plane: a router with plain settings and pools of given replicas.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use cleave_core::brain;
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::replicas::{Access, ProbeSettings};
use crate::telemetry::{AccessLog, LogFormat};

use super::settings::{
    CacheScope, ExplainSettings, HardwareClasses, Hosting, Limits, Passing, PoolSettings,
    ProxySettings, ReplicaSettings, Timeouts,
};
use super::{Listener, Router, default_session_headers};

/// Panics that are to come in requests and in answers, as mistakes in them would bring.
#[derive(Debug, Default)]
pub(super) struct Traps {
    pub(super) request: AtomicU32,
    pub(super) stream: AtomicU32,
}

impl Traps {
    pub(super) fn at_request(&self) {
        spring(&self.request, "a trap in a request");
    }

    pub(super) fn at_stream(&self) {
        spring(&self.stream, "a trap in a stream");
    }
}

fn spring(left: &AtomicU32, words: &str) {
    let is_set = left.fetch_update(Relaxed, Relaxed, |it| it.checked_sub(1)).is_ok();
    assert!(!is_set, "{words}");
}

/// Nothing in a test takes this long unless it hangs.
pub(crate) const LONG: Duration = Duration::from_secs(60);

pub(crate) fn settings() -> ProxySettings {
    ProxySettings {
        listen: ([127, 0, 0, 1], 0).into(),
        tls: None,
        threads: NonZeroUsize::new(2).unwrap(),
        limits: Limits {
            body_bytes_max: 1 << 20,
            buffered_bytes_max: 64 << 20,
            connections_max: 1_000,
            client_bytes_per_s_min: 1,
        },
        timeouts: Timeouts {
            header: LONG,
            body: LONG,
            body_whole: LONG,
            write: LONG,
            connect: LONG,
            first_byte: LONG,
            idle: LONG,
            drain: LONG,
            drain_delay: None,
        },
        session_headers: default_session_headers(),
        workload_header: None,
        state_dir: None,
        audit_file: None,
        kept_ids_bytes_max: 1 << 16,
        explain: ExplainSettings { sample: 0.0, kept_max: 100, token: None, clients: false },
        traces: None,
        record: crate::telemetry::RecordSettings::default(),
        cache_secret: None,
        paths_allowed: Vec::new(),
    }
}

pub(crate) fn router() -> Arc<Router> {
    Router::new(settings(), AccessLog::new(LogFormat::Text, false))
}

pub(crate) fn header_map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
    let pair = |it: &(&'static str, &'static str)| {
        (HeaderName::from_static(it.0), HeaderValue::from_static(it.1))
    };
    pairs.iter().map(pair).collect()
}

/// A listener at an address that is free.
pub(crate) fn listener() -> Listener {
    Listener::bind(([127, 0, 0, 1], 0).into(), 1_000, None).unwrap()
}

/// A pool of replicas at these addresses.
pub(crate) fn pool(name: &str, replicas: &[String], brain: brain::Settings) -> PoolSettings {
    let replica = |address: &String| ReplicaSettings {
        origin: address.parse().unwrap(),
        weight: 1.0,
        hardware: Arc::default(),
        zone: None,
        access: Access::default(),
        hosting: Hosting::default(),
    };
    PoolSettings {
        name: name.to_owned(),
        models: Vec::new(),
        aliases: BTreeMap::new(),
        cache: CacheScope::Shared,
        tokenizer: None,
        replicas: replicas.iter().map(replica).collect(),
        access: Access::default(),
        classes: HardwareClasses::default(),
        brain,
        probe: ProbeSettings::default(),
        resume: false,
        passing: Passing::default(),
        scaling: None,
        is_whole: true,
    }
}
