//! Knative's autoscaler (KPA): mean concurrency over a minute, over a target for each replica; when the last six seconds
//! alone would need twice the ready replicas, it panics: it follows those, and takes nothing away for a minute.

use std::collections::VecDeque;
use std::time::Duration;

use cleave_core::domain::Moment;

use super::{FleetView, Limits, ScaleRule, real, whole_up};

const EVERY: u32 = 2;
const STABLE_LOOKS: usize = 60;
const PANIC_LOOKS: usize = 6;
const PANIC_FACTOR: f64 = 2.0;
const CALM_AFTER: Duration = Duration::from_secs(60);
/// It halves at most, and this is how full a replica should be.
const DOWN_FACTOR: usize = 2;
const TARGET_SHARE: f64 = 0.7;

#[derive(Debug)]
pub struct Kpa {
    limits: Limits,
    looks: u32,
    concurrency: VecDeque<f64>,
    /// When it last panicked, and the most that was wanted since.
    panic: Option<(Moment, usize)>,
}

impl Kpa {
    pub fn new(limits: Limits) -> Self {
        Self { limits, looks: 0, concurrency: VecDeque::new(), panic: None }
    }

    fn mean(&self, looks: usize) -> f64 {
        let count = looks.min(self.concurrency.len()).max(1);
        self.concurrency.iter().rev().take(count).sum::<f64>() / real(count)
    }
}

impl ScaleRule for Kpa {
    fn look(&mut self, now: Moment, view: &FleetView) -> Option<usize> {
        if self.concurrency.len() == STABLE_LOOKS {
            self.concurrency.pop_front();
        }
        self.concurrency.push_back(real(view.at_replicas + view.waiting));
        self.looks += 1;
        if !self.looks.is_multiple_of(EVERY) {
            return None;
        }
        let target = (view.knee * TARGET_SHARE).max(1.0);
        let ready = view.sample.ready.max(1);
        let floor = ready / DOWN_FACTOR;
        let stable = whole_up(self.mean(STABLE_LOOKS) / target).max(floor);
        let panicked = whole_up(self.mean(PANIC_LOOKS) / target).max(floor);
        if PANIC_FACTOR * real(ready) <= real(panicked) {
            let most = self.panic.map_or(0, |it| it.1);
            self.panic = Some((now, most.max(panicked)));
        }
        self.panic = self.panic.filter(|it| now.since(it.0) < CALM_AFTER);
        let wanted = match &mut self.panic {
            Some((_, most)) => {
                *most = (*most).max(panicked);
                *most
            }
            None => stable,
        };
        Some(self.limits.clamp(wanted))
    }
}
