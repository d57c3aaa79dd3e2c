//! The number of replicas that pools should have, as metrics.

use super::Router;
use crate::proxy::pool::Pool;
use crate::telemetry::ScaleGauges;

impl Router {
    /// Sets what is told of the number of a pool's replicas, if there is a number.
    pub(super) fn set_scale_metrics(&self, pool: &Pool) {
        let state = pool.scale.state();
        let Some(advice) = state.advice else { return };
        let terms = &advice.terms;
        self.metrics.set_scale(
            &pool.name,
            &ScaleGauges {
                wanted: advice.wanted,
                replicas: [
                    ("ready", terms.ready),
                    ("starting", terms.starting),
                    ("unhealthy", terms.unhealthy),
                ],
                needed: [
                    ("forecast", terms.by_demand),
                    ("backlog", terms.by_backlog),
                    ("memory", terms.by_memory),
                    ("floor", terms.floor),
                ],
                work: [
                    ("demand", terms.demand_mu_per_min),
                    ("forecast", terms.forecast_mu_per_min),
                    ("capacity", terms.capacity_mu_per_min.unwrap_or(0.0)),
                ],
                start_up_s: terms.start_up.as_secs_f64(),
                steps: [("done", state.steps_done), ("failed", state.steps_failed)],
                replica_hours: state.replica_hours,
            },
        );
    }
}
