//! What a class promises of an answer.

use std::time::Duration;

use super::span_ms;

/// The TTFT that is promised where a class names none.
const FIRST_TOKEN: Duration = Duration::from_secs(5);
/// The time between tokens that is promised where no class names one.
const TOKEN_GAP: Duration = Duration::from_millis(80);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promise {
    /// When the first token should be there.
    pub first_token: Option<Duration>,
    /// How long the time between two tokens should be at most.
    pub token_gap: Option<Duration>,
}

/// A promise of less counts as this: prices divide by what is promised.
const MS_MIN: f64 = 1.0;

impl Promise {
    pub fn first_token_ms(&self) -> f64 {
        span_ms(self.first_token.unwrap_or(FIRST_TOKEN)).max(MS_MIN)
    }

    pub fn token_gap_ms(&self) -> f64 {
        span_ms(self.token_gap.unwrap_or(TOKEN_GAP)).max(MS_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_promise_of_nothing_can_be_divided_by() {
        let promise =
            Promise { first_token: Some(Duration::ZERO), token_gap: Some(Duration::ZERO) };
        assert!((promise.first_token_ms() / promise.token_gap_ms() - 1.0).abs() < 1e-9);
    }
}
