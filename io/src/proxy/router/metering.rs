//! All metrics as they are at one moment.

use cleave_core::domain::float;
use cleave_core::queue::{ContractUsage, Use, Work};

use super::Router;
use crate::proxy::workloads::WorkloadNames;
use crate::telemetry::{AssignmentGauges, PeerGauges, PoolGauges, ReplicaGauges, TenantGauges};

impl Router {
    /// Writes all metrics, with those of pools and replicas as they are now.
    pub fn write_metrics(&self) -> String {
        self.metrics.clear_replicas();
        self.metrics.set_log_lines_dropped(self.access.dropped_total());
        let (now, known) = (self.clock.now(), self.tenants());
        for pool in self.pools.load().iter() {
            let snapshot = pool.snapshot();
            let (members, orders) = (pool.members(), pool.orders());
            let denied = |name: &str| {
                let member = members.iter().find(|it| it.origin.as_str() == name);
                member.map_or(0, |it| it.denied_total())
            };
            let gauges = snapshot.replicas.iter().map(|it| ReplicaGauges {
                replica: &it.name,
                up: it.state == "up",
                in_flight: it.in_flight,
                sessions: it.sessions,
                sent_total: it.sent_total,
                failed_total: it.failed_total,
                report_age: it.report.map(|report| now.since(report.taken_at)),
                in_flight_mu: it.in_flight_mu,
                pace: it.pace,
                drift: it.drift,
                denied_total: denied(&it.name),
                is_drained: orders.drained.contains_key(&it.name),
                capacity_mu_per_min: it.capacity_mu_per_min,
                engine: it.report.map(|it| (it.waiting, it.running, it.kv_used_share)),
            });
            let names = WorkloadNames::of(pool, &known);
            let own = PoolGauges {
                sessions_moved: snapshot.sessions_moved,
                quarantined_total: snapshot.quarantined_total,
                misses: snapshot.misses,
                shadows: pool.shadows(),
                ttft_error: snapshot.ttft_error.clone(),
                costs: pool.learned_costs(),
                workloads: pool
                    .workload_drifts()
                    .into_iter()
                    .map(|it| (names.name(it.workload), it.drift))
                    .collect(),
            };
            self.metrics.set_pool(&pool.name, &own, gauges);
            let view = pool.assignment();
            let assignment = AssignmentGauges {
                totals: &view.totals,
                balance: &view.balance,
                slices: view.slices.len(),
                hot_keys: view.hot_keys.len(),
                planning: pool.planning(),
            };
            self.metrics.set_assignment(&pool.name, assignment);
            let classes = &snapshot.queue.classes;
            let books = pool.tenants();
            let tenants = books.iter().map(|it| TenantGauges {
                tenant: known.name(it.tenant).unwrap_or("default"),
                waiting: it.waiting,
                used_mu: Use::ALL
                    .map(|kind| (kind.as_str(), it.usage.used[kind.index()].work.as_mu())),
                contract_used: contract_used(&it.usage),
            });
            self.set_scale_metrics(pool);
            self.metrics.set_line(
                &pool.name,
                classes.iter().map(|(name, it)| (name.as_str(), it.count)),
                &tenants.collect::<Vec<_>>(),
            );
        }
        self.set_peer_metrics();
        self.metrics.write()
    }

    fn set_peer_metrics(&self) {
        let Some(sharing) = self.sharing() else { return };
        let (peers, in_flight) = (sharing.peers(), self.heard_in_flight());
        let gauges = peers.iter().map(|(id, it)| PeerGauges {
            peer: &it.address,
            lag: it.lag,
            totals: it.totals,
            in_flight: in_flight.get(id).copied().unwrap_or(0),
        });
        self.metrics.set_peers(&gauges.collect::<Vec<_>>());
        self.metrics.set_standing(&sharing.standing(), sharing.leads());
        if let Some(it) = sharing.store() {
            self.metrics.set_store(it.is_answering, it.failures, it.writes);
        }
    }
}

/// Says what share of each limit of a contract is used now; nothing where there is no such limit.
fn contract_used(it: &ContractUsage) -> [(&'static str, Option<f64>); 3] {
    let share = |limit: Option<f64>, left: Option<f64>| {
        let limit = limit.filter(|it| 0.0 < *it)?;
        Some((1.0 - left? / limit).clamp(0.0, 1.0))
    };
    let whole = |count: Option<u64>| count.map(float);
    let limits = &it.limits;
    [
        ("mu", share(limits.work_per_min.map(Work::as_mu), it.work_remaining.map(Work::as_mu))),
        ("tokens", share(whole(limits.tokens_per_min), whole(it.tokens_remaining))),
        ("requests", share(whole(limits.requests_per_min), whole(it.requests_remaining))),
    ]
}
