//! When is the next round of planning, and what came of the last one?

use std::time::Duration;

use crate::domain::Moment;
use crate::sharding::{Balance, Churn, PlanActions};

/// How often is planned.
const PLAN_INTERVAL: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Rounds {
    /// The replicas have changed since the last one.
    stale: bool,
    planned_at: Moment,
    pub(super) balance: Balance,
    pub(super) churn: Churn,
    pub(super) deeds: PlanActions,
}

impl Default for Rounds {
    fn default() -> Self {
        Self {
            stale: true,
            planned_at: Moment::ZERO,
            balance: Balance::default(),
            churn: Churn::default(),
            deeds: PlanActions::default(),
        }
    }
}

impl Rounds {
    /// Notes that the replicas, or what is ordered of them, have changed.
    pub(super) const fn touch(&mut self) {
        self.stale = true;
    }

    pub(super) const fn is_stale(&self) -> bool {
        self.stale
    }

    /// Tells whether one is due: time has passed, or a replica has come or gone.
    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.stale || PLAN_INTERVAL <= now.since(self.planned_at)
    }

    pub(super) const fn begin(&mut self, now: Moment) {
        self.stale = false;
        self.planned_at = now;
    }
}
