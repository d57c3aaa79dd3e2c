//! How many requests an engine runs at once. Engines have a limit (vLLM's `--max-num-seqs`, SGLang's
//! `--max-running-requests`) and do not report it. A request beyond it waits until another ends, however
//! short its prompt is, so the prompts ahead of it say too little of its wait. Where many prompts are short
//! and answers long, they would pile up on a replica that looks as if it had little to read.
//!
//! The limit shows when requests wait, others end, and the number that runs stays the same.

use crate::domain::{Moment, Report, span_ms};

/// This many requests must have ended while the number that ran was the same, and an eighth of that number.
const ENDED_MIN: u32 = 8;
const ENDED_PART: u32 = 8;
/// How long ends are remembered: long enough to count some, short against what changes their rate.
const MEMORY_MS: f64 = 5_000.0;
/// The lowest rate of ends that is used, one in ten seconds, so that a wait stays a number.
const ENDED_PER_MS_MIN: f64 = 1e-4;

#[derive(Clone, Copy, Debug, Default)]
pub struct SequenceLimit {
    known: Option<u32>,
    /// How many ran at the latest report, if others waited; else 0.
    full_at: u32,
    /// How many have ended since it began to report that number.
    ended_since: u32,
    /// How many have ended lately, fading, as of the last.
    ended: f64,
    ended_at: Moment,
}

impl SequenceLimit {
    /// Takes in what an engine says. `worked` tells whether its figures moved: those of a frozen report stay
    /// the same for another reason.
    pub fn on_report(&mut self, report: &Report, worked: bool) {
        let full_at = if 0 < report.waiting { report.running } else { 0 };
        if full_at == 0 || full_at != self.full_at {
            (self.full_at, self.ended_since) = (full_at, 0);
        } else if worked && ENDED_MIN.max(full_at / ENDED_PART) <= self.ended_since {
            self.known = Some(full_at);
        }
        self.known = self.known.filter(|it| report.running <= *it);
    }

    pub fn on_ended(&mut self, now: Moment) {
        self.ended = self.ended_lately(now) + 1.0;
        self.ended_at = now;
        self.ended_since = self.ended_since.saturating_add(1);
    }

    /// Predicts how long the next request waits for others to end, where `there` are ahead of it.
    pub fn wait_ms(&self, now: Moment, there: f64) -> f64 {
        let Some(limit) = self.known else { return 0.0 };
        let beyond = (there + 1.0 - f64::from(limit)).max(0.0);
        beyond / (self.ended_lately(now) / MEMORY_MS).max(ENDED_PER_MS_MIN)
    }

    fn ended_lately(&self, now: Moment) -> f64 {
        self.ended * (-span_ms(now.since(self.ended_at)) / MEMORY_MS).exp()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    fn report(at_ms: u64, waiting: u32, running: u32) -> Report {
        let (taken_at, kv_used_share) = (at(at_ms), 0.5);
        Report {
            taken_at,
            waiting,
            running,
            waiting_tokens: None,
            kv_used_share,
            kv_tokens_max: None,
        }
    }

    /// Plays half a minute in which four requests end every 100 ms.
    fn half_a_minute(waiting: u32, running: impl Fn(u64) -> u32, worked: bool) -> SequenceLimit {
        let mut it = SequenceLimit::default();
        for tick in 0..300 {
            it.on_report(&report(100 * tick, waiting, running(tick)), worked);
            (0..4).for_each(|_| it.on_ended(at(100 * tick)));
        }
        it
    }

    #[test]
    fn a_number_that_stays_while_requests_wait_and_end_is_the_limit() {
        let it = half_a_minute(20, |_| 64, true);
        assert!(it.wait_ms(at(29_900), 63.0).abs() < 1e-9, "the next runs at once");
        // 40 end in a second, so the twentieth beyond the limit waits for half of one.
        let wait_ms = it.wait_ms(at(29_900), 83.0);
        assert!((wait_ms - 500.0).abs() < 50.0, "{wait_ms}");
    }

    #[test]
    fn numbers_that_change_engines_without_a_line_and_frozen_reports_show_no_limit() {
        for it in [
            half_a_minute(20, |tick| if tick % 2 == 0 { 64 } else { 63 }, true),
            half_a_minute(0, |_| 64, true),
            half_a_minute(20, |_| 64, false),
        ] {
            assert!(it.wait_ms(at(29_900), 1_000.0).abs() < 1e-9, "{it:?}");
        }
    }

    #[test]
    fn an_engine_that_runs_more_has_no_such_limit() {
        let mut it = half_a_minute(20, |_| 64, true);
        it.on_report(&report(30_000, 5, 65), true);
        assert!(it.wait_ms(at(30_000), 1_000.0).abs() < 1e-9);
    }

    #[test]
    fn a_wait_is_a_number_even_where_nothing_has_ended_for_long() {
        let it = half_a_minute(20, |_| 64, true);
        assert!(it.wait_ms(at(86_400_000), 64.0) <= 1.0 / ENDED_PER_MS_MIN);
    }
}
