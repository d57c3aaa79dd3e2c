//! The router's clock: the one place that turns the machine's time into moments.

use std::time::Instant;

use cleave_core::domain::Moment;

#[derive(Clone, Copy, Debug)]
pub(super) struct Clock(Instant);

impl Clock {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now(&self) -> Moment {
        self.at(Instant::now())
    }

    pub(super) fn at(&self, instant: Instant) -> Moment {
        let nanos = instant.saturating_duration_since(self.0).as_nanos();
        Moment::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}
