//! How one request went, each part beside what was expected of it: which requests are worth keeping, and what is
//! said of them in one line. Plain figures in, words out; the driver measures, and nothing here changes a
//! decision.

use std::fmt;

use crate::queue::OverContract;

use super::super::{Cause, LeaveCause};

/// A part is slow when it takes this many times as long as expected...
const SLOW_FACTOR: f64 = 3.0;
/// ...and that makes a difference which a client notices.
const NOTICED_MS: f64 = 500.0;
/// An answer that stands still for this long is noticed by itself...
const PAUSE_MS: f64 = 2_000.0;
/// ...unless its tokens are that slow: a pause is this many gaps.
const PAUSE_GAPS: f64 = 20.0;
/// A wait of which no cause is known is one in the line only beyond this: a decision takes some time too.
const HELD_MS: f64 = 100.0;

/// How one request went, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Course {
    /// Until its body was there.
    pub intake_ms: f64,
    /// Until it was first sent, or refused.
    pub line: TimedPart,
    pub line_cause: Option<Cause>,
    /// How it did not fit its tenant's contract, where that refused it.
    pub over: Option<OverContract>,
    /// Tries that failed, and the time until it was sent again after them.
    pub tries_failed: u32,
    pub failed_ms: f64,
    /// Of the last try; nothing where the answer is no stream.
    pub first_token: Option<TimedPart>,
    /// Between two tokens, on the average.
    pub gap: Option<TimedPart>,
    pub gaps: u32,
    pub gap_longest_ms: f64,
    /// From sending to the end of an answer that is no stream.
    pub whole: Option<TimedPart>,
    /// How long the client did not take what was there for it.
    pub client_ms: f64,
    /// Why its session left its replica.
    pub moved: Option<LeaveCause>,
    pub end: End,
}

/// What something took, and what it was expected to take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TimedPart {
    pub took_ms: f64,
    pub expected_ms: f64,
}

/// How it ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum End {
    /// It has not.
    #[default]
    Running,
    Answered {
        status: u16,
    },
    /// By the router, with this word.
    Refused {
        reason: &'static str,
    },
    /// Its replica stopped in the middle of the answer.
    Cut,
    /// Its client left.
    Cancelled,
    /// By a mistake of the router.
    Panicked,
}

/// What makes a request worth keeping, the gravest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Remark {
    Failed,
    Retried,
    Slow,
    Held,
    Moved,
}

impl Remark {
    pub const ALL: [Self; 5] = [Self::Failed, Self::Retried, Self::Slow, Self::Held, Self::Moved];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Retried => "retried",
            Self::Slow => "slow",
            Self::Held => "held",
            Self::Moved => "moved",
        }
    }
}

impl TimedPart {
    fn excess_ms(self) -> f64 {
        (self.took_ms - self.expected_ms).max(0.0)
    }

    /// How many times as long as expected it took.
    fn factor(self) -> f64 {
        self.took_ms / self.expected_ms.max(0.1)
    }

    /// Tells whether it took too long, where it came `count` times.
    fn is_slow(self, count: f64) -> bool {
        SLOW_FACTOR <= self.factor() && NOTICED_MS <= count * self.excess_ms()
    }
}

/// What took longer than it should have.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Delay {
    Body(f64),
    Line(TimedPart, Option<Cause>),
    Tries(u32, f64),
    FirstToken(TimedPart),
    NoToken(TimedPart),
    Gap(TimedPart),
    Pause(f64),
    Whole(TimedPart),
    Reader(f64),
}

impl Course {
    /// Says why it is worth keeping; `None` for a request like most.
    pub fn remark(&self) -> Option<Remark> {
        let failed = match self.end {
            End::Refused { .. } | End::Cut | End::Panicked => true,
            End::Answered { status } => 500 <= status,
            End::Running | End::Cancelled => false,
        };
        // Under a policy that keeps no sessions every request moves.
        let moved = self.moved.is_some_and(|it| it != LeaveCause::Rule);
        let is_slow = || self.delays().any(|(_, it)| !matches!(it, Delay::Line(..)));
        match () {
            () if failed => Some(Remark::Failed),
            () if 0 < self.tries_failed => Some(Remark::Retried),
            () if is_slow() => Some(Remark::Slow),
            () if self.is_held() => Some(Remark::Held),
            () if moved => Some(Remark::Moved),
            () => None,
        }
    }

    /// Tells whether it waited in the line.
    pub fn is_held(&self) -> bool {
        self.line_cause.is_some_and(|it| it != Cause::Contract) || HELD_MS <= self.line.took_ms
    }

