//! What a millisecond of work costs the requests that come after it. On an idle fleet it delays none. On
//! a busy one it delays every request that joins the line before that is empty again, so the same prompt
//! is worth computing again at night and not at noon. How many wait behind it on average is what Pollaczek and
//! Khinchine say of a line with one server: it grows with the load and with how uneven the work is,
//! and both are measured here. A weight instead would be right for one load.
//!
//! It knows what this router sent and nothing of other routers; the caller says what share that is.

use crate::domain::Moment;

/// How long work is remembered: long against one prompt, short against the tides of a day.
const MEMORY_S: f64 = 30.0;
/// Load over what is left of a replica. At ten replicas in eleven busy the fleet is at its knee, and
/// a line that grows has no average.
const CROWDING_MAX: f64 = 10.0;
/// The greatest unevenness that is used: one huge prompt among small ones says little of the next.
const UNEVENNESS_MAX: f64 = 10.0;

/// Work that was sent lately, fading.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Congestion {
    requests: f64,
    work_ms: f64,
    /// The sum of the squares of each request's work.
    squares_ms2: f64,
    at: Moment,
}

impl Congestion {
    pub(super) fn on_sent(&mut self, now: Moment, work_ms: f64) {
        let kept = self.kept(now);
        self.requests = self.requests * kept + 1.0;
        self.work_ms = self.work_ms * kept + work_ms;
        self.squares_ms2 = self.squares_ms2 * kept + work_ms * work_ms;
        self.at = now;
    }

    /// Estimates how many requests a millisecond of work delays, on a fleet of `replicas` where this router
    /// sends `share` of the work.
    pub(super) fn delayed(&self, now: Moment, replicas: f64, share: f64) -> f64 {
        if self.work_ms <= 0.0 {
            return 0.0;
        }
        let sent_ms_per_s = self.work_ms * self.kept(now) / MEMORY_S / share;
        let busy = sent_ms_per_s / (1e3 * replicas);
        let crowding = if busy < 1.0 { busy / (1.0 - busy) } else { f64::INFINITY };
        crowding.min(CROWDING_MAX) * (self.unevenness() / 2.0).min(UNEVENNESS_MAX)
    }

    /// Measures how uneven work is: 1 where all requests take as long, and 1 + c², where c is the
    /// coefficient of variation.
    pub(super) fn unevenness(&self) -> f64 {
        if self.work_ms <= 0.0 {
            return 1.0;
        }
        self.requests * self.squares_ms2 / self.work_ms.powi(2)
    }

    /// Predicts the TTFT of a request of usual size where a millisecond of work delays `delayed` requests.
    pub(super) fn usual_ms(&self, delayed: f64) -> f64 {
        if self.requests <= 0.0 { 0.0 } else { self.work_ms / self.requests * (1.0 + delayed) }
    }

    fn kept(&self, now: Moment) -> f64 {
        (-now.since(self.at).as_secs_f64() / MEMORY_S).exp()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    /// Sends work for five minutes, one piece a second, and says what it does to others by then.
    fn steady(pieces_ms: &[f64], share: f64) -> f64 {
        let mut congestion = Congestion::default();
        for (second, work_ms) in (0..300).zip(pieces_ms.iter().cycle()) {
            congestion.on_sent(at(second * 1_000), *work_ms);
        }
        congestion.delayed(at(299_500), 1.0, share)
    }

    #[test]
    fn equal_work_delays_half_the_load_over_what_is_left() {
        // M/D/1 at half load: 0.5 / 0.5 · 1/2.
        assert!((steady(&[500.0], 1.0) - 0.5).abs() < 0.03, "{}", steady(&[500.0], 1.0));
        assert!((steady(&[800.0], 1.0) - 2.0).abs() < 0.2, "{}", steady(&[800.0], 1.0));
    }

    #[test]
    fn uneven_work_delays_more_and_what_others_sent_counts() {
        // One in ten takes 4.55 s and the others 50 ms: the same load, and c² is about 7.3.
        let mut uneven = [50.0; 10];
        uneven[9] = 4_550.0;
        let (even, uneven) = (steady(&[500.0], 1.0), steady(&uneven, 1.0));
        assert!(6.0 * even < uneven && uneven < 12.0 * even, "{even} {uneven}");
        let (half, whole) = (steady(&[250.0], 0.5), steady(&[500.0], 1.0));
        assert!((half - whole).abs() < 1e-9, "two routers with half the work each know the load");
    }

    #[test]
    fn a_rare_giant_makes_work_uneven() {
        let mut congestion = Congestion::default();
        assert!((congestion.unevenness() - 1.0).abs() < 1e-12, "nothing is known yet");
        (0..99).for_each(|_| congestion.on_sent(at(0), 10.0));
        assert!((congestion.unevenness() - 1.0).abs() < 1e-9);
        congestion.on_sent(at(0), 10_000.0);
        assert!(80.0 < congestion.unevenness(), "{}", congestion.unevenness());
    }

    #[test]
    fn who_waits_behind_many_is_used_to_longer_waits() {
        let mut congestion = Congestion::default();
        assert!(congestion.usual_ms(3.0).abs() < 1e-12, "nothing is usual yet");
        (0..10).for_each(|_| congestion.on_sent(at(0), 200.0));
        assert!((congestion.usual_ms(0.0) - 200.0).abs() < 1e-9);
        assert!((congestion.usual_ms(3.0) - 800.0).abs() < 1e-9);
    }

    #[test]
    fn an_overload_is_bounded_and_an_idle_fleet_free() {
        assert!((steady(&[5_000.0], 1.0) - CROWDING_MAX / 2.0).abs() < 1e-9);
        let mut congestion = Congestion::default();
        assert!(congestion.delayed(at(0), 8.0, 1.0).abs() < 1e-12);
        congestion.on_sent(at(0), 900.0);
        assert!(congestion.delayed(at(600_000), 8.0, 1.0) < 1e-6, "it is forgotten");
    }
}
