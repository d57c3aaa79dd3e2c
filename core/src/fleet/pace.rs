//! How fast a replica is beside the others, each measured against what its own class promises. A
//! hot GPU, a noisy neighbour or coefficients that are wrong for one class show here, and its times
//! are stretched by as much. Only the comparison counts: a model that is wrong about all replicas
//! alike corrects none of them. What is not confirmed fades, so that a replica that was shunned for
//! its slowness is tried again.

use std::time::Duration;

use crate::domain::{Moment, span_ms};

/// How much the newest request counts.
const SHARE_OF_NEWEST: f64 = 1.0 / 16.0;
/// How many requests it takes until half of what they show is believed.
const HALF_BELIEF: f64 = 8.0;
/// How long it takes until half of what was shown is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(60);
/// Deviations this small are noise; in logarithms, so about 15 %.
const NOISE: f64 = 0.15;
/// What one request may show at most, as a factor either way.
const SHOWN_MAX: f64 = 8.0;
/// What is believed at most, as a factor either way.
const FACTOR_MAX: f64 = 4.0;

/// What has been seen of one replica's speed.
#[derive(Debug)]
pub struct Pace {
    /// Mean logarithm of time taken over time predicted.
    log_ratio: f64,
    requests: f64,
    noted_at: Moment,
    factor: f64,
}

impl Default for Pace {
    fn default() -> Self {
        Self { log_ratio: 0.0, requests: 0.0, noted_at: Moment::ZERO, factor: 1.0 }
    }
}

impl Pace {
    /// The factor by which work takes longer here than predicted, relative to the other replicas.
    pub const fn factor(&self) -> f64 {
        self.factor
    }

    pub fn note(&mut self, now: Moment, taken: Duration, predicted_ms: f64) {
        let ratio = span_ms(taken) / predicted_ms;
        if !ratio.is_finite() || ratio <= 0.0 {
            return;
        }
        let shown = ratio.clamp(1.0 / SHOWN_MAX, SHOWN_MAX).ln();
        // The first few are averaged, so that the very first does not linger.
        let share = SHARE_OF_NEWEST.max(1.0 / (self.requests + 1.0));
        self.log_ratio += share * (shown - self.log_ratio);
        self.requests += 1.0;
        self.noted_at = now;
    }

    /// Notes that predictions are `stretch` times as long from now on; how it compares stays as it is.
    pub fn rebase(&mut self, stretch: f64) {
        let moved = self.log_ratio - stretch.ln();
        if self.is_known() && moved.is_finite() {
            self.log_ratio = moved;
        }
    }

    fn is_known(&self) -> bool {
        0.0 < self.requests
    }

    fn compare(&mut self, now: Moment, median: f64) {
        let age = span_ms(now.since(self.noted_at)) / span_ms(HALF_LIFE);
        let belief = self.requests / (self.requests + HALF_BELIEF) * (-age).exp2();
        let deviation = belief * (self.log_ratio - median);
        let beyond_noise = deviation.signum() * (deviation.abs() - NOISE).max(0.0);
        self.factor = beyond_noise.exp().clamp(1.0 / FACTOR_MAX, FACTOR_MAX);
    }
}

/// Compares the replicas of a pool with each other.
pub(super) fn compare<'a>(now: Moment, paces: impl Iterator<Item = &'a mut Pace>) {
    let mut paces: Vec<&mut Pace> = paces.filter(|it| it.is_known()).collect();
    paces.sort_by(|a, b| a.log_ratio.total_cmp(&b.log_ratio));
    let (Some(low), Some(high)) =
        (paces.get(paces.len().saturating_sub(1) / 2), paces.get(paces.len() / 2))
    else {
        return;
    };
    let median = f64::midpoint(low.log_ratio, high.log_ratio);
    for it in paces {
        it.compare(now, median);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    /// Lets each replica serve requests that take its ratio times as long as predicted.
    fn fleet(ratios: &[f64], requests: u32) -> Vec<Pace> {
        let mut paces: Vec<Pace> = ratios.iter().map(|_| Pace::default()).collect();
        for (pace, ratio) in paces.iter_mut().zip(ratios) {
            (0..requests)
                .for_each(|_| pace.note(at(0), Duration::from_secs(1).mul_f64(*ratio), 1e3));
        }
        compare(at(0), paces.iter_mut());
        paces
    }

    #[test]
    fn a_slow_replica_is_found_and_the_others_are_left_alone() {
        let paces = fleet(&[1.0, 1.05, 3.0, 0.95], 60);
        assert!((2.0..3.0).contains(&paces[2].factor()), "{}", paces[2].factor());
        for it in [0, 1, 3] {
            assert!((paces[it].factor() - 1.0).abs() < 1e-9);
        }
    }

    #[test]
    fn a_prediction_that_is_wrong_about_all_replicas_alike_corrects_none() {
        assert!(fleet(&[2.0, 2.0, 2.0], 60).iter().all(|it| (it.factor() - 1.0).abs() < 1e-9));
        assert!(
            (fleet(&[2.5], 60)[0].factor() - 1.0).abs() < 1e-9,
            "no other replica to compare with"
        );
    }

    #[test]
    fn one_bad_request_changes_nothing() {
        let mut paces = fleet(&[1.0, 1.0, 1.0], 30);
        paces[0].note(at(0), Duration::from_secs(5), 1e3);
        compare(at(0), paces.iter_mut());
        assert!((paces[0].factor() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_not_confirmed_fades_and_no_factor_leaves_its_bounds() {
        let mut paces = fleet(&[1.0, 1.0, 1e6], 500);
        assert!(paces[2].factor() <= FACTOR_MAX);
        assert!(3.0 < paces[2].factor());
        compare(at(600), paces.iter_mut());
        assert!((paces[2].factor() - 1.0).abs() < 0.01);
        paces[0].note(at(600), Duration::ZERO, 1e3);
        paces[0].note(at(600), Duration::from_secs(1), 0.0);
        compare(at(600), paces.iter_mut());
        assert!(paces.iter().all(|it| it.factor().is_finite()));
    }
}
