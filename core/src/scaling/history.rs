//! The work that came, bucket by bucket, and how much of it is to be expected. A bucket is about as long as a
//! request may wait for its first token: within it work evens out by itself.

use std::collections::VecDeque;
use std::time::Duration;

use crate::domain::{Moment, float, whole};

/// How long a bucket is.
pub(super) const BUCKET: Duration = Duration::from_secs(10);
/// How many are kept: four hours.
const BUCKETS_MAX: usize = 1_440;

/// Model units a minute, by bucket, oldest first.
#[derive(Clone, Debug, Default)]
pub(super) struct History {
    rates: VecDeque<f64>,
    /// What came in the bucket that is not full yet, and how long that was.
    open_mu: f64,
    open: Duration,
    seen_at: Option<Moment>,
    /// Counts the buckets that were ever filled.
    filled: u64,
}

impl History {
    /// Takes in the work that came since it was told last. Where that is only a part of it, it is taken to be
    /// no less than what came before.
    pub(super) fn observe(&mut self, now: Moment, mu: f64, is_part: bool) {
        let Some(seen_at) = self.seen_at.replace(now) else {
            // There is no telling in what time this came.
            return;
        };
        let span = now.since(seen_at);
        if span.is_zero() {
            self.open_mu += mu;
            return;
        }
        let mut per_min = mu / minutes(span);
        if is_part {
            per_min = per_min.max(self.latest());
        }
        let mut left = span;
        // A gap longer than all that is kept would only write the same again.
        let kept = BUCKET * u32::try_from(BUCKETS_MAX).unwrap_or(u32::MAX);
        left = left.min(kept);
        while !left.is_zero() {
            let part = left.min(BUCKET.saturating_sub(self.open));
            self.open_mu += per_min * minutes(part);
            self.open += part;
            left -= part;
            if self.open == BUCKET {
                self.close();
            }
        }
    }

    fn close(&mut self) {
        if self.rates.len() == BUCKETS_MAX {
            self.rates.pop_front();
        }
        self.rates.push_back(self.open_mu / minutes(BUCKET));
        (self.open_mu, self.open) = (0.0, Duration::ZERO);
        self.filled += 1;
    }

    /// The rate of the newest full bucket.
    pub(super) fn latest(&self) -> f64 {
        self.rates.back().copied().unwrap_or(0.0)
    }

    /// The mean rate of the latest buckets, at most `count` of them.
    pub(super) fn mean(&self, count: usize) -> f64 {
        let count = count.clamp(1, self.rates.len().max(1));
        let sum: f64 = self.rates.iter().rev().take(count).sum();
        sum / f64::from(u32::try_from(count).unwrap_or(1))
    }

    pub(super) const fn rates(&self) -> &VecDeque<f64> {
        &self.rates
    }

    pub(super) const fn filled(&self) -> u64 {
        self.filled
    }
}

/// How many buckets a span takes, at least one.
pub(super) fn buckets(span: Duration) -> usize {
    let count = whole((span.as_secs_f64() / BUCKET.as_secs_f64()).ceil());
    usize::try_from(count).unwrap_or(usize::MAX).max(1)
}

fn minutes(span: Duration) -> f64 {
    float(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)) / 60e9
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn work_is_spread_over_the_time_in_which_it_came() {
        let mut history = History::default();
        history.observe(at(0), 99.0, false);
        history.observe(at(30), 15.0, false);
        assert_eq!(history.rates().len(), 3);
        assert!(history.rates().iter().all(|it| (it - 30.0).abs() < 1e-9), "{history:?}");
        history.observe(at(35), 0.0, false);
        assert_eq!(history.rates().len(), 3, "a bucket counts when it is full");
    }

    #[test]
    fn a_part_of_the_figures_never_shows_less_than_before() {
        let mut history = History::default();
        history.observe(at(0), 0.0, false);
        history.observe(at(10), 10.0, false);
        history.observe(at(20), 1.0, true);
        assert!((history.latest() - 60.0).abs() < 1e-9);
        history.observe(at(30), 20.0, true);
        assert!((history.latest() - 120.0).abs() < 1e-9);
    }

    #[test]
    fn history_is_bounded_whatever_the_gap() {
        let mut history = History::default();
        history.observe(at(0), 0.0, false);
        history.observe(Moment::MAX, 1e12, false);
        assert_eq!(history.rates().len(), BUCKETS_MAX);
    }
}
