//! How long does a replica take to start? Learned from those that became ready: longer than most of them took, so
//! that a forecast for that moment is not too late, and not as long as the one that was stuck.

use std::collections::VecDeque;
use std::time::Duration;

/// What is assumed until one was seen.
const UNKNOWN: Duration = Duration::from_secs(120);
/// How many of the latest are remembered.
const SEEN_MAX: usize = 16;
/// Times beyond these make no sense: cool-downs and expiries follow from them.
const LEAST: Duration = Duration::from_secs(1);
const MOST: Duration = Duration::from_secs(3_600);

#[derive(Clone, Debug)]
pub(super) struct StartUp {
    fixed: Option<Duration>,
    seen: VecDeque<Duration>,
}

impl StartUp {
    pub(super) const fn new(fixed: Option<Duration>) -> Self {
        Self { fixed, seen: VecDeque::new() }
    }

    pub(super) fn set_fixed(&mut self, fixed: Option<Duration>) {
        self.fixed = fixed;
    }

    pub(super) fn on_ready(&mut self, took: Duration) {
        if self.seen.len() == SEEN_MAX {
            self.seen.pop_front();
        }
        self.seen.push_back(took.clamp(LEAST, MOST));
    }

    /// The time that three of four did not exceed.
    pub(super) fn span(&self) -> Duration {
        if let Some(fixed) = self.fixed {
            return fixed.clamp(LEAST, MOST);
        }
        let mut seen: Vec<Duration> = self.seen.iter().copied().collect();
        seen.sort_unstable();
        seen.get(seen.len().saturating_sub(1) * 3 / 4).copied().unwrap_or(UNKNOWN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_that_was_stuck_teaches_little_and_what_is_said_counts() {
        let mut learned = StartUp::new(None);
        assert_eq!(learned.span(), UNKNOWN);
        for took in [40, 41, 42, 43, 4_000, 44, 45, 46] {
            learned.on_ready(Duration::from_secs(took));
        }
        assert_eq!(learned.span(), Duration::from_secs(45));
        (0..100).for_each(|_| learned.on_ready(Duration::ZERO));
        assert_eq!(learned.span(), LEAST);
        learned.set_fixed(Some(Duration::from_secs(7)));
        assert_eq!(learned.span(), Duration::from_secs(7));
    }
}
