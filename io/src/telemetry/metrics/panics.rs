//! What is told of panics. Each is a mistake in the router, so any count above zero is worth a look.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::labels::PoolLabel;

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Where {
    kind: &'static str,
}

#[derive(Debug, Default)]
pub(super) struct PanicFamilies {
    pools: Family<PoolLabel, Counter>,
    others: Family<Where, Counter>,
}

impl PanicFamilies {
    pub(super) fn register(&self, it: &mut Registry) {
        it.register(
            "cleave_pool_panics",
            "Panics in a pool's decisions, after each of which it was rebuilt",
            self.pools.clone(),
        );
        it.register("cleave_panics", "Panics elsewhere, by where", self.others.clone());
        // There from the start, so that an alert on their growth sees the first one.
        for kind in ["request", "stream", "task", "thread"] {
            self.others.get_or_create_owned(&Where { kind });
        }
    }

    /// Makes the handle of one pool.
    pub(super) fn pool(&self, pool: &str) -> Counter {
        self.pools.get_or_create_owned(&PoolLabel::of(pool))
    }

    pub(super) fn on_panic(&self, kind: &'static str) {
        self.others.get_or_create(&Where { kind }).inc();
    }
}
