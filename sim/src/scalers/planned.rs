//! Rules without a signal: as many as ever, and one that knows the load to come.

use std::time::Duration;

use cleave_core::domain::Moment;

use super::{FleetView, Limits, ScaleRule, real, whole_up};

/// The same number always.
#[derive(Clone, Copy, Debug)]
pub struct Fixed(pub usize);

impl ScaleRule for Fixed {
    fn look(&mut self, _: Moment, _: &FleetView) -> Option<usize> {
        Some(self.0)
    }
}

/// The work that was offered in a run, by second from its start, in model units.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LoadRecord {
    pub mu: Vec<f64>,
    /// What one replica was said to do in a minute at its knee.
    pub capacity_mu_per_min: f64,
}

/// How long work may wait within its promise: it evens out over this.
const EVEN: usize = 10;

/// It knows all that will be offered. A replica is asked for a start-up time before it is needed, and let go when
/// asking for it again would pay.
#[derive(Clone, Debug)]
pub struct Clairvoyant {
    /// Replicas needed, by second.
    needed: Vec<usize>,
    ahead: usize,
    limits: Limits,
}

impl Clairvoyant {
    /// `use_share`: the share of its capacity up to which a replica is filled.
    pub fn new(load: &LoadRecord, use_share: f64, start_up: Duration, limits: Limits) -> Self {
        let per_second = (load.capacity_mu_per_min * use_share / 60.0).max(1e-9);
        let mut needed = Vec::with_capacity(load.mu.len());
        let mut sum = 0.0;
        for (at, mu) in load.mu.iter().enumerate() {
            sum += mu;
            if EVEN <= at {
                sum -= load.mu[at - EVEN];
            }
            needed.push(whole_up(sum.max(0.0) / real(EVEN) / per_second));
        }
        // What came over some seconds is there from the first of them on.
        let by = EVEN.min(needed.len());
        needed.rotate_left(by);
        let ahead = usize::try_from(start_up.as_secs()).unwrap_or(usize::MAX) + 1;
        Self { needed, ahead, limits }
    }
}

impl ScaleRule for Clairvoyant {
    fn look(&mut self, now: Moment, _: &FleetView) -> Option<usize> {
        let at = usize::try_from(now.since(Moment::ZERO).as_secs()).unwrap_or(usize::MAX);
        let from = at.min(self.needed.len());
        let to = at.saturating_add(self.ahead).min(self.needed.len());
        Some(self.limits.clamp(self.needed[from..to].iter().copied().max().unwrap_or(0)))
    }
}
