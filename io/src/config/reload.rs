//! What a reload cannot apply. Pools, models, aliases, replicas, weights, tenants and their keys change
//! while the router runs; everything else was built into listeners, threads and brains at the start, and a change
//! to it is worth a warning that names it.

use super::{Config, record};
use crate::coordination::{EtcdSettings, StoreSettings};
use crate::proxy::{Limits, PoolSettings, ProxySettings, Timeouts};
use crate::telemetry::{RecordSettings, TraceSettings};

/// Names the settings that differ and take effect only after a restart.
pub fn changes_static(old: &Config, new: &Config) -> Vec<&'static str> {
    let (from, to) = (&old.proxy, &new.proxy);
    let own = [
        ("listen", from.listen != to.listen),
        ("threads", from.threads != to.threads),
        ("admin.listen", old.admin.listen != new.admin.listen),
        ("admin.keda_listen", old.admin.keda_listen != new.admin.keda_listen),
        // Whether it came from a file or not does not matter, only whether it differs.
        ("admin.token", old.admin.tokens != new.admin.tokens),
        ("admin.tls", old.admin.tls.is_some() != new.admin.tls.is_some()),
        ("admin.audit_file", from.audit_file != to.audit_file),
        ("admin.hosts", old.admin.hosts != new.admin.hosts),
        ("cluster", old.cluster != new.cluster),
        ("tls", from.tls.is_some() != to.tls.is_some()),
        ("subsets.state_dir", from.state_dir != to.state_dir),
        ("sessions.headers", from.session_headers != to.session_headers),
        ("sessions.ids_mib", from.kept_ids_bytes_max != to.kept_ids_bytes_max),
        ("subsets.workload_header", from.workload_header != to.workload_header),
        ("paths.allow", from.paths_allowed != to.paths_allowed),
        ("explain.sample", from.explain.sample.to_bits() != to.explain.sample.to_bits()),
        ("explain.kept_max", from.explain.kept_max != to.explain.kept_max),
        ("explain.clients", from.explain.clients != to.explain.clients),
        ("traces", differ(from.traces.as_ref(), to.traces.as_ref())),
        ("record", recorded(from) != recorded(to)),
        ("keys.cache_secret", from.cache_secret != to.cache_secret),
        ("log.format", old.telemetry.format != new.telemetry.format),
        ("log.level", old.telemetry.level != new.telemetry.level),
        ("log.access", old.telemetry.access_log != new.telemetry.access_log),
    ];
    let mut changes = own.to_vec();
    changes.extend(limits(from.limits, to.limits));
    changes.extend(timeouts(from.timeouts, to.timeouts));
    for before in &old.pools {
        if let Some(after) = new.pools.iter().find(|it| it.name == before.name) {
            changes.extend(pool(before, after));
        }
    }
    let mut names: Vec<&str> = changes.into_iter().filter(|it| it.1).map(|it| it.0).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Has the clients of the collector and of the store, which hold the settings that were `running` from the start, go on
/// with files that were read again. What is to go elsewhere needs a restart.
pub fn renew_tls(running: &Config, new: &Config) {
    if let (Some(old), Some(new)) = (&running.proxy.traces, &new.proxy.traces)
        && old.endpoint == new.endpoint
        && let (Some(old), Some(new)) = (&old.tls, &new.tls)
    {
        old.renew(new);
    }
    if let (Some(old), Some(new)) = (etcd(running), etcd(new))
        && old.endpoints == new.endpoints
        && let (Some(old), Some(new)) = (&old.tls, &new.tls)
    {
        old.renew(new);
    }
}

fn etcd(config: &Config) -> Option<&EtcdSettings> {
    match config.cluster.as_ref()?.store.as_ref()? {
        StoreSettings::Etcd(it) => Some(it),
        StoreSettings::Kubernetes(_) => None,
    }
}

