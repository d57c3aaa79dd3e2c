//! What arriving requests would cost if nothing of them were cached. While the fleet could afford that, a
//! session that evicts others costs work that there is time for. Beyond it every session that is let in
//! evicts others whose prompts the fleet has no time to compute again, and goodput collapses.

use crate::domain::Moment;

use super::work::Work;

/// How long arrivals are remembered: a few turns of a session.
const MEMORY_S: f64 = 120.0;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ColdDemand {
    /// In model units, fading.
    work: f64,
    at: Moment,
}

impl ColdDemand {
    pub(super) fn on_arrival(&mut self, now: Moment, cold: Work) {
        self.on_time(now);
        self.work += cold.as_mu();
    }

    /// Lets what came before fade.
    pub(super) fn on_time(&mut self, now: Moment) {
        self.work *= (-now.since(self.at).as_secs_f64() / MEMORY_S).exp();
        self.at = now;
    }

    /// Estimates the model units of a minute, as of the last arrival or look.
    pub(super) fn mu_per_min(&self) -> f64 {
        self.work / MEMORY_S * 60.0
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_settles_at_what_comes_and_fades_when_nothing_comes() {
        let mut demand = ColdDemand::default();
        let at = |second| Moment::ZERO + Duration::from_secs(second);
        (0..1_200).for_each(|second| demand.on_arrival(at(second), Work::from_mu(2.0)));
        assert!((demand.mu_per_min() - 120.0).abs() < 2.0, "{}", demand.mu_per_min());
        demand.on_time(at(2_400));
        assert!(demand.mu_per_min() < 0.01);
    }
}
