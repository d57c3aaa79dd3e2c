//! Distributions in bounded memory: 128 buckets per doubling, so a quantile is off by at most 0.4 per
//! cent, and a million requests take as much room as a thousand. Counts are whole numbers, so the
//! same run gives the same figures on any machine. Keeping every sample would give the third digit
//! and cost the bound on memory.

use std::time::Duration;

use super::real;

const SUB_BITS: u32 = 7;
const SUBS: u64 = 1 << SUB_BITS;

/// How long something took, over many.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Histogram {
    pub fn record(&mut self, time: Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let at = bucket(ns);
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
        self.total += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    pub fn count(&self) -> u64 {
        self.total
    }

    /// The mean in seconds, exact; zero of nothing.
    pub fn mean_s(&self) -> f64 {
        if self.total == 0 {
            return 0.0;
        }
        let mean_ns = self.sum_ns / u128::from(self.total);
        real(u64::try_from(mean_ns).unwrap_or(u64::MAX)) / 1e9
    }

    /// The longest in seconds, exact.
    pub fn max_s(&self) -> f64 {
        real(self.max_ns) / 1e9
    }

    /// The time in seconds that a share of all stays within; zero of nothing.
    pub fn quantile_s(&self, per_mille: u64) -> f64 {
        // The sample of that rank, counted from one.
        let rank = (self.total * per_mille).div_ceil(1000).max(1);
        let mut below = 0;
        for (at, count) in self.counts.iter().enumerate() {
            below += count;
            if rank <= below {
                return real(middle_ns(at).min(self.max_ns)) / 1e9;
            }
        }
        0.0
    }

    /// Yields (seconds, share at or below), rising, one point for each bucket that has anything.
    pub fn cdf(&self) -> impl Iterator<Item = (f64, f64)> + '_ {
        let total = real(self.total);
        let mut below = 0;
        self.counts.iter().enumerate().filter(|(_, count)| **count != 0).map(move |(at, count)| {
            below += count;
            (real(middle_ns(at).min(self.max_ns)) / 1e9, real(below) / total)
        })
    }
}

/// Finds the bucket of a time: its highest eight bits and their place.
fn bucket(ns: u64) -> usize {
    let octave = ns.max(SUBS).ilog2() - SUB_BITS;
    let within = ns >> octave;
    usize::try_from(u64::from(octave) * SUBS + within).unwrap_or(usize::MAX)
}

/// Names the middle of a bucket.
fn middle_ns(bucket: usize) -> u64 {
    let bucket = u64::try_from(bucket).unwrap_or(u64::MAX);
    let octave = (bucket / SUBS).saturating_sub(1);
    let within = bucket - octave * SUBS;
    (within << octave) + ((1 << octave) >> 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_has_no_quantiles() {
        let empty = Histogram::default();
        assert!(empty.quantile_s(500) + empty.mean_s() + empty.max_s() <= 0.0);
    }

    proptest! {
        #[test]
        fn quantiles_are_those_of_the_samples_within_half_a_per_cent(
            samples in prop::collection::vec(0u64..1 << 45, 1..200), per_mille in 1u64..=1000,
        ) {
            let mut histogram = Histogram::default();
            for ns in &samples {
                histogram.record(Duration::from_nanos(*ns));
            }
            let mut sorted = samples;
            sorted.sort_unstable();
            let rank = (u64::try_from(sorted.len()).unwrap() * per_mille).div_ceil(1000);
            let exact = real(sorted[usize::try_from(rank).unwrap() - 1]) / 1e9;
            let found = histogram.quantile_s(per_mille);
            prop_assert!((found - exact).abs() <= exact * 0.005, "{} for {}", found, exact);
            prop_assert!((histogram.max_s() * 1e9 - real(*sorted.last().unwrap())).abs() < 1.0);
        }
    }
}
