//! The rule that a router runs.

use std::time::Duration;

use cleave_core::domain::Moment;
use cleave_core::scaling::{Rules, Scaler};

use super::{FleetView, Limits, ScaleRule};

/// How often it decides, in looks.
const EVERY: u32 = 5;

#[derive(Debug)]
pub struct Ours {
    scaler: Scaler,
    looks: u32,
}

impl Ours {
    /// It learns the start-up time as a router does.
    pub fn new(limits: Limits) -> Self {
        let rules = Rules { min: limits.min, max: limits.max, start_up: None };
        Self { scaler: Scaler::new(rules), looks: 0 }
    }

    /// Begins with a start-up time that an earlier run has learned.
    #[must_use]
    pub fn knowing(mut self, start_up: Duration) -> Self {
        self.scaler.on_ready(start_up);
        self
    }
}

impl ScaleRule for Ours {
    fn look(&mut self, now: Moment, view: &FleetView) -> Option<usize> {
        self.scaler.observe(now, &view.sample);
        self.looks += 1;
        self.looks.is_multiple_of(EVERY).then(|| self.scaler.decide(now).wanted)
    }

    fn on_ready(&mut self, took: Duration) {
        self.scaler.on_ready(took);
    }
}
