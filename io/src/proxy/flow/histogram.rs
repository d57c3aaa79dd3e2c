//! Times in buckets that grow by a fifth each, from a millisecond to ten minutes: a quantile read off them is
//! within a tenth of the truth, whatever the times are, and two can be added.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

/// Four for each doubling: 2 to the power of 19 and a quarter is 600,000.
pub(super) const BUCKETS: usize = 78;
const PER_DOUBLING: f64 = 4.0;

/// How many times fell into each bucket.
#[derive(Debug)]
pub(super) struct TimeHistogram([AtomicU32; BUCKETS]);

/// The same as plain figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BucketCounts(pub(super) [u32; BUCKETS]);

impl Default for TimeHistogram {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU32::new(0)))
    }
}

impl Default for BucketCounts {
    fn default() -> Self {
        Self([0; BUCKETS])
    }
}

/// Finds the bucket of a time.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to the buckets before; a cast saturates and takes no number for 0"
)]
fn bucket(time: Duration) -> usize {
    let ms = time.as_secs_f64() * 1e3;
    let at = (ms.max(1.0).log2() * PER_DOUBLING).floor();
    at.clamp(0.0, f64::from(BUCKETS as u32 - 1)) as usize
}

/// The time in the middle of a bucket, in milliseconds.
fn middle_ms(bucket: usize) -> f64 {
    let bucket = u32::try_from(bucket).unwrap_or(u32::MAX);
    ((f64::from(bucket) + 0.5) / PER_DOUBLING).exp2()
}

impl TimeHistogram {
    pub(super) fn note(&self, time: Duration) {
        self.0[bucket(time)].fetch_add(1, Relaxed);
    }

    /// Takes what was counted and begins anew.
    pub(super) fn take(&self) -> BucketCounts {
        BucketCounts(self.0.each_ref().map(|it| it.swap(0, Relaxed)))
    }
}

impl BucketCounts {
    pub(super) fn add(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(it, more)| *it = it.saturating_add(more));
    }

    /// Takes away what was added before.
    pub(super) fn remove(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(it, less)| *it = it.saturating_sub(less));
    }

    /// Reads quantiles in milliseconds; nothing where nothing was counted.
    pub(super) fn quantiles_ms<const N: usize>(&self, shares: [f64; N]) -> Option<[f64; N]> {
        let all: u64 = self.0.iter().map(|it| u64::from(*it)).sum();
        (0 < all).then(|| shares.map(|share| self.quantile_ms(all, share)))
    }

    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "counts of one hour")]
    fn quantile_ms(&self, all: u64, share: f64) -> f64 {
        let rank = share * all as f64;
        let mut below = 0_u64;
        for (at, count) in self.0.iter().enumerate() {
            below += u64::from(*count);
            if rank <= below as f64 && 0 < *count {
                return middle_ms(at);
            }
        }
        middle_ms(BUCKETS - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quantile_is_within_a_tenth_of_the_truth() {
        for ms in [1, 2, 7, 31, 250, 999, 4_000, 65_000, 599_000] {
            let histogram = TimeHistogram::default();
            histogram.note(Duration::from_millis(ms));
            let [median] = histogram.take().quantiles_ms([0.5]).unwrap();
            let truth = f64::from(u32::try_from(ms).unwrap());
            assert!((median / truth - 1.0).abs() < 0.1, "{median} for {truth}");
        }
    }

    #[test]
    fn any_time_has_a_bucket_and_no_times_have_no_quantile() {
        let histogram = TimeHistogram::default();
        histogram.note(Duration::ZERO);
        histogram.note(Duration::MAX);
        let [low, high] = histogram.take().quantiles_ms([0.0, 1.0]).unwrap();
        assert!(low < 2.0 && 500_000.0 < high, "{low} and {high}");
        assert_eq!(histogram.take().quantiles_ms([0.5]), None);
    }

    #[test]
    fn what_is_removed_is_as_if_it_had_never_been() {
        let [mut all, mut one] = [BucketCounts::default(), BucketCounts::default()];
        one.0[7] = 3;
        all.0[9] = 1;
        let before = all.clone();
        all.add(&one);
        all.remove(&one);
        assert_eq!(all, before);
    }
}
