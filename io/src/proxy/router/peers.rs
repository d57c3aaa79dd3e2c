//! What is shown of other routers.

use std::collections::BTreeMap;

use cleave_core::domain::RouterId;

use crate::telemetry::PeerGauges;

use super::Router;

impl Router {
    /// Counts the requests that each other router has in flight, over all pools.
    pub fn heard_in_flight(&self) -> BTreeMap<RouterId, usize> {
        let mut all = BTreeMap::new();
        for (router, count) in self.pools.load().iter().flat_map(|it| it.heard_in_flight()) {
            *all.entry(router).or_default() += count;
        }
        all
    }

    pub(super) fn set_peer_metrics(&self) {
        let Some(sharing) = self.sharing() else { return };
        let (peers, in_flight) = (sharing.peers(), self.heard_in_flight());
        let gauges = peers.iter().map(|(id, it)| PeerGauges {
            peer: &it.address,
            lag: it.lag,
            bytes_told: it.totals.bytes_told,
            bytes_heard: it.totals.bytes_heard,
            gaps: it.totals.gaps,
            wholes_told: it.totals.wholes_told,
            wholes_heard: it.totals.wholes_heard,
            overruns: it.totals.overruns,
            in_flight: in_flight.get(id).copied().unwrap_or(0),
        });
        self.metrics.set_peers(&gauges.collect::<Vec<_>>());
    }
}
