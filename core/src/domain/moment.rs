//! A point in time as the driver counts it. std's `Instant` cannot be written down and read back,
//! so a recorded run could not be replayed from it.

use std::ops::Add;
use std::time::Duration;

/// Nanoseconds from the driver's own zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Moment(u64);

impl Moment {
    pub const ZERO: Self = Self(0);
    /// The end of time, which never comes.
    pub const MAX: Self = Self(u64::MAX);

    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Measures the time since `earlier`; zero when `earlier` is in fact later, because two threads
    /// that read one clock may hand over their readings in either order.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    fn add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_since_a_later_moment_is_zero() {
        let later = Moment::ZERO + Duration::from_secs(1);
        assert_eq!(Moment::ZERO.since(later), Duration::ZERO);
        assert_eq!(later.since(Moment::ZERO), Duration::from_secs(1));
    }

    #[test]
    fn adding_forever_stays_at_the_end_of_time() {
        let end = Moment::ZERO + Duration::MAX;
        assert_eq!(end + Duration::from_secs(1), end);
    }
}
