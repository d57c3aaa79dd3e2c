//! How good the brain's predictions of first tokens are: the error of each, kept as two histograms
//! of buckets that grow by a fifth. A mean would be ruled by a few long waits, and quantiles of all
//! errors ever would need all of them.

/// Errors below this, in milliseconds or in thousandths, all count as this.
const LEAST: f64 = 0.1;
const BUCKETS: usize = 96;
/// Buckets to a factor of two.
const STEPS: f64 = 4.0;

/// Predictions of first tokens against what came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct TtftError {
    /// In milliseconds.
    absolute: Spread,
    /// In thousandths of the time it took.
    relative: Spread,
}

impl TtftError {
    pub(super) fn note(&mut self, predicted_ms: f64, seen_ms: f64) {
        let error = (predicted_ms - seen_ms).abs();
        if error.is_finite() && 0.0 < seen_ms {
            self.absolute.note(error);
            self.relative.note(error / seen_ms * 1e3);
        }
    }

    /// How many predictions were checked.
    pub fn count(&self) -> u64 {
        self.absolute.total
    }

    /// The error that this share of the predictions stays below, in milliseconds.
    pub fn error_ms(&self, share: f64) -> f64 {
        self.absolute.quantile(share)
    }

    /// The error that this share of the predictions stays below, as a share of the time it took.
    pub fn error_share(&self, share: f64) -> f64 {
        self.relative.quantile(share) / 1e3
    }

    /// Takes in what another brain found.
    pub fn merge(&mut self, other: &Self) {
        self.absolute.merge(&other.absolute);
        self.relative.merge(&other.relative);
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Spread {
    counts: [u64; BUCKETS],
    total: u64,
}

impl Default for Spread {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

impl Spread {
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "from float to int, `as` saturates, and the value is not negative"
    )]
    fn note(&mut self, value: f64) {
        let bucket = (STEPS * (value / LEAST).max(1.0).log2()) as usize;
        self.counts[bucket.min(BUCKETS - 1)] += 1;
        self.total += 1;
    }

    /// Finds the upper end of the bucket in which the quantile lies.
    #[expect(
        clippy::as_conversions,
        clippy::cast_precision_loss,
        reason = "counts are far below 2^53"
    )]
    fn quantile(&self, share: f64) -> f64 {
        let wanted = share * self.total as f64;
        let mut below = 0;
        for (count, bucket) in self.counts.iter().zip(1_u32..) {
            below += count;
            if 0 < below && wanted <= below as f64 {
                return LEAST * (f64::from(bucket) / STEPS).exp2();
            }
        }
        0.0
    }

    fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(other.counts).for_each(|(own, more)| *own += more);
        self.total += other.total;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_right_to_a_bucket() {
        let mut errors = TtftError::default();
        (1..=100).for_each(|it| errors.note(1000.0 + f64::from(it), 1000.0));
        let close = |found: f64, wanted: f64| (wanted..wanted * 1.2).contains(&found);
        assert!(close(errors.error_ms(0.5), 50.0), "{}", errors.error_ms(0.5));
        assert!(close(errors.error_ms(0.9), 90.0), "{}", errors.error_ms(0.9));
        assert!(close(errors.error_share(0.9), 0.09), "{}", errors.error_share(0.9));
        let mut both = TtftError::default();
        both.merge(&errors);
        both.merge(&errors);
        assert_eq!((both.count(), both.error_ms(0.5)), (200, errors.error_ms(0.5)));
    }

    #[test]
    fn whatever_is_noted_the_figures_are_finite() {
        let mut errors = TtftError::default();
        assert!(errors.error_ms(0.5).abs() < 1e-9);
        for (predicted, seen) in [(f64::NAN, 1.0), (1.0, 0.0), (1e300, 1e-300), (0.0, 1.0)] {
            errors.note(predicted, seen);
        }
        assert!(errors.error_ms(0.99).is_finite() && errors.error_share(0.99).is_finite());
    }
}
