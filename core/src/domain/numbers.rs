//! Conversions between counts and floats, each with the reason why it is harmless. They are here so that
//! no other room needs to argue about them.

use std::time::Duration;

/// Rounds to a whole number; NaN and what is below zero become 0, what is too large the largest.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float saturates at the ends and NaN is 0, which is what is wanted"
)]
pub fn whole(value: f64) -> u64 {
    value.round() as u64
}

/// Does the same for numbers of half that size.
pub fn whole_u32(value: f64) -> u32 {
    u32::try_from(whole(value)).unwrap_or(u32::MAX)
}

/// Makes a float of a count; exact below 2^53, and amounts beyond that are only shown and divided.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "see above")]
pub fn float(count: u64) -> f64 {
    count as f64
}

/// Makes milliseconds of a span.
pub fn span_ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// Makes a span of milliseconds. NaN and what is below zero are no time, what is too long is three
/// hundred years, which can be added to and multiplied.
pub fn span_of_ms(ms: f64) -> Duration {
    let ms = if ms.is_nan() { 0.0 } else { ms.clamp(0.0, 1e13) };
    Duration::from_secs_f64(ms / 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_milliseconds_is_a_span() {
        for ms in [f64::NAN, -1.0, f64::NEG_INFINITY] {
            assert_eq!(span_of_ms(ms), Duration::ZERO);
        }
        let most = [f64::INFINITY, f64::MAX].map(span_of_ms);
        assert_eq!(most, [Duration::from_secs(10_000_000_000); 2]);
        assert_eq!(span_of_ms(2.5), Duration::from_micros(2_500));
    }

    #[test]
    fn what_does_not_fit_becomes_the_nearest_that_does() {
        assert_eq!((whole(2.5), whole(-3.0), whole(f64::NAN)), (3, 0, 0));
        assert_eq!((whole(f64::INFINITY), whole_u32(1e12)), (u64::MAX, u32::MAX));
        assert!((float(12) - 12.0).abs() < f64::EPSILON);
    }
}
