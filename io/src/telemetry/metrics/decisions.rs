//! What is told of a pool's decisions: how good the predictions were, what other policies would have
//! done, what was done about trouble.

use std::sync::atomic::Ordering::Relaxed;

use cleave_core::brain::{LeaveCause, MoveTotals, Shadows, TtftError};
use cleave_core::cost::learned::{Errors, Learned, SightingKind};
use cleave_core::fleet::{Drift, ms};
use cleave_core::tokens::TokenErrors;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::labels::{KindLabel, PoolLabel, Real, RealCounter, set_count, set_real};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WorkloadLabel {
    pool: String,
    workload: String,
    kind: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CauseLabel {
    pool: String,
    cause: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PercentileLabel {
    pool: String,
    percentile: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CostLabel {
    pool: String,
    class: String,
    kind: &'static str,
    costs: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct DecisionFamilies {
    cost_error: Family<CostLabel, Real>,
    tokens_predicted: Family<KindLabel, Counter>,
    tokens_missed: Family<KindLabel, Counter>,
    first_token_error: Family<PercentileLabel, Real>,
    workload_work: Family<WorkloadLabel, RealCounter>,
    shadow_ttft: Family<KindLabel, RealCounter>,
    shadow_decisions: Family<PoolLabel, Counter>,
    sessions_moved: Family<CauseLabel, Counter>,
    sessions_moved_gain: Family<PoolLabel, RealCounter>,
    quarantined: Family<PoolLabel, Counter>,
}

/// One pool's figures at the time of a scrape.
#[derive(Clone, Debug)]
pub struct PoolGauges {
    pub sessions_moved: MoveTotals,
    pub quarantined_total: u64,
    pub misses: TokenErrors,
    pub shadows: Shadows,
    pub ttft_error: TtftError,
    pub costs: Vec<Learned>,
    /// By name.
    pub workloads: Vec<(String, Drift)>,
}

impl DecisionFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register(
            "cleave_cost_error_ratio",
            "How far times of a class were off lately by the costs given, learned and used",
            self.cost_error.clone(),
        );
        it.register(
            "cleave_tokens_predicted",
            "Tokens predicted at the decision, of requests whose count came",
            self.tokens_predicted.clone(),
        );
        it.register(
            "cleave_tokens_missed",
            "Tokens predicted too many or too few",
            self.tokens_missed.clone(),
        );
        it.register(
            "cleave_first_token_error_seconds",
            "Error of predicted first tokens since the start, by percentile",
            self.first_token_error.clone(),
        );
        it.register(
            "cleave_workload_work_seconds",
            "Work predicted, settled and missed for each workload",
            self.workload_work.clone(),
        );
        it.register(
            "cleave_shadow_ttft_seconds",
            "Time to first token as predicted, where kept requests went and where others would send them",
            self.shadow_ttft.clone(),
        );
        it.register(
            "cleave_shadow_decisions",
            "Kept decisions that other policies were asked about",
            self.shadow_decisions.clone(),
        );
        it.register(
            "cleave_sessions_moved",
            "Sessions that changed replica since the start, by cause",
            self.sessions_moved.clone(),
        );
        it.register(
            "cleave_sessions_moved_gain_seconds",
            "What sessions gained by leaving overloaded replicas, by prediction",
            self.sessions_moved_gain.clone(),
        );
        it.register(
            "cleave_quarantined",
            "Requests put under quarantine since the start",
            self.quarantined.clone(),
        );
    }

    pub(super) fn set(&self, pool: &str, it: &PoolGauges) {
        for cause in LeaveCause::ALL {
            let label = CauseLabel { pool: pool.to_owned(), cause: cause.as_str() };
            let count = it.sessions_moved.of(cause);
            self.sessions_moved.get_or_create(&label).inner().store(count, Relaxed);
        }
        let gain = self.sessions_moved_gain.get_or_create(&PoolLabel::of(pool));
        set_real(&gain, it.sessions_moved.over_ms / 1e3);
        set_count(&self.quarantined, pool, it.quarantined_total);
        for (kind, miss) in [("input", it.misses.input), ("output", it.misses.output)] {
            let set = |family: &Family<KindLabel, Counter>, count| {
                family.get_or_create(&KindLabel::of(pool, kind)).inner().store(count, Relaxed);
            };
            set(&self.tokens_predicted, miss.predicted_tokens);
            set(&self.tokens_missed, miss.missed_tokens);
        }
        for (percentile, share) in [("50", 0.5), ("90", 0.9)] {
            let label = PercentileLabel { pool: pool.to_owned(), percentile };
            let error_s = it.ttft_error.error_ms(share) / 1e3;
            self.first_token_error.get_or_create(&label).set(error_s);
        }
        self.set_costs(pool, &it.costs);
        for (workload, drift) in &it.workloads {
            for (kind, seconds) in kinds_s(drift) {
                let (pool, workload) = (pool.to_owned(), workload.clone());
                let label = WorkloadLabel { pool, workload, kind };
                set_real(&self.workload_work.get_or_create(&label), seconds);
            }
        }
        self.set_shadows(pool, it.shadows);
    }

    fn set_costs(&self, pool: &str, costs: &[Learned]) {
        for it in costs {
            for kind in SightingKind::ALL {
                let errors = it.errors_of(kind);
                let used = if it.is_used { errors.learned } else { errors.given };
                let kinds = [("given", errors.given), ("learned", errors.learned), ("used", used)];
                for (costs, error) in kinds.into_iter().filter(|_| 0 < errors.seen) {
                    let (pool, class, kind) = (pool.to_owned(), it.class.clone(), kind.as_str());
                    let label = CostLabel { pool, class, kind, costs };
                    self.cost_error.get_or_create(&label).set(Errors::share(error));
                }
            }
        }
    }

    fn set_shadows(&self, pool: &str, shadows: Shadows) {
        let chosen = ("chosen", shadows.chosen_ttft_ms);
        let others = shadows.others_ttft_ms.map(|(policy, ms)| (policy.as_str(), ms));
        for (kind, ms) in std::iter::once(chosen).chain(others) {
            set_real(&self.shadow_ttft.get_or_create(&KindLabel::of(pool, kind)), ms / 1e3);
        }
        set_count(&self.shadow_decisions, pool, shadows.decisions_total);
    }

    /// Forgets the workloads, before those that are still there are set anew.
    pub(super) fn clear(&self) {
        self.workload_work.clear();
        self.cost_error.clear();
    }
}

/// Tells a drift by its kinds, in seconds.
pub(super) fn kinds_s(drift: &Drift) -> [(&'static str, f64); 3] {
    let Drift { predicted_us, settled_us, missed_us } = *drift;
    let kinds = [("predicted", predicted_us), ("settled", settled_us), ("missed", missed_us)];
    kinds.map(|(kind, us)| (kind, ms(us) / 1e3))
}
