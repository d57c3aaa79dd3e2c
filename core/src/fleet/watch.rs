//! What is known of how a replica does its work, beside what is booked there.

use std::time::Duration;

use crate::domain::{Moment, Report, float};

use super::{HangDetector, SequenceLimit, SlowDetector};

/// From this share of its KV memory on, a replica may have to put streams aside for want of it. Blocks
/// that are not full, and answers longer than expected, take more than the books say.
const KV_FULL_SHARE: f64 = 0.7;

/// How long a report that shows an engine at work is believed. One that never changes again is frozen
/// and says nothing.
const WORKING_FOR: Duration = Duration::from_secs(10);

#[derive(Clone, Copy, Debug, Default)]
pub struct Watch {
    pub hang: HangDetector,
    pub slow: SlowDetector,
    /// How many requests it runs at once, where that has shown.
    pub sequence_limit: SequenceLimit,
    /// When it was last asked for a token, and how long that may take; `None` once the result is in.
    pub asked: Option<(Moment, Duration)>,
    pub last_asked: Moment,
    /// Whether nothing listened at its address when it was last looked at.
    pub was_refused: bool,
    /// When it was asked for a token and gave none, while it had work; a sign of life clears this.
    pub mute_since: Option<Moment>,
    /// When its engine was last seen at work by its reports.
    worked_at: Option<Moment>,
    /// When it was last seen with its memory full or with a line of its own: streams that stand still
    /// meanwhile are those of a busy replica, not of a slow one.
    crowded_at: Option<Moment>,
}

impl Watch {
    /// Compares what an engine says with what it said before; returns whether it was at work.
    pub fn on_report(&mut self, report: &Report, before: Option<&Report>) -> bool {
        // What waits may grow in front of a hung engine; what it holds and runs does not change.
        let worked = before.is_some_and(|it| {
            let moved = (it.kv_used_share - report.kv_used_share).abs();
            it.running != report.running || f64::EPSILON < moved
        });
        if worked {
            self.worked_at = Some(report.taken_at);
        }
        self.sequence_limit.on_report(report, worked);
        worked
    }

    /// Forgets what another process at its address need not share.
    pub fn on_restarted(&mut self) {
        self.slow = SlowDetector::default();
        self.sequence_limit = SequenceLimit::default();
    }

    /// Notes whether a replica has more to do than fits its memory: by what is booked there, and by
    /// what its engine says.
    pub fn on_booked(&mut self, now: Moment, kv_tokens: u64, report: Option<&Report>) {
        let Some(report) = report else { return };
        let says_so = 0 < report.waiting || KV_FULL_SHARE <= report.kv_used_share;
        let is_full = report
            .kv_tokens_max
            .is_some_and(|most| KV_FULL_SHARE * float(most) <= float(kv_tokens));
        if says_so || is_full {
            self.crowded_at = Some(now);
        }
    }

    /// Tells whether it was crowded at some time since.
    pub fn was_crowded(&self, since: Moment) -> bool {
        self.crowded_at.is_some_and(|at| since <= at)
    }

    pub fn is_working(&self, now: Moment) -> bool {
        self.worked_at.is_some_and(|at| now.since(at) < WORKING_FOR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    fn report(waiting: u32, kv_used_share: f64) -> Report {
        Report {
            taken_at: at(0),
            waiting,
            running: 1,
            waiting_tokens: None,
            kv_used_share,
            kv_tokens_max: Some(1000),
        }
    }

    #[test]
    fn a_replica_is_crowded_when_its_books_or_its_engine_say_so() {
        let crowded = |kv_tokens, report: Option<Report>| {
            let mut watch = Watch::default();
            watch.on_booked(at(5), kv_tokens, report.as_ref());
            watch.was_crowded(at(5))
        };
        assert!(crowded(900, Some(report(0, 0.1))), "by the books");
        assert!(crowded(0, Some(report(3, 0.1))), "it has a line");
        assert!(crowded(0, Some(report(0, 0.95))), "its memory is full");
        assert!(!crowded(600, Some(report(0, 0.5))));
        assert!(!crowded(1_000_000, None), "nothing is known of its memory");
    }

    #[test]
    fn crowding_counts_for_gaps_that_it_fell_into() {
        let mut watch = Watch::default();
        watch.on_booked(at(5), 900, Some(&report(0, 0.0)));
        assert!(watch.was_crowded(at(3)) && watch.was_crowded(at(5)));
        assert!(!watch.was_crowded(at(6)));
    }
}