    /// Says in one line what made it slow, or that nothing did.
    pub fn verdict(&self) -> String {
        let worst = self.delays().max_by(|a, b| a.0.total_cmp(&b.0)).map(|it| it.1.to_string());
        let after = |words: String| match &worst {
            Some(worst) => format!("{words}; {worst}"),
            None => words,
        };
        match (self.end, &worst) {
            (End::Running, None) => "it is still running".to_owned(),
            (End::Refused { reason }, _) => {
                let over = self.over.map_or_else(String::new, |it| format!(": {it}"));
                after(format!("refused: {reason}{over}"))
            }
            (End::Cut, _) => {
                after("cut: its replica stopped in the middle of the answer".to_owned())
            }
            (End::Panicked, _) => "failed by a mistake of the router".to_owned(),
            (End::Answered { status }, _) if 500 <= status => {
                after(format!("failed: status {status}"))
            }
            (End::Cancelled, _) => after("its client left".to_owned()),
            (_, Some(worst)) => worst.clone(),
            (_, None) => match self.moved {
                Some(cause) => format!("as expected; its session moved: {}", cause.sentence()),
                None => "as expected".to_owned(),
            },
        }
    }

    /// Lists what took too long, each with how much too long.
    fn delays(&self) -> impl Iterator<Item = (f64, Delay)> {
        let body =
            (NOTICED_MS <= self.intake_ms).then_some((self.intake_ms, Delay::Body(self.intake_ms)));
        let held =
            self.is_held().then_some((self.line.took_ms, Delay::Line(self.line, self.line_cause)));
        let tries = (0 < self.tries_failed)
            .then_some((self.failed_ms, Delay::Tries(self.tries_failed, self.failed_ms)));
        let ended_early = matches!(self.end, End::Cancelled | End::Running) && self.gap.is_none();
        let first = self.first_token.filter(|it| it.is_slow(1.0)).map(|it| {
            let delay = if ended_early { Delay::NoToken(it) } else { Delay::FirstToken(it) };
            (it.excess_ms(), delay)
        });
        let gaps = f64::from(self.gaps);
        let gap = self.gap.filter(|it| it.is_slow(gaps));
        let gap = gap.map(|it| (gaps * it.excess_ms(), Delay::Gap(it)));
        let usual = self.gap.map_or(0.0, |it| it.expected_ms);
        let longest = self.gap_longest_ms;
        // One pause makes the average gap long too; where it is most of the time, it is what is said.
        let pauses = PAUSE_MS.max(PAUSE_GAPS * usual) <= longest;
        let pause = pauses.then_some((2.0 * longest, Delay::Pause(longest)));
        let whole =
            self.whole.filter(|it| it.is_slow(1.0)).map(|it| (it.excess_ms(), Delay::Whole(it)));
        let reader = (NOTICED_MS <= self.client_ms)
            .then_some((self.client_ms, Delay::Reader(self.client_ms)));
        [body, held, tries, first, gap, pause, whole, reader].into_iter().flatten()
    }
}

/// A time with two digits that matter.
struct Span(f64);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ms if ms < 10.0 => write!(f, "{ms:.1} ms"),
            ms if ms < 1_000.0 => write!(f, "{ms:.0} ms"),
            ms => write!(f, "{:.1} s", ms / 1e3),
        }
    }
}

impl fmt::Display for TimedPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, {} expected)", Span(self.took_ms), Span(self.expected_ms))
    }
}

