//! Kubernetes' horizontal autoscaler (HPA) with its defaults, on one of two signals: the mean utilisation of the ready
//! replicas, or, as KEDA hands it over, waiting requests in all over a number for each replica. It looks every 15
//! seconds, leaves a tenth alone, doubles or adds four at most, and goes down to the highest of the last five minutes.

use std::collections::VecDeque;
use std::time::Duration;

use cleave_core::domain::Moment;

use super::{FleetView, Limits, ScaleRule, real, whole_up};

const EVERY: u32 = 15;
const TOLERANCE: f64 = 0.1;
const DOWN_WINDOW: Duration = Duration::from_secs(300);
const UP_COUNT: usize = 4;

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Signal {
    /// The mean over ready replicas, and where it should be.
    Utilisation { target: f64 },
    /// Requests that wait, and how many of them a replica is there for.
    Waiting { per_replica: f64 },
}

#[derive(Debug)]
pub struct Hpa {
    signal: Signal,
    limits: Limits,
    looks: u32,
    /// The signal's sum over the looks of a round.
    sum: f64,
    current: Option<usize>,
    wanted: VecDeque<(Moment, usize)>,
}

impl Hpa {
    pub fn new(signal: Signal, limits: Limits) -> Self {
        Self { signal, limits, looks: 0, sum: 0.0, current: None, wanted: VecDeque::new() }
    }

    /// What the signal asks for.
    fn desired(&self, mean: f64, ready: usize, current: usize) -> usize {
        match self.signal {
            Signal::Utilisation { target } => {
                let by = mean / target;
                if (by - 1.0).abs() <= TOLERANCE { current } else { whole_up(real(ready) * by) }
            }
            Signal::Waiting { per_replica } => {
                let desired = mean / per_replica;
                let by = desired / real(current.max(1));
                if (by - 1.0).abs() <= TOLERANCE { current } else { whole_up(desired) }
            }
        }
    }
}

impl ScaleRule for Hpa {
    fn look(&mut self, now: Moment, view: &FleetView) -> Option<usize> {
        self.sum += match self.signal {
            Signal::Utilisation { .. } => view.utilisation,
            Signal::Waiting { .. } => real(view.waiting),
        };
        self.looks += 1;
        if !self.looks.is_multiple_of(EVERY) {
            return None;
        }
        let mean = std::mem::take(&mut self.sum) / f64::from(EVERY);
        // A replica cannot be busier than busy.
        let mean = match self.signal {
            Signal::Utilisation { .. } => mean.min(1.0),
            Signal::Waiting { .. } => mean,
        };
        let current = self.current.unwrap_or(view.sample.there());
        let desired = self.limits.clamp(self.desired(mean, view.sample.ready, current));
        while self.wanted.front().is_some_and(|it| DOWN_WINDOW < now.since(it.0)) {
            self.wanted.pop_front();
        }
        self.wanted.push_back((now, desired));
        let wanted = if current < desired {
            desired.min((2 * current).max(current + UP_COUNT))
        } else {
            let highest = self.wanted.iter().map(|it| it.1).max().unwrap_or(desired);
            highest.min(current)
        };
        self.current = Some(wanted);
        Some(wanted)
    }
}
