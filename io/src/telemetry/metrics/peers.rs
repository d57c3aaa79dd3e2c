//! Metrics of what routers tell each other, by the address of the other.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use cleave_core::cluster::{ClusterStanding, LinkTotals};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{Real, whole};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerLabel {
    peer: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PeerKindLabel {
    peer: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct RefusedLabel {
    reason: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct PeerFamilies {
    peers: Gauge,
    lag: Family<PeerLabel, Real>,
    bytes: Family<PeerKindLabel, Counter>,
    gaps: Family<PeerLabel, Counter>,
    wholes: Family<PeerKindLabel, Counter>,
    overruns: Family<PeerLabel, Counter>,
    in_flight: Family<PeerLabel, Gauge>,
    routers: Gauge,
    missing: Gauge,
    leads: Gauge,
    has_leader: Gauge,
    leader_changes: Counter,
    store_up: Gauge,
    store_failures: Counter,
    store_writes: Counter,
    refused: Family<RefusedLabel, Counter>,
}

/// Another router at the time of a scrape.
#[derive(Clone, Copy, Debug)]
pub struct PeerGauges<'a> {
    pub peer: &'a str,
    pub lag: Duration,
    pub totals: LinkTotals,
    /// Requests that it has in flight.
    pub in_flight: usize,
}

impl PeerFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register("cleave_peers", "Other routers that are talked to", self.peers.clone());
        it.register(
            "cleave_peer_lag_seconds",
            "Age of the oldest news that the other router is not known to have heard",
            self.lag.clone(),
        );
        it.register("cleave_peer_bytes", "Bytes told and heard", self.bytes.clone());
        it.register("cleave_peer_gaps", "Frames that were missing", self.gaps.clone());
        it.register(
            "cleave_peer_snapshots",
            "Times that everything was told or heard",
            self.wholes.clone(),
        );
        it.register(
            "cleave_peer_overruns",
            "Times that the other router fell behind",
            self.overruns.clone(),
        );
        it.register(
            "cleave_peer_in_flight",
            "Requests that the other router has in flight",
            self.in_flight.clone(),
        );
        it.register(
            "cleave_cluster_routers",
            "Routers that there should be, this one included",
            self.routers.clone(),
        );
        it.register(
            "cleave_cluster_routers_missing",
            "Routers that there should be and that are not talked to",
            self.missing.clone(),
        );
        it.register(
            "cleave_cluster_leads",
            "Whether this router plans subsets for all",
            self.leads.clone(),
        );
        it.register(
            "cleave_cluster_has_leader",
            "Whether any router does, as this one sees it",
            self.has_leader.clone(),
        );
        it.register(
            "cleave_cluster_leader_changes",
            "Times that another router came to lead, or none",
            self.leader_changes.clone(),
        );
        it.register(
            "cleave_cluster_refused",
            "Connections of other routers that were not admitted, or did not admit this one",
            self.refused.clone(),
        );
        it.register(
            "cleave_cluster_store_up",
            "Whether the store that routers share answers; 0 also where there is none",
            self.store_up.clone(),
        );
        it.register(
            "cleave_cluster_store_failures",
            "Questions to the store that were not answered",
            self.store_failures.clone(),
        );
        it.register(
            "cleave_cluster_store_writes",
            "Orders and plans that this router wrote to the store as the leader",
            self.store_writes.clone(),
        );
    }

    pub(super) fn set_store(&self, is_up: bool, failures: u64, writes: u64) {
        self.store_up.set(is_up.into());
        self.store_failures.inner().store(failures, Relaxed);
        self.store_writes.inner().store(writes, Relaxed);
    }

    pub(super) fn on_refused(&self, reason: &'static str) {
        self.refused.get_or_create(&RefusedLabel { reason }).inc();
    }

    pub(super) fn set_standing(&self, standing: &ClusterStanding, leads: bool) {
        self.routers.set(standing.routers.into());
        self.missing.set(standing.routers.saturating_sub(standing.present).into());
        self.leads.set(leads.into());
        self.has_leader.set(standing.leader.is_some().into());
        self.leader_changes.inner().store(standing.leader_changes, Relaxed);
    }

    pub(super) fn set(&self, all: &[PeerGauges<'_>]) {
        self.lag.clear();
        self.in_flight.clear();
        self.peers.set(whole(all.len()));
        for it in all {
            let peer = it.peer.to_owned();
            let label = PeerLabel { peer: peer.clone() };
            let kind = |kind| PeerKindLabel { peer: peer.clone(), kind };
            let set = |counter: &Counter, count| counter.inner().store(count, Relaxed);
            self.lag.get_or_create(&label).set(it.lag.as_secs_f64());
            self.in_flight.get_or_create(&label).set(whole(it.in_flight));
            set(&self.bytes.get_or_create(&kind("told")), it.totals.bytes_told);
            set(&self.bytes.get_or_create(&kind("heard")), it.totals.bytes_heard);
            set(&self.gaps.get_or_create(&label), it.totals.gaps);
            set(&self.wholes.get_or_create(&kind("told")), it.totals.wholes_told);
            set(&self.wholes.get_or_create(&kind("heard")), it.totals.wholes_heard);
            set(&self.overruns.get_or_create(&label), it.totals.overruns);
        }
    }
}
