//! What may be used per minute, saved up to a limit. Two buckets: the rate fills the first, which is
//! small, and what overflows from it fills the second, which is the burst. Taking from the first is use
//! of what was promised; taking from the second is use of what was saved. Amounts are whole and the
//! remainder of each filling is kept, so nothing is lost to rounding however often it is asked.
//!
//! A request larger than a bucket is let in when the bucket is full, and leaves it in debt: otherwise it
//! would never be let in, and the rate holds all the same.

use std::time::Duration;

use crate::domain::Moment;

const MINUTE_NANOS: u128 = 60_000_000_000;
/// The first bucket holds this part of a minute's rate.
const BASE_PART: u64 = 20;
/// The longest wait that a refused client is told.
const READY_MAX: Duration = Duration::from_secs(3_600);

/// What kind of use a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Use {
    /// Within the contract's rate, or under no contract.
    Guaranteed,
    /// From what was saved up.
    Burst,
    /// Beyond the contract, on capacity that was otherwise idle.
    BestEffort,
}

impl Use {
    pub const ALL: [Self; 3] = [Self::Guaranteed, Self::Burst, Self::BestEffort];

    /// Says where it stands in [`Use::ALL`].
    pub const fn index(self) -> usize {
        match self {
            Self::Guaranteed => 0,
            Self::Burst => 1,
            Self::BestEffort => 2,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Guaranteed => "guaranteed",
            Self::Burst => "burst",
            Self::BestEffort => "best_effort",
        }
    }
}

/// An amount per minute with its buckets; the unit is the caller's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    per_min: u64,
    base_max: u64,
    burst_max: u64,
    base: i128,
    burst: i128,
    filled_at: Moment,
    remainder: u128,
}

impl Allowance {
    /// Starts with full buckets.
    pub fn new(now: Moment, per_min: u64, burst: u64) -> Self {
        let base_max = (per_min / BASE_PART).max(1);
        Self {
            per_min,
            base_max,
            burst_max: burst,
            base: base_max.into(),
            burst: burst.into(),
            filled_at: now,
            remainder: 0,
        }
    }

    /// Takes on another rate. What was saved or owed stays, as far as it fits.
    pub fn reset(&mut self, now: Moment, per_min: u64, burst: u64) {
        self.fill(now);
        let fresh = Self::new(now, per_min, burst);
        let (base, burst) = (self.base.min(fresh.base), self.burst.min(fresh.burst));
        *self = Self { base, burst, ..fresh };
    }

    /// Says what kind of use `amount` would be now; beyond both buckets it is best effort.
    pub fn look(&mut self, now: Moment, amount: u64) -> Use {
        self.fill(now);
        if i128::from(amount.min(self.base_max)) <= self.base {
            Use::Guaranteed
        } else if 0 < self.burst_max && i128::from(amount.min(self.burst_max)) <= self.burst {
            Use::Burst
        } else {
            Use::BestEffort
        }
    }

    /// Takes from the bucket of that use. What the first lacks comes from the second as far as
    /// there is any, and then the first is left in debt. Best effort takes from no bucket.
    pub fn take(&mut self, usage: Use, amount: u64) {
        match usage {
            Use::Guaranteed => {
                self.base -= i128::from(amount);
                let saved = (-self.base).clamp(0, self.burst.max(0));
                self.base += saved;
                self.burst -= saved;
            }
            Use::Burst => self.burst -= i128::from(amount),
            Use::BestEffort => {}
        }
    }

    /// Counts what both buckets hold when they are full.
    pub const fn at_once(&self) -> u64 {
        self.base_max.saturating_add(self.burst_max)
    }

    /// Says how much is missing until both buckets are full.
    pub fn missing(&self) -> u64 {
        let full = i128::from(self.base_max) + i128::from(self.burst_max);
        u64::try_from((full - self.base - self.burst).max(0)).unwrap_or(u64::MAX)
    }

    /// Gives back what was taken and not used.
    pub fn give(&mut self, usage: Use, amount: u64) {
        match usage {
            Use::Guaranteed => {
                self.base += i128::from(amount);
                self.overflow();
            }
            Use::Burst => self.burst = (self.burst + i128::from(amount)).min(self.burst_max.into()),
            Use::BestEffort => {}
        }
    }

    /// Predicts when `amount` will be within the rate.
    pub fn ready_in(&self, amount: u64) -> Duration {
        let missing = i128::from(amount.min(self.base_max)) - self.base;
        let Ok(missing) = u128::try_from(missing) else { return Duration::ZERO };
        if self.per_min == 0 {
            return READY_MAX;
        }
        let nanos = (missing * MINUTE_NANOS).div_ceil(self.per_min.into());
        u64::try_from(nanos).map_or(READY_MAX, Duration::from_nanos).min(READY_MAX)
    }

    pub const fn per_min(&self) -> u64 {
        self.per_min
    }

    pub const fn burst_max(&self) -> u64 {
        self.burst_max
    }

    /// Counts what could be taken at once; nothing while in debt.
    pub fn remaining(&self) -> u64 {
        let both = self.base.max(0) + self.burst.max(0);
        u64::try_from(both).unwrap_or(u64::MAX)
    }

