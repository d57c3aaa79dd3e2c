//! Metrics of a pool's assignment: which workloads may use which replicas, and what changes of it
//! cost.

use std::time::Duration;

use cleave_core::brain::SubsetTotals;
use cleave_core::sharding::Balance;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{KindLabel, PoolLabel, Real, RealCounter, set_count, set_real, whole};

#[derive(Debug, Default)]
pub(super) struct AssignmentFamilies {
    moved_tokens: Family<PoolLabel, Counter>,
    spilled: Family<PoolLabel, Counter>,
    rounds: Family<PoolLabel, Counter>,
    changes: Family<PoolLabel, Counter>,
    churn: Family<KindLabel, RealCounter>,
    load: Family<KindLabel, Real>,
    slices: Family<PoolLabel, Gauge>,
    hot_keys: Family<PoolLabel, Gauge>,
    planning: Family<PoolLabel, Real>,
}

/// One pool's assignment at the time of a scrape.
#[derive(Clone, Copy, Debug)]
pub struct AssignmentGauges<'a> {
    pub totals: &'a SubsetTotals,
    pub balance: &'a Balance,
    pub slices: usize,
    pub hot_keys: usize,
    pub planning: Duration,
}

impl AssignmentFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register(
            "cleave_sessions_moved_tokens",
            "Prompt tokens computed again because their session had moved",
            self.moved_tokens.clone(),
        );
        it.register(
            "cleave_subset_spilled",
            "Requests sent beyond their workload's subset",
            self.spilled.clone(),
        );
        it.register("cleave_assignment_rounds", "Rounds planned", self.rounds.clone());
        it.register(
            "cleave_assignment_changes",
            "Rounds that changed something",
            self.changes.clone(),
        );
        it.register(
            "cleave_assignment_churn",
            "Share of all load that changed hands, by cause",
            self.churn.clone(),
        );
        it.register(
            "cleave_assignment_load",
            "Load of replicas as a share of capacity, by what it is",
            self.load.clone(),
        );
        it.register("cleave_assignment_slices", "Slices of the key space", self.slices.clone());
        it.register(
            "cleave_assignment_hot_keys",
            "Sessions that ask for more than a tenth of what a replica can do",
            self.hot_keys.clone(),
        );
        it.register(
            "cleave_assignment_planning_seconds",
            "How long the last round of planning took",
            self.planning.clone(),
        );
    }

    pub(super) fn set(&self, pool: &str, it: AssignmentGauges<'_>) {
        let (totals, balance) = (it.totals, it.balance);
        set_count(&self.moved_tokens, pool, totals.moved_tokens);
        set_count(&self.spilled, pool, totals.spilled);
        set_count(&self.rounds, pool, totals.rounds);
        set_count(&self.changes, pool, totals.changes);
        let churn =
            [("removal", totals.removal), ("addition", totals.addition), ("choice", totals.choice)];
        for (kind, value) in churn {
            set_real(&self.churn.get_or_create(&KindLabel::of(pool, kind)), value);
        }
        for (kind, value) in [
            ("mean", balance.mean),
            ("max", balance.max),
            ("min", balance.min),
            ("max_possible", balance.mean + balance.imbalance_bound),
            ("max_static", balance.static_max),
        ] {
            self.load.get_or_create(&KindLabel::of(pool, kind)).set(value);
        }
        let label = PoolLabel::of(pool);
        self.slices.get_or_create(&label).set(whole(it.slices));
        self.hot_keys.get_or_create(&label).set(whole(it.hot_keys));
        self.planning.get_or_create(&label).set(it.planning.as_secs_f64());
    }
}
