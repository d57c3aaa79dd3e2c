//! An amount of work, in millionths of a model unit. Whole numbers, so that what is reserved and given
//! back a million times still adds up to nothing; a float would drift.
//!
//! There are two kinds. A [`Work`] ends at both ends of its range: what is added to the most stays the
//! most, so nothing may be taken from a sum of them. What is added up and taken back is a [`WorkSum`],
//! which is so wide that it never ends.

use std::iter::Sum;
use std::ops::{Add, AddAssign};

use crate::domain::{float, whole};

const PARTS: f64 = 1e6;
/// More than a fleet makes in a year. What claims to be more is taken for this.
const MU_MAX: f64 = 1e12;

/// Work that was, is or will be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Work(u64);

impl Work {
    pub const ZERO: Self = Self(0);

    /// Counts model units. Nothing sensible is nothing: below zero and NaN are no work.
    pub fn from_mu(mu: f64) -> Self {
        Self(whole(mu.clamp(0.0, MU_MAX) * PARTS))
    }

    pub fn as_mu(self) -> f64 {
        float(self.0) / PARTS
    }

    pub const fn from_parts(parts: u64) -> Self {
        Self(parts)
    }

    /// Says it in millionths of a model unit.
    pub const fn parts(self) -> u64 {
        self.0
    }

    #[must_use]
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Work {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Work {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Work {
    fn sum<I: Iterator<Item = Self>>(works: I) -> Self {
        works.fold(Self::ZERO, Add::add)
    }
}

/// What several works come to together. Exact for up to 2^64 of them, whatever each claims to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkSum(u128);

impl WorkSum {
    pub fn add(&mut self, work: Work) {
        self.0 = self.0.saturating_add(work.0.into());
    }

    /// Takes back what was added before.
    pub fn take(&mut self, work: Work) {
        debug_assert!(u128::from(work.0) <= self.0, "{work:?} taken from {self:?}");
        self.0 = self.0.saturating_sub(work.0.into());
    }

    /// Says it as one work: the most there is where it is more.
    pub fn total(self) -> Work {
        Work(u64::try_from(self.0).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_added_and_taken_back_leaves_nothing(
            parts in prop::collection::vec(prop_oneof![any::<u64>(), Just(u64::MAX), Just(0)], 0..50),
        ) {
            let mut sum = WorkSum::default();
            for it in &parts {
                sum.add(Work::from_parts(*it));
            }
            let most = parts.iter().max().copied().unwrap_or(0);
            prop_assert!(Work::from_parts(most) <= sum.total());
            for it in parts.iter().rev() {
                sum.take(Work::from_parts(*it));
            }
            prop_assert_eq!(sum, WorkSum::default());
        }
    }

    #[test]
    fn what_makes_no_sense_is_no_work_and_what_is_too_much_is_the_most() {
        for mu in [f64::NAN, -1.0, f64::NEG_INFINITY, -0.0] {
            assert_eq!(Work::from_mu(mu), Work::ZERO, "{mu}");
        }
        assert_eq!(Work::from_mu(f64::INFINITY), Work::from_mu(1e12));
        assert!((Work::from_mu(2.5).as_mu() - 2.5).abs() < 1e-9);
    }
}
