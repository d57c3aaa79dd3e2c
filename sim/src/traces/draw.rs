//! Chance, by seed. Each purpose has its own stream of draws, so that one more draw here does not
//! shift all draws there. Times are rounded to whole microseconds: maths libraries differ in the last
//! bit of a logarithm, and that bit must not reach a result that is to be the same on any machine.

use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_distr::{Beta, Distribution, Exp1, LogNormal};
use rand_pcg::Pcg64Mcg;

use super::prompt::{mix, named};

/// Starts the stream of draws for one purpose.
pub(super) fn rng(seed: u64, purpose: &str, number: u64) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(mix(mix(seed, named(purpose)), number))
}

/// Turns seconds into a time in whole microseconds; nonsense becomes nothing, the endless a century.
pub(super) fn seconds(value: f64) -> Duration {
    const CENTURY_MICROS: f64 = 100.0 * 365.25 * 86_400.0 * 1e6;
    Duration::from_micros(round(value * 1e6, CENTURY_MICROS))
}

/// Stretches or squeezes a time.
pub(super) fn scaled(time: Duration, factor: f64) -> Duration {
    seconds(time.as_secs_f64() * factor)
}

/// Rounds a length in tokens.
pub(super) fn tokens(value: f64) -> u32 {
    u32::try_from(round(value, f64::from(u32::MAX))).unwrap_or(u32::MAX)
}

#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "clamped to zero and a limit below 2^63 first; a NaN becomes zero"
)]
fn round(value: f64, limit: f64) -> u64 {
    value.round().clamp(0.0, limit) as u64
}

/// Turns a count into a real number; exact below 2^53.
#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "counts of requests and tokens stay far below 2^53"
)]
pub(super) fn real(count: u64) -> f64 {
    count as f64
}

/// Draws the time to the next of events that come at random, `per_second` on average.
pub(super) fn poisson_gap(rng: &mut Pcg64Mcg, per_second: f64) -> Duration {
    let gap: f64 = rng.sample(Exp1);
    seconds(gap / per_second)
}

/// Brings items into a random order.
pub(super) fn shuffle<T>(items: &mut [T], rng: &mut Pcg64Mcg) {
    for last in (1..items.len()).rev() {
        items.swap(last, rng.random_range(0..=last));
    }
}

/// A distribution of lengths in tokens, of counts, or of times in milliseconds.
#[derive(Clone, Debug, PartialEq)]
pub enum Spread {
    Fixed(u32),
    /// Between two ends with a given mean, for workloads published as minimum, mean and maximum. The
    /// shape (a beta distribution) is ours.
    Between {
        min: u32,
        mean: u32,
        max: u32,
    },
    /// Log-normal with a mean and a coefficient of variation, cut off at both ends.
    LogNormal {
        mean: f64,
        cv: f64,
        min: u32,
        max: u32,
    },
    /// Straight lines between points (share below, value), in order of share.
    Quantiles(Vec<(f64, u32)>),
}

impl Spread {
    /// Draws one value.
    pub(super) fn draw(&self, rng: &mut Pcg64Mcg) -> u32 {
        match self {
            Self::Fixed(value) => *value,
            Self::Between { min, mean, max } => between(rng, *min, *mean, *max),
            Self::LogNormal { mean, cv, min, max } => {
                // Parameters that make no distribution draw their mean, as a cv of zero would.
                let drawn = LogNormal::from_mean_cv(*mean, *cv).map_or(*mean, |it| it.sample(rng));
                tokens(drawn).clamp(*min, (*max).max(*min))
            }
            Self::Quantiles(points) => quantile(points, rng.random()),
        }
    }
}

/// Draws from a beta distribution stretched to `min..=max`; the two weights sum to three, which is
/// close to even for a mean in the middle and long-tailed for a mean near an end.
fn between(rng: &mut Pcg64Mcg, min: u32, mean: u32, max: u32) -> u32 {
    let width = f64::from(max.saturating_sub(min));
    let share = f64::from(mean.saturating_sub(min)) / width;
    let drawn = Beta::new(3.0 * share, 3.0 * (1.0 - share)).map_or(share, |it| it.sample(rng));
    if width > 0.0 { min + tokens(drawn * width) } else { min }
}

fn quantile(points: &[(f64, u32)], share: f64) -> u32 {
    let after = points.partition_point(|&(below, _)| below < share);
    let Some(&(right, high)) = points.get(after) else {
        return points.last().map_or(0, |&(_, value)| value);
    };
    let Some(&(left, low)) = after.checked_sub(1).and_then(|before| points.get(before)) else {
        return high;
    };
    let weight = (share - left) / (right - left);
    tokens(f64::from(low) + weight * (f64::from(high) - f64::from(low)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_of(spread: &Spread) -> f64 {
        let mut rng = rng(7, "test", 0);
        (0..20_000).map(|_| f64::from(spread.draw(&mut rng))).sum::<f64>() / 20_000.0
    }

    #[test]
    fn a_spread_between_two_ends_keeps_its_mean_and_its_ends() {
        let spread = Spread::Between { min: 100, mean: 1500, max: 10_000 };
        let mut rng = rng(7, "test", 0);
        assert!((0..5_000).all(|_| (100..=10_000).contains(&spread.draw(&mut rng))));
        assert!((mean_of(&spread) - 1500.0).abs() < 50.0, "{}", mean_of(&spread));
    }

    #[test]
    fn quantiles_are_joined_by_straight_lines() {
        let points = vec![(0.1, 10), (0.5, 50), (1.0, 150)];
        assert_eq!(quantile(&points, 0.05), 10);
        assert_eq!(quantile(&points, 0.3), 30);
        assert_eq!(quantile(&points, 0.75), 100);
        assert_eq!(mean_of(&Spread::Fixed(3)).to_bits(), 3f64.to_bits());
    }

    #[test]
    fn the_first_draws_of_a_seed_are_these_on_every_machine() {
        let mut rng = rng(7, "arrivals", 3);
        let gaps: Vec<_> = (0..3).map(|_| poisson_gap(&mut rng, 2.0).as_micros()).collect();
        assert_eq!(gaps, [246_930, 801_882, 517_599]);
    }

    #[test]
    fn nonsense_times_are_nothing() {
        assert_eq!(seconds(f64::NAN), Duration::ZERO);
        assert_eq!(seconds(-1.0), Duration::ZERO);
        assert!(Duration::from_secs(1 << 31) < seconds(f64::INFINITY));
    }
}