impl fmt::Display for Delay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Body(ms) => write!(f, "slow client: its body took {}", Span(ms)),
            Self::Line(line, cause) => {
                write!(f, "held in the line {line}")?;
                cause.map_or(Ok(()), |it| write!(f, ": {}", it.sentence()))
            }
            Self::Tries(1, ms) => write!(f, "retried: one try failed, which took {}", Span(ms)),
            Self::Tries(tries, ms) => {
                write!(f, "retried: {tries} tries failed, which took {}", Span(ms))
            }
            Self::FirstToken(it) => {
                write!(f, "slow first token: {:.0}x what was expected {it}", it.factor())
            }
            Self::NoToken(it) => write!(f, "no first token {it}"),
            Self::Gap(it) => write!(f, "slow replica: {:.0}x its usual gap {it}", it.factor()),
            Self::Pause(ms) => write!(f, "slow replica: its answer stood still for {}", Span(ms)),
            Self::Whole(it) => {
                write!(f, "slow answer: {:.0}x what was expected {it}", it.factor())
            }
            Self::Reader(ms) => {
                write!(f, "slow client: it did not take its answer for {}", Span(ms))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: End = End::Answered { status: 200 };

    fn part(took_ms: f64, expected_ms: f64) -> TimedPart {
        TimedPart { took_ms, expected_ms }
    }

    /// A stream in which everything went as expected.
    fn usual() -> Course {
        Course {
            intake_ms: 0.4,
            first_token: Some(part(120.0, 100.0)),
            gap: Some(part(22.0, 20.0)),
            gaps: 100,
            gap_longest_ms: 90.0,
            end: DONE,
            ..Course::default()
        }
    }

    #[test]
    fn a_request_like_most_is_not_kept_and_went_as_expected() {
        assert_eq!(usual().remark(), None);
        assert_eq!(usual().verdict(), "as expected");
    }

    #[test]
    fn the_verdict_names_what_took_most_of_the_time() {
        let slow = Course { gap: Some(part(240.0, 20.0)), ..usual() };
        assert_eq!(slow.remark(), Some(Remark::Slow));
        assert_eq!(slow.verdict(), "slow replica: 12x its usual gap (240 ms, 20 ms expected)");
        let first = Course { first_token: Some(part(30_000.0, 500.0)), ..slow };
        assert_eq!(
            first.verdict(),
            "slow first token: 60x what was expected (30.0 s, 500 ms expected)"
        );
        let paused = Course { gap: Some(part(100.0, 20.0)), gap_longest_ms: 8_000.0, ..usual() };
        assert_eq!(paused.verdict(), "slow replica: its answer stood still for 8.0 s");
        let reader = Course { client_ms: 9_000.0, ..usual() };
        assert_eq!(reader.verdict(), "slow client: it did not take its answer for 9.0 s");
        let body = Course { intake_ms: 3_000.0, ..usual() };
        assert_eq!(body.verdict(), "slow client: its body took 3.0 s");
        let whole = Course { whole: Some(part(9_000.0, 900.0)), end: DONE, ..Course::default() };
        assert_eq!(whole.verdict(), "slow answer: 10x what was expected (9.0 s, 900 ms expected)");
    }

    #[test]
    fn what_is_slow_by_little_or_for_a_moment_is_as_expected() {
        for it in [
            Course { gap: Some(part(59.0, 20.0)), ..usual() },
            Course { gap: Some(part(100.0, 20.0)), gaps: 5, ..usual() },
            Course { first_token: Some(part(400.0, 1.0)), ..usual() },
            Course { client_ms: 400.0, ..usual() },
        ] {
            assert_eq!(it.remark(), None, "{it:?}");
        }
    }

    #[test]
    fn held_retried_moved_and_failed_requests_are_told_apart() {
        let held =
            Course { line: part(2_300.0, 1_900.0), line_cause: Some(Cause::Knee), ..usual() };
        assert_eq!(held.remark(), Some(Remark::Held));
        assert!(
            held.verdict().starts_with("held in the line (2.3 s, 1.9 s expected): "),
            "{held:?}"
        );
        let retried = Course { tries_failed: 2, failed_ms: 2_000.0, ..usual() };
        assert_eq!(retried.remark(), Some(Remark::Retried));
        assert_eq!(retried.verdict(), "retried: 2 tries failed, which took 2.0 s");
        let moved = Course { moved: Some(LeaveCause::Drained), ..usual() };
        assert_eq!(moved.remark(), Some(Remark::Moved));
        assert_eq!(moved.verdict(), "as expected; its session moved: an operator empties that one");
        let usual_move = Course { moved: Some(LeaveCause::Rule), ..usual() };
        assert_eq!(usual_move.remark(), None, "under some policies every request moves");
        for end in [
            End::Refused { reason: "line_full" },
            End::Cut,
            End::Panicked,
            End::Answered { status: 503 },
        ] {
            assert_eq!(Course { end, ..retried }.remark(), Some(Remark::Failed), "{end:?}");
        }
        let bad = Course { end: End::Answered { status: 400 }, ..usual() };
        assert_eq!(bad.remark(), None, "the client's own mistake");
        let refused = Course { end: End::Refused { reason: "waited_out" }, ..held };
        assert!(refused.verdict().starts_with("refused: waited_out; held in the line"));
    }

    #[test]
    fn a_request_that_its_contract_refused_was_not_held_and_says_which_limit_it_was() {
        let (limit, unit) = ("requests", "requests");
        let over = OverContract { limit, unit, needed: 1.0, ..OverContract::default() };
        let end = End::Refused { reason: "over_contract" };
        let line_cause = Some(Cause::Contract);
        let refused = Course { line_cause, over: Some(over), end, ..Course::default() };
        assert_eq!((refused.is_held(), refused.remark()), (false, Some(Remark::Failed)));
        assert_eq!(refused.verdict(), format!("refused: over_contract: {over}"));
    }

    #[test]
    fn a_client_that_left_without_a_token_is_told_from_one_that_had_read_enough() {
        let left = Course { end: End::Cancelled, ..usual() };
        assert_eq!((left.remark(), left.verdict().as_str()), (None, "its client left"));
        let first_token = Some(part(30_000.0, 400.0));
        let end = End::Cancelled;
        let waited = Course { first_token, gap: None, gaps: 0, end, ..usual() };
        assert_eq!(waited.remark(), Some(Remark::Slow));
        assert_eq!(waited.verdict(), "its client left; no first token (30.0 s, 400 ms expected)");
    }
}