/// Tells whether traces are to go elsewhere, or otherwise. TLS that was read again is the same for that.
fn differ(old: Option<&TraceSettings>, new: Option<&TraceSettings>) -> bool {
    let plain =
        |it: Option<&TraceSettings>| it.cloned().map(|it| TraceSettings { tls: None, ..it });
    plain(old) != plain(new)
}

/// What is said about recordings; a folder that only follows the one for state is not named beside it.
fn recorded(it: &ProxySettings) -> RecordSettings {
    let usual = it.state_dir.as_deref().map(record::usual_dir);
    let dir = it.record.dir.clone().filter(|dir| Some(dir) != usual.as_ref());
    RecordSettings { dir, ..it.record.clone() }
}

fn limits(old: Limits, new: Limits) -> [(&'static str, bool); 4] {
    [
        ("limits.body_mib_max", old.body_bytes_max != new.body_bytes_max),
        ("limits.buffered_mib_max", old.buffered_bytes_max != new.buffered_bytes_max),
        ("limits.connections_max", old.connections_max != new.connections_max),
        ("limits.client_kib_per_s_min", old.client_bytes_per_s_min != new.client_bytes_per_s_min),
    ]
}

fn timeouts(old: Timeouts, new: Timeouts) -> [(&'static str, bool); 9] {
    [
        ("timeouts.header", old.header != new.header),
        ("timeouts.body", old.body != new.body),
        ("timeouts.body_whole", old.body_whole != new.body_whole),
        ("timeouts.write", old.write != new.write),
        ("timeouts.connect", old.connect != new.connect),
        ("timeouts.first_byte", old.first_byte != new.first_byte),
        ("timeouts.idle", old.idle != new.idle),
        ("timeouts.drain", old.drain != new.drain),
        ("timeouts.drain_delay", old.drain_delay != new.drain_delay),
    ]
}

/// Compares what a pool's brain and probes were started with.
fn pool(old: &PoolSettings, new: &PoolSettings) -> [(&'static str, bool); 28] {
    let (from, to) = (&old.brain, &new.brain);
    [
        ("policy", from.policy != to.policy),
        ("learn_costs", from.learns_costs != to.learns_costs),
        ("sessions.table_mib", from.sessions.bytes_max != to.sessions.bytes_max),
        ("sessions.ttl", from.sessions.ttl != to.sessions.ttl),
        ("retries.tries_max", from.retries.tries_max != to.retries.tries_max),
        ("retries.share", from.retries.share.to_bits() != to.retries.share.to_bits()),
        ("retries.reserve", from.retries.reserve != to.retries.reserve),
        ("subsets.floor", from.subsets.floor != to.subsets.floor),
        ("subsets.cap", from.subsets.cap != to.subsets.cap),
        ("subsets.spill_after", from.subsets.spill_after != to.subsets.spill_after),
        ("subsets.spill_max", from.subsets.spill_max != to.subsets.spill_max),
        ("workloads", from.subsets.workloads != to.subsets.workloads),
        ("breaker.failures_max", from.breaker.failures_max != to.breaker.failures_max),
        ("breaker.open", from.breaker.open != to.breaker.open),
        ("breaker.open_max", from.breaker.open_max != to.breaker.open_max),
        ("line.hold", from.line.holds != to.line.holds),
        ("line.gate", from.line.gates != to.line.gates),
        ("line.kv_share", from.line.gate != to.line.gate),
        ("line.length_max", from.line.limits.count_max != to.line.limits.count_max),
        ("line.waiting_mib_max", from.line.limits.bytes_max != to.line.limits.bytes_max),
        ("classes", from.line.classes != to.line.classes),
        ("health.path", old.probe.path != new.probe.path),
        ("health.interval", old.probe.interval != new.probe.interval),
        ("health.timeout", old.probe.timeout != new.probe.timeout),
        ("health.token_after", from.watch.idle != to.watch.idle),
        ("quarantine.enabled", from.quarantine.enabled != to.quarantine.enabled),
        ("quarantine.ttl", from.quarantine.ttl != to.quarantine.ttl),
        ("health.report_interval", old.probe.report_interval != new.probe.report_interval),
    ]
}
