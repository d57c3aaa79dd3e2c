//! How far a replica may be filled: a bound on each of the figures of a [`Fill`].

use crate::domain::ReplicaId;

use super::lanes::Fill;

/// Up to where a request may fill a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::brain) struct Limit {
    pub(super) fill: f64,
    pub(super) wait_ms: f64,
    /// The level of [`level`](super::reading::level).
    pub(super) reading: f64,
}

impl Limit {
    pub(super) const NONE: Self =
        Self { fill: f64::INFINITY, wait_ms: f64::INFINITY, reading: f64::INFINITY };

    pub(super) fn admits(self, at: &Fill) -> bool {
        at.level < self.fill && at.wait_ms < self.wait_ms && at.reading < self.reading
    }

    /// Moves the limit by a factor.
    pub(super) fn times(self, factor: f64) -> Self {
        self.with(self, |it, _| it * factor)
    }

    pub(super) fn with(self, other: Self, join: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            fill: join(self.fill, other.fill),
            wait_ms: join(self.wait_ms, other.wait_ms),
            reading: join(self.reading, other.reading),
        }
    }
}

/// Up to where a request may fill replicas, and the one where its cache is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::brain) struct RoomLimits {
    pub(super) anywhere: Limit,
    pub(super) home: Option<ReplicaId>,
    pub(super) at_home: Limit,
}

impl RoomLimits {
    pub(super) fn admit(&self, at: &Fill) -> bool {
        let limit = if self.home == Some(at.id) { self.at_home } else { self.anywhere };
        limit.admits(at)
    }

    /// Moves all of them by a factor.
    pub(super) fn times(self, factor: f64) -> Self {
        let Self { anywhere, home, at_home } = self;
        Self { anywhere: anywhere.times(factor), home, at_home: at_home.times(factor) }
    }
}
