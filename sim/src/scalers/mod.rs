//! Rules that say how many replicas there should be: ours, those that others run, and two that no operator can have
//! but that show what is possible. Each is a small state machine that looks at the fleet once a second; the world does
//! what it says.

mod hpa;
mod kpa;
mod ours;
mod planned;

use std::fmt;
use std::time::Duration;

use cleave_core::domain::Moment;
use cleave_core::scaling::Sample;

pub use hpa::{Hpa, Signal};
pub use kpa::Kpa;
pub use ours::Ours;
pub use planned::{Clairvoyant, Fixed, LoadRecord};

/// What a rule can see of the fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FleetView {
    /// What the routers' books say, of the second that has passed.
    pub sample: Sample,
    /// Requests at replicas, waiting there and running.
    pub at_replicas: usize,
    /// Requests that wait, at routers and in engines.
    pub waiting: usize,
    /// Work that comes over what the ready replicas can do within their promises.
    pub utilisation: f64,
    /// How many requests a replica has when it does all it can within its promises, by how long requests stay.
    pub knee: f64,
}

/// Says how many replicas there should be.
pub trait ScaleRule: fmt::Debug + Send {
    /// Looks at the fleet, once a second, and says a number where it has one to say.
    fn look(&mut self, now: Moment, view: &FleetView) -> Option<usize>;

    /// A replica is ready; `took` is the time since it was asked for.
    fn on_ready(&mut self, took: Duration) {
        _ = took;
    }
}

/// The bounds that all rules keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub min: usize,
    pub max: usize,
}

impl Limits {
    fn clamp(self, replicas: usize) -> usize {
        replicas.clamp(self.min, self.max.max(self.min))
    }
}

/// Rounds up to whole replicas; what makes no sense is none.
fn whole_up(replicas: f64) -> usize {
    let hair = 1e-9;
    usize::try_from(cleave_core::domain::whole((replicas - hair).ceil())).unwrap_or(usize::MAX)
}

fn real(count: usize) -> f64 {
    cleave_core::domain::float(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests;
