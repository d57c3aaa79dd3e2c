//! Breaker.
use std::time::Duration;

/// When a replica is taken out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures in a row, of requests or of probes, after which the replica is out.
    pub failures_max: u32,
    /// How long it is out before one request may try it again; doubles at each further failure.
    pub open: Duration,
    /// Where the doubling ends.
    pub open_max: Duration,
}

impl Default for BreakerSettings {
    fn default() -> Self {
        Self { failures_max: 3, open: Duration::from_secs(2), open_max: Duration::from_secs(60) }
    }
}
