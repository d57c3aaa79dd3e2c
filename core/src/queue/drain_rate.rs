//! How fast does the line move? Learned from what left it while others still waited, because only then
//! is the fleet's pace the line's. From it follow the two promises that need a forecast: refusing at
//! once what could not be served in time, and telling the refused when to come back.

use std::time::Duration;

use crate::domain::{Moment, float};

use super::work::Work;

/// How long one reading takes.
const READING: Duration = Duration::from_secs(2);
/// How much a new reading counts against all before it.
const NEW_SHARE: f64 = 0.3;
/// A wait told to a client lies between these.
const RETRY_MIN: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(600);

/// What leaves the line in a second.
#[derive(Clone, Copy, Debug)]
pub struct DrainRate {
    /// In millionths of a model unit.
    per_second: f64,
    learned: bool,
    reading: Option<(Moment, Work)>,
}

impl DrainRate {
    /// Starts with what the fleet should make, until it shows what it makes.
    pub fn new(expected_per_min: Work) -> Self {
        let per_second = float(expected_per_min.parts()) / 60.0;
        Self { per_second, learned: false, reading: None }
    }

    /// Expects another pace, because the fleet changed. What was learned of the old one is scaled.
    pub fn expect(&mut self, before_per_min: Work, now_per_min: Work) {
        let (before, now) = (float(before_per_min.parts()), float(now_per_min.parts()));
        if self.learned && 0.0 < before {
            self.per_second *= now / before;
        } else {
            self.per_second = now / 60.0;
        }
        self.reading = None;
    }

    /// Notes that work was sent; `waiting` says whether more of it waits.
    pub fn on_sent(&mut self, now: Moment, work: Work, waiting: bool) {
        if !waiting {
            self.reading = None;
            return;
        }
        let (since, sum) = self.reading.get_or_insert((now, Work::ZERO));
        *sum += work;
        let span = now.since(*since);
        if span < READING {
            return;
        }
        let read = float(sum.parts()) / span.as_secs_f64();
        let share = if self.learned { NEW_SHARE } else { 1.0 };
        self.per_second += share * (read - self.per_second);
        self.learned = true;
        self.reading = Some((now, Work::ZERO));
    }

    /// Predicts how long the work `ahead` takes to leave; `None` when nothing is known.
    pub fn wait(&self, ahead: Work) -> Option<Duration> {
        if ahead == Work::ZERO {
            return Some(Duration::ZERO);
        }
        let seconds = float(ahead.parts()) / self.per_second;
        (0.0 < self.per_second)
            .then(|| Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
    }

    /// Tells a refused client when to come back: when what is ahead of it will be gone.
    pub fn retry_after(&self, ahead: Work) -> Duration {
        self.wait(ahead).unwrap_or(RETRY_MIN).clamp(RETRY_MIN, RETRY_MAX)
    }

    pub fn mu_per_min(&self) -> f64 {
        self.per_second * 60.0 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn the_pace_is_learned_only_while_others_wait() {
        let mut pace = DrainRate::new(Work::from_mu(100.0));
        for ms in (0..60_000).step_by(100) {
            pace.on_sent(at(ms), Work::from_mu(0.001), false);
        }
        assert!((pace.mu_per_min() - 100.0).abs() < 1e-6);
        for ms in (0..60_000).step_by(100) {
            pace.on_sent(at(ms), Work::from_mu(1.0), true);
        }
        assert!((pace.mu_per_min() - 600.0).abs() < 40.0, "{}", pace.mu_per_min());
        let wait = pace.wait(Work::from_mu(60.0)).unwrap();
        assert!((5.5..6.5).contains(&wait.as_secs_f64()), "{wait:?}");
    }

    #[test]
    fn half_the_fleet_is_half_the_pace() {
        let mut pace = DrainRate::new(Work::from_mu(100.0));
        pace.expect(Work::from_mu(100.0), Work::from_mu(50.0));
        assert!((pace.mu_per_min() - 50.0).abs() < 1e-6);
    }

    #[test]
    fn a_client_is_told_something_sensible_whatever_is_known() {
        let unknown = DrainRate::new(Work::ZERO);
        assert_eq!(unknown.wait(Work::from_mu(1.0)), None);
        assert_eq!(unknown.retry_after(Work::from_mu(1.0)), RETRY_MIN);
        let slow = DrainRate::new(Work::from_parts(1));
        assert_eq!(slow.retry_after(Work::from_mu(1e12)), RETRY_MAX);
    }
}
