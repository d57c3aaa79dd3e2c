//! What an operator says of the size of a pool. There is nothing else to tune: the promises of the classes are in
//! the capacity, and everything that takes time follows from how long a replica takes to start.

use std::time::Duration;

/// How many replicas a pool may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    pub min: usize,
    pub max: usize,
    /// How long a replica takes from being asked for until it is ready; learned where it is not said.
    pub start_up: Option<Duration>,
}

impl Rules {
    /// Brings a number of replicas between the bounds. A `max` below `min` is taken for `min`.
    pub fn clamp(&self, replicas: usize) -> usize {
        replicas.clamp(self.min, self.max.max(self.min))
    }
}
