//! How long do people and agents think between two turns, and do they come back at all? Learned from
//! the sessions that were seen, in a fixed histogram that forgets slowly; a session is kept among the
//! living for as long as most of its kind took. A fixed time would be an hour for one workload and a
//! second for another, and wrong for both.

use std::time::Duration;

use crate::domain::float;

const BUCKETS: usize = 64;
/// The first bucket ends here; each is a fifth longer than the one before, so the last ends at hours.
const FIRST_MS: f64 = 100.0;
const GROWTH: f64 = 1.2;
/// Once this many were counted, all counts are halved.
const COUNTED_MAX: u32 = 4_096;
/// The share of thinks that a session is waited for.
const QUANTILE: f64 = 0.95;
/// What could be learned is cut off where one is given up; twice what is seen lets it grow.
const MARGIN: f64 = 2.0;
const LEAVE_MIN: Duration = Duration::from_secs(2);
const LEAVE_MAX: Duration = Duration::from_secs(600);
/// What is assumed until some have been seen.
const LEAVE_UNKNOWN: Duration = Duration::from_secs(30);
const SEEN_MIN: u32 = 8;

#[derive(Debug)]
pub(super) struct ThinkTimes {
    counts: [u32; BUCKETS],
    total: u32,
    /// Of sessions with one turn, and of those with more.
    odds: [Odds; 2],
}

/// How often sessions came back.
#[derive(Clone, Copy, Debug)]
struct Odds {
    back: u32,
    gone: u32,
}

impl Default for ThinkTimes {
    fn default() -> Self {
        // It cannot be known whether a first turn is the only one; a session that came back once
        // will do so again.
        let odds = [Odds { back: 4, gone: 4 }, Odds { back: 7, gone: 1 }];
        Self { counts: [0; BUCKETS], total: 0, odds }
    }
}

impl ThinkTimes {
    /// Notes that a session of `turns` turns came back after the time `think`.
    pub(super) fn on_back(&mut self, turns: u32, think: Duration) {
        self.odds[kind(turns)].note(true);
        self.counts[bucket(think)] += 1;
        self.total += 1;
        if COUNTED_MAX <= self.total {
            self.counts.iter_mut().for_each(|it| *it /= 2);
            self.total = self.counts.iter().sum();
        }
    }

    /// Notes that a session of `turns` turns was given up.
    pub(super) fn on_gone(&mut self, turns: u32) {
        self.odds[kind(turns)].note(false);
    }

    /// Says how long to wait for a session.
    pub(super) fn leave_after(&self) -> Duration {
        if self.total < SEEN_MIN {
            return LEAVE_UNKNOWN;
        }
        let wanted = QUANTILE * f64::from(self.total);
        let mut seen = 0;
        let at = self.counts.iter().position(|it| {
            seen += it;
            wanted <= f64::from(seen)
        });
        let exponent = i32::try_from(at.unwrap_or(BUCKETS - 1)).unwrap_or(0);
        let span_ms = MARGIN * FIRST_MS * GROWTH.powi(exponent);
        Duration::from_secs_f64(span_ms / 1e3).clamp(LEAVE_MIN, LEAVE_MAX)
    }

    /// Says how much of a session's KV will be wanted again, as far as chance tells.
    pub(super) fn expected(&self, turns: u32, tokens: u64) -> u64 {
        let Odds { back, gone } = self.odds[kind(turns)];
        tokens * u64::from(back) / u64::from(back + gone)
    }
}

impl Odds {
    fn note(&mut self, came_back: bool) {
        *(if came_back { &mut self.back } else { &mut self.gone }) += 1;
        if COUNTED_MAX <= self.back + self.gone {
            self.back /= 2;
            self.gone /= 2;
        }
    }
}

const fn kind(turns: u32) -> usize {
    if 1 < turns { 1 } else { 0 }
}

fn bucket(think: Duration) -> usize {
    let ms = float(u64::try_from(think.as_millis()).unwrap_or(u64::MAX));
    let mut end_ms = FIRST_MS;
    let mut at = 0;
    while end_ms < ms && at < BUCKETS - 1 {
        end_ms *= GROWTH;
        at += 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_waited_for_about_as_long_as_others_took() {
        let mut thinks = ThinkTimes::default();
        assert_eq!(thinks.leave_after(), LEAVE_UNKNOWN);
        for seconds in 1..=20 {
            (0..50).for_each(|_| thinks.on_back(3, Duration::from_secs(seconds)));
        }
        let leave = thinks.leave_after().as_secs_f64();
        assert!((38.0..50.0).contains(&leave), "{leave}");
    }

    #[test]
    fn what_is_learned_stays_within_bounds_and_changes_with_the_times() {
        let mut thinks = ThinkTimes::default();
        (0..10_000).for_each(|_| thinks.on_back(2, Duration::MAX));
        assert_eq!(thinks.leave_after(), LEAVE_MAX);
        (0..100_000).for_each(|_| thinks.on_back(2, Duration::ZERO));
        assert_eq!(thinks.leave_after(), LEAVE_MIN);
    }

    #[test]
    fn where_nobody_comes_back_an_idle_session_hardly_counts() {
        let mut thinks = ThinkTimes::default();
        assert_eq!(thinks.expected(1, 1_000), 500);
        (0..1_000).for_each(|_| thinks.on_gone(1));
        assert!(thinks.expected(1, 1_000) < 10);
        assert!(800 < thinks.expected(2, 1_000), "others are another matter");
    }
}