    fn fill(&mut self, now: Moment) {
        let nanos = now.since(self.filled_at).as_nanos();
        self.filled_at = self.filled_at.max(now);
        let gained = nanos * u128::from(self.per_min) + self.remainder;
        self.remainder = gained % MINUTE_NANOS;
        self.base += i128::try_from(gained / MINUTE_NANOS).unwrap_or(i128::from(u64::MAX));
        self.overflow();
    }

    fn overflow(&mut self) {
        let over = self.base - i128::from(self.base_max);
        if 0 < over {
            self.base -= over;
            self.burst = (self.burst + over).min(self.burst_max.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    /// Asks for `amount` every `step_ms` for a minute; returns what was used of each kind.
    fn minute(allowance: &mut Allowance, from_ms: u64, step_ms: u64, amount: u64) -> [u64; 3] {
        let mut used = [0; 3];
        for ms in (from_ms..from_ms + 60_000).step_by(usize::try_from(step_ms).unwrap()) {
            let usage = allowance.look(at(ms), amount);
            allowance.take(usage, amount);
            used[usage.index()] += amount;
        }
        used
    }

    #[test]
    fn the_rate_holds_and_the_burst_is_spent_once() {
        let mut allowance = Allowance::new(Moment::ZERO, 6_000, 3_000);
        let [guaranteed, burst, _] = minute(&mut allowance, 0, 10, 7);
        assert!((6_000..=6_307).contains(&guaranteed), "{guaranteed}");
        assert!((2_994..=3_007).contains(&burst), "{burst}");
        let [guaranteed, burst, beyond] = minute(&mut allowance, 60_000, 10, 7);
        assert!((5_993..=6_007).contains(&guaranteed), "{guaranteed}");
        assert_eq!(burst, 0);
        assert!(30_000 < beyond);
    }

    #[test]
    fn what_runs_past_the_rate_is_taken_from_what_was_saved_before_anything_is_owed() {
        let mut allowance = Allowance::new(Moment::ZERO, 60, 100);
        assert_eq!(allowance.look(Moment::ZERO, 3), Use::Guaranteed);
        allowance.take(Use::Guaranteed, 80);
        assert_eq!(allowance.remaining(), 23, "3 of the rate and 77 of what was saved");
        allowance.take(Use::Guaranteed, 50);
        assert_eq!((allowance.remaining(), allowance.base), (0, -27));
        allowance.give(Use::Guaranteed, 130);
        assert_eq!(allowance.remaining(), 103, "all of it comes back");
    }

    #[test]
    fn what_was_saved_comes_back_while_nothing_is_used() {
        let mut allowance = Allowance::new(Moment::ZERO, 6_000, 3_000);
        minute(&mut allowance, 0, 10, 7);
        assert_eq!(allowance.look(at(90_000 + 3_000), 3_000), Use::Guaranteed);
        allowance.take(Use::Guaranteed, 300);
        assert_eq!(allowance.look(at(93_000), 3_000), Use::Burst, "{allowance:?}");
    }

    #[test]
    fn asking_often_fills_as_much_as_asking_once() {
        let mut often = Allowance::new(Moment::ZERO, 7, 1_000);
        let mut once = often;
        often.take(Use::Burst, 1_000);
        once.take(Use::Burst, 1_000);
        (0..1_000_000).step_by(37).for_each(|ms| _ = often.look(at(ms), 1));
        often.look(at(1_000_000), 1);
        once.look(at(1_000_000), 1);
        assert_eq!(often, once);
    }

    #[test]
    fn a_request_larger_than_the_bucket_goes_when_it_is_full_and_is_paid_off() {
        let mut allowance = Allowance::new(Moment::ZERO, 600, 0);
        assert_eq!(allowance.look(at(0), 100), Use::Guaranteed);
        allowance.take(Use::Guaranteed, 100);
        assert_eq!(allowance.look(at(0), 1), Use::BestEffort);
        assert_eq!(allowance.ready_in(100), Duration::from_secs(10));
        assert_eq!(allowance.look(at(9_999), 100), Use::BestEffort);
        assert_eq!(allowance.look(at(10_000), 100), Use::Guaranteed);
    }

    #[test]
    fn time_that_runs_backwards_fills_nothing_twice() {
        let mut allowance = Allowance::new(at(1_000), 60_000, 0);
        allowance.take(Use::Guaranteed, 3_000);
        allowance.look(at(2_000), 1);
        let before = allowance;
        allowance.look(at(500), 1);
        allowance.look(at(2_000), 1);
        assert_eq!(allowance, before);
    }

    #[test]
    fn hostile_rates_do_no_harm() {
        for (per_min, burst) in [(0, 0), (u64::MAX, u64::MAX), (1, u64::MAX), (u64::MAX, 0)] {
            let mut allowance = Allowance::new(Moment::ZERO, per_min, burst);
            for amount in [0, 1, u64::MAX] {
                let usage = allowance.look(Moment::from_nanos(u64::MAX), amount);
                allowance.take(usage, amount);
                allowance.give(usage, amount);
                let _ = (allowance.ready_in(amount), allowance.remaining());
            }
        }
    }
}
