//! The number of replicas that pools should have, as metrics and between routers: the one that leads tells the others, so
//! that whichever is asked gives the same number.

use super::Router;
use crate::proxy::pool::Pool;
use crate::proxy::scale::LedSize;
use crate::telemetry::ScaleGauges;

impl Router {
    /// What the router that leads wants of a pool; nothing where this one leads, or none, or it says nothing. At its
    /// `first` look a router goes by whatever any other told it, also where it leads.
    pub fn led_size(&self, pool: &Pool, is_first: bool) -> Option<LedSize> {
        let told = pool.scale.told(pool.now())?;
        let leader = self.sharing().and_then(|it| it.standing().leader);
        let own = self.sharing().map(|it| it.router());
        (is_first || (leader != own && leader == Some(told.router))).then_some(told)
    }

    /// Tells other routers how many replicas this one wants, which leads.
    pub fn tell_size(&self, pool: &Pool) {
        if let (Some(sharing), Some(size)) = (self.sharing(), pool.scale.sized()) {
            sharing.tell_found_in(pool.key(), size);
        }
    }

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
