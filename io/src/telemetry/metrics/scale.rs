//! How many replicas pools should have, for the autoscalers of others and for dashboards.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::labels::{KindLabel, PoolLabel, Real, RealCounter, set_real, whole};

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StateLabel {
    pool: String,
    state: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TermLabel {
    pool: String,
    term: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct ScaleFamilies {
    wanted: Family<PoolLabel, Gauge>,
    replicas: Family<StateLabel, Gauge>,
    needed: Family<TermLabel, Gauge>,
    work: Family<KindLabel, Real>,
    start_up: Family<PoolLabel, Real>,
    steps: Family<KindLabel, Counter>,
    hours: Family<PoolLabel, RealCounter>,
}

/// One pool's number of replicas at the time of a scrape.
#[derive(Clone, Copy, Debug)]
pub struct ScaleGauges {
    pub wanted: usize,
    /// State, and replicas in it.
    pub replicas: [(&'static str, usize); 3],
    /// Term, and replicas that it alone needs.
    pub needed: [(&'static str, usize); 4],
    /// What it is, and model units a minute.
    pub work: [(&'static str, f64); 3],
    pub start_up_s: f64,
    /// How it went, and how often.
    pub steps: [(&'static str, u64); 2],
    pub replica_hours: f64,
}

impl ScaleFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register(
            "cleave_scale_wanted_replicas",
            "Replicas that the pool should have",
            self.wanted.clone(),
        );
        it.register(
            "cleave_scale_replicas",
            "Replicas that the pool has, by state",
            self.replicas.clone(),
        );
        it.register(
            "cleave_scale_needed_replicas",
            "Replicas that each term alone would need",
            self.needed.clone(),
        );
        it.register(
            "cleave_scale_mu_per_min",
            "Model units a minute: demand, forecast, capacity of a replica",
            self.work.clone(),
        );
        it.register(
            "cleave_scale_start_up_seconds",
            "How long a replica takes to start",
            self.start_up.clone(),
        );
        it.register(
            "cleave_scale_steps",
            "Times that replicas were asked for or given up, done or failed",
            self.steps.clone(),
        );
        it.register(
            "cleave_scale_replica_hours",
            "Hours of replicas since the router started",
            self.hours.clone(),
        );
    }

    pub(super) fn set(&self, pool: &str, it: &ScaleGauges) {
        let label = PoolLabel::of(pool);
        self.wanted.get_or_create(&label).set(whole(it.wanted));
        for (state, count) in it.replicas {
            let label = StateLabel { pool: pool.to_owned(), state };
            self.replicas.get_or_create(&label).set(whole(count));
        }
        for (term, count) in it.needed {
            let label = TermLabel { pool: pool.to_owned(), term };
            self.needed.get_or_create(&label).set(whole(count));
        }
        for (kind, mu_per_min) in it.work {
            self.work.get_or_create(&KindLabel::of(pool, kind)).set(mu_per_min);
        }
        self.start_up.get_or_create(&label).set(it.start_up_s);
        for (kind, count) in it.steps {
            self.steps.get_or_create(&KindLabel::of(pool, kind)).inc_by(count);
        }
        set_real(&self.hours.get_or_create(&label), it.replica_hours);
    }

    /// Forgets them all, before those that are still scaled are set anew: an old number is worse than none.
    pub(super) fn clear(&self) {
        self.wanted.clear();
        self.replicas.clear();
        self.needed.clear();
        self.work.clear();
        self.start_up.clear();
        self.steps.clear();
        self.hours.clear();
    }
}
