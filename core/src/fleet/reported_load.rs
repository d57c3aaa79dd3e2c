//! The load of a replica as its engine reports it. Reports never overrule the books. An engine's report
//! can only add requests that no known router has sent. It counts less the longer its figures stand still,
//! and is bounded by the reports of the other engines of the pool and by what is booked there. So a report that is frozen or wrong neither starves a replica nor
//! floods it. A rule that believed the newest figures would do both.

use std::time::Duration;

use crate::domain::{Moment, Report, span_ms};

/// Figures that have stood still for longer than this begin to fade.
const STILL_MAX: Duration = Duration::from_secs(1);
/// How long it then takes until they count half.
const HALF_LIFE: Duration = Duration::from_secs(1);
/// How long the most that was in flight is remembered, at least.
const PEAK_SPAN: Duration = Duration::from_secs(2);

/// Requests at an engine that no router knows of. They are fractions, because old reports count in part.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Strangers {
    pub waiting: f64,
    pub running: f64,
    /// What they hold of the KV memory.
    pub kv_tokens: f64,
}

/// What is reported of one replica.
#[derive(Debug, Default)]
pub struct ReportedLoad {
    report: Option<Report>,
    /// When the figures of the report were first seen as they are.
    changed_at: Moment,
    /// The most that routers had in flight, since the last turn and in the span before it.
    peaks: [u32; 2],
    turned_at: Moment,
}

impl ReportedLoad {
    pub const fn report(&self) -> Option<Report> {
        self.report
    }

    pub fn on_report(&mut self, report: Report) {
        let figures = |it: &Report| (it.waiting, it.running, it.kv_used_share.to_bits());
        if self.report.as_ref().map(figures) != Some(figures(&report)) {
            self.changed_at = report.taken_at;
        }
        self.report = Some(report);
    }

    pub fn on_sent(&mut self, in_flight: u32) {
        self.peaks[0] = self.peaks[0].max(in_flight);
    }

    /// Forgets what was in flight long ago.
    pub fn on_time(&mut self, now: Moment, in_flight: u32) {
        if PEAK_SPAN <= now.since(self.turned_at) {
            self.peaks = [in_flight, self.peaks[0]];
            self.turned_at = now;
        }
    }

    /// Counts the requests that the engine has beside all that routers know of. These count at their recent
    /// peak: a report is old when it comes, and a request that ended since is no stranger.
    pub fn strangers(&self) -> f64 {
        let Some(report) = self.report else { return 0.0 };
        let known = self.peaks[0].max(self.peaks[1]);
        let there = report.waiting.saturating_add(report.running);
        f64::from(there.saturating_sub(known))
    }

    /// Says how many strangers to expect, where the engines of the pool usually report `usual` each.
    pub fn reckon(&self, now: Moment, in_flight: u32, usual: f64) -> Strangers {
        let Some(report) = self.report else { return Strangers::default() };
        let strangers = self.strangers().min(2.0 * usual + f64::from(in_flight) + 1.0);
        if strangers <= 0.0 {
            return Strangers::default();
        }
        let count = strangers * self.freshness(now);
        let (waiting, running) = (f64::from(report.waiting), f64::from(report.running));
        let waiting_share = waiting / (waiting + running);
        let strangers_running = count * (1.0 - waiting_share);
        // Each is assumed to hold as much KV as the average request that runs there.
        let kv_each = report.kv_used_tokens() / running.max(1.0);
        Strangers {
            waiting: count * waiting_share,
            running: strangers_running,
            kv_tokens: strangers_running * kv_each,
        }
    }

    fn freshness(&self, now: Moment) -> f64 {
        let still = now.since(self.changed_at).saturating_sub(STILL_MAX);
        (-span_ms(still) / span_ms(HALF_LIFE)).exp2()
    }
}

/// Finds the number that the engines of a pool usually report.
pub(super) fn median(mut counts: Vec<f64>) -> f64 {
    counts.sort_by(f64::total_cmp);
    counts.get(counts.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    fn report(taken_at: Moment, waiting: u32, running: u32) -> Report {
        let kv_used_share = f64::from(running) / 100.0;
        let (waiting_tokens, kv_tokens_max) = (None, None);
        Report { taken_at, waiting, running, waiting_tokens, kv_used_share, kv_tokens_max }
    }

    #[test]
    fn what_routers_know_of_is_no_stranger() {
        let mut it = ReportedLoad::default();
        it.on_sent(10);
        it.on_report(report(at(100), 4, 8));
        assert!((it.strangers() - 2.0).abs() < 1e-9);
        // They have ended since, which the report could not know.
        it.on_time(at(2_500), 0);
        assert!((it.strangers() - 2.0).abs() < 1e-9);
        it.on_time(at(5_000), 0);
        assert!((it.strangers() - 12.0).abs() < 1e-9);
    }

    #[test]
    fn figures_that_stand_still_fade_however_new_their_date() {
        let mut it = ReportedLoad::default();
        for taken_at in (0..10_000).step_by(100) {
            it.on_report(report(at(taken_at), 30, 10));
        }
        let waiting = it.reckon(at(10_000), 0, 100.0).waiting;
        assert!(waiting < 0.1, "{waiting}");
        it.on_report(report(at(10_000), 31, 10));
        let waiting = it.reckon(at(10_000), 0, 100.0).waiting;
        assert!((waiting - 31.0).abs() < 1e-9, "{waiting}");
    }

    #[test]
    fn one_engine_that_speaks_of_far_more_than_the_others_is_not_believed() {
        let mut it = ReportedLoad::default();
        it.on_report(report(at(0), 100_000, 0));
        assert!((it.reckon(at(0), 3, 2.0).waiting - 8.0).abs() < 1e-9);
        it.on_report(report(at(0), u32::MAX, u32::MAX));
        let reckoned = it.reckon(at(0), 0, 0.0);
        assert!((reckoned.waiting + reckoned.running - 1.0).abs() < 1e-9);
    }

    #[test]
    fn strangers_hold_kv_as_the_others_there_do() {
        let mut it = ReportedLoad::default();
        it.on_sent(6);
        let full =
            Report { kv_used_share: 0.5, kv_tokens_max: Some(100_000), ..report(at(0), 0, 10) };
        it.on_report(full);
        let reckoned = it.reckon(at(0), 6, 4.0);
        assert!((reckoned.kv_tokens - 20_000.0).abs() < 1e-6, "{reckoned:?}");
    }
}
