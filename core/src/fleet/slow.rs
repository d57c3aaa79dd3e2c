//! Is this replica slow against its class? Its gaps between tokens are held against what its batch
//! should take, and that ratio against the median of the pool: a pool whose predictions are off is off
//! everywhere, a busy replica is predicted to be slower, and only one that falls behind its peers is
//! an outlier. A limit in milliseconds would put out whole pools at their busiest hour.

use std::time::Duration;

use crate::domain::Moment;

/// A ratio of this many times the pool's median is slow.
const SLOW_FACTOR: f64 = 4.0;
/// How long it must last.
const SLOW_FOR: Duration = Duration::from_secs(10);
/// Gaps that must have been seen before anything is said.
const GAPS_MIN: u32 = 16;
/// Replicas that must have shown their speed before one is called slow against the others.
const PEERS_MIN: usize = 3;
/// Gaps older than this are not used.
const REMEMBERED: Duration = Duration::from_secs(30);
/// Weight of a new gap.
const NEW_SHARE: f64 = 0.1;

/// How fast one replica writes.
#[derive(Clone, Copy, Debug, Default)]
pub struct SlowDetector {
    /// Mean of gap over predicted gap, the newest weighing most.
    ratio: f64,
    gaps: u32,
    noted_at: Moment,
    slow_since: Option<Moment>,
}

impl SlowDetector {
    /// Notes how long tokens took to come, each, against what was predicted.
    pub fn on_gap(&mut self, now: Moment, gap_ms: f64, predicted_ms: f64) {
        let ratio = gap_ms / predicted_ms;
        if predicted_ms <= 0.0 || !ratio.is_finite() {
            return;
        }
        if REMEMBERED <= now.since(self.noted_at) {
            *self = Self::default();
        }
        self.noted_at = now;
        self.ratio += if self.gaps == 0 { ratio } else { NEW_SHARE * (ratio - self.ratio) };
        self.gaps = self.gaps.saturating_add(1);
    }

    /// Notes that predictions are `stretch` times as long from now on.
    pub fn rebase(&mut self, stretch: f64) {
        let ratio = self.ratio / stretch;
        if ratio.is_finite() {
            self.ratio = ratio;
        }
    }

    /// Its ratio, once enough was seen.
    pub fn ratio(&self) -> Option<f64> {
        (GAPS_MIN <= self.gaps).then_some(self.ratio)
    }

    /// Tells whether it has been slow for too long against `median`, that of its class.
    pub fn is_slow(&mut self, now: Moment, median: f64) -> bool {
        // A replica whose last gaps are old may be well by now.
        let is_fresh = now.since(self.noted_at) < REMEMBERED;
        let slow = is_fresh && self.ratio().is_some_and(|it| SLOW_FACTOR * median < it);
        self.slow_since = if slow { self.slow_since.or(Some(now)) } else { None };
        self.slow_since.is_some_and(|since| SLOW_FOR <= now.since(since))
    }
}

/// Finds the median of what a class's replicas have shown; `None` where too few have. Sorts what it is
/// given.
pub fn median(ratios: &mut [f64]) -> Option<f64> {
    if ratios.len() < PEERS_MIN {
        return None;
    }
    ratios.sort_by(f64::total_cmp);
    Some(ratios[(ratios.len() - 1) / 2])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn detector(gap_ms: f64) -> SlowDetector {
        let mut detector = SlowDetector::default();
        (0..100).for_each(|_| detector.on_gap(at(0), gap_ms, 20.0));
        detector
    }

    #[test]
    fn one_that_lags_behind_its_peers_for_a_while_is_slow() {
        let mut slow = detector(200.0);
        assert!(!slow.is_slow(at(0), 1.0));
        assert!(!slow.is_slow(at(9), 1.0));
        assert!(slow.is_slow(at(10), 1.0));
    }

    #[test]
    fn a_moment_of_slowness_is_forgiven() {
        let mut detector = detector(200.0);
        detector.is_slow(at(0), 1.0);
        (0..100).for_each(|_| detector.on_gap(at(3), 20.0, 20.0));
        assert!(!detector.is_slow(at(5), 1.0));
        (0..100).for_each(|_| detector.on_gap(at(6), 200.0, 20.0));
        assert!(!detector.is_slow(at(11), 1.0), "it begins anew");
    }

    #[test]
    fn one_that_was_slow_long_ago_is_not_called_slow_for_it() {
        let mut detector = detector(200.0);
        assert!(!detector.is_slow(at(5), 1.0));
        assert!(!detector.is_slow(at(900), 1.0), "nothing was seen of it since");
        detector.on_gap(at(900), 20.0, 20.0);
        assert_eq!(detector.ratio(), None, "it begins anew");
    }

    #[test]
    fn when_all_are_slow_nobody_is() {
        let mut ratios: Vec<f64> = (0..5).filter_map(|_| detector(400.0).ratio()).collect();
        let median = median(&mut ratios).unwrap();
        assert!(!detector(400.0).is_slow(at(100), median));
    }

    #[test]
    fn few_gaps_and_few_peers_say_nothing() {
        let mut detector = SlowDetector::default();
        detector.on_gap(at(0), 900.0, 20.0);
        detector.on_gap(at(0), 900.0, 0.0);
        assert_eq!(detector.ratio(), None);
        assert_eq!(median(&mut [1.0, 30.0]), None);
        assert_eq!(median(&mut [30.0, 1.0, 2.0]), Some(2.0));
    }
}
