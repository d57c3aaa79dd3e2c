//! The moments of one request's life, each as the time since its arrival: what `explain` and traces tell of it.
//! Written for every request, so it allocates nothing for one that is sent once and answered.

use std::sync::Arc;
use std::time::Duration;

use cleave_core::brain::{Course, End, Expected, Part, Waited};
use cleave_core::domain::span_ms;

use crate::replicas::Origin;

use super::explanations::{KeptLife, KeptTry};
use super::pool::Member;

#[derive(Debug, Default)]
pub(super) struct Life {
    /// When it first asked for a place, and when the verdict came.
    asked: Option<(Duration, Duration)>,
    /// What is known of its wait, if it was held in the line and nothing else is kept of it.
    pub(super) held: Option<Box<Waited>>,
    /// Tries that failed.
    past: Vec<TryTimes>,
    current: Option<TryTimes>,
    /// When the longest pause in its answer began, and how long it was.
    pub(super) gap_longest: (Duration, Duration),
    /// How long its client did not take what was there for it.
    client: Duration,
    /// When its last byte came from the replica.
    answered: Option<Duration>,
}

/// One time that it was sent.
#[derive(Clone, Debug)]
pub(super) struct TryTimes {
    pub(super) member: Arc<Member>,
    pub(super) placed: Duration,
    /// When the head of the answer came.
    pub(super) head: Option<Duration>,
    pub(super) first_token: Option<Duration>,
    /// When it failed.
    pub(super) ended: Option<Duration>,
    pub(super) failure: Option<&'static str>,
    pub(super) expected: Expected,
}

/// What the end of a request shows beside its moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub(super) total: Duration,
    /// Tokens of the answer.
    pub(super) tokens: u32,
    pub(super) stream: bool,
    pub(super) wait_expected: Duration,
    pub(super) end: End,
}

impl Life {
    /// Notes the verdict on a request that asked for a place.
    pub(super) fn on_placed(
        &mut self,
        (asked, placed): (Duration, Duration),
        expected: Option<Expected>,
        member: Option<&Arc<Member>>,
    ) {
        self.asked.get_or_insert((asked, placed));
        self.current = member.map(|it| TryTimes {
            member: Arc::clone(it),
            placed,
            head: None,
            first_token: None,
            ended: None,
            failure: None,
            expected: expected.unwrap_or_default(),
        });
    }

    /// Notes that the try failed.
    pub(super) fn on_failed(&mut self, at: Duration, failure: &'static str) {
        if let Some(mut it) = self.current.take() {
            (it.ended, it.failure) = (Some(at), Some(failure));
            self.past.push(it);
        }
    }

    pub(super) fn on_head(&mut self, at: Duration) {
        if let Some(it) = &mut self.current {
            it.head = Some(at);
        }
    }

    pub(super) fn on_first_token(&mut self, at: Duration) {
        if let Some(it) = &mut self.current {
            it.first_token.get_or_insert(at);
        }
    }

    /// Notes the time between two pieces of the answer; `awaited` says that it was the replica that took it, and
    /// not the client. `now` is asked for only where it matters.
    pub(super) fn on_gap(&mut self, gap: Duration, awaited: bool, now: impl Fn() -> Duration) {
        if !awaited {
            self.client += gap;
        } else if self.gap_longest.1 < gap {
            self.gap_longest = (now().saturating_sub(gap), gap);
        }
    }

    pub(super) const fn on_answered(&mut self, at: Duration) {
        self.answered = Some(at);
    }

    /// Lists every time that it was sent.
    pub(super) fn tries(&self) -> impl Iterator<Item = &TryTimes> {
        self.past.iter().chain(&self.current)
    }

    pub(super) const fn current(&self) -> Option<&TryTimes> {
        self.current.as_ref()
    }

    /// When it first asked for a place, and when the verdict came.
    pub(super) const fn asked(&self) -> Option<(Duration, Duration)> {
        self.asked
    }

    pub(super) fn first_token(&self) -> Option<Duration> {
        self.tries().find_map(|it| it.first_token)
    }

    /// When the answer was there, or the request ended without one.
    pub(super) fn answered_by(&self, total: Duration) -> Duration {
        self.answered.unwrap_or(total).min(total)
    }

    /// Writes it down, with how it went; `home` is where its session was before, if that was another replica.
    pub(super) fn keep(&self, course: Course, total: Duration, home: Option<&Origin>) -> KeptLife {
        let has_moved = |it: &TryTimes| it.expected.moved_from.is_some();
        let tries = self.tries().map(|it| KeptTry {
            replica: it.member.origin.to_string(),
            home: home.filter(|_| has_moved(it)).map(ToString::to_string),
            placed: it.placed,
            head: it.head,
            failed: it.ended.zip(it.failure),
            expected: it.expected,
        });
        KeptLife {
            course,
            asked: self.asked.unwrap_or_default().0,
            tries: tries.collect(),
            first_token: self.first_token(),
            gap_longest_at: self.gap_longest.0,
            answered: self.answered_by(total),
        }
    }

    /// Puts each part beside what was expected of it.
    pub(super) fn course(&self, ended: &Ended) -> Course {
        let (asked, placed) = self.asked.unwrap_or((ended.total, ended.total));
        let part = |took: Duration, expected_ms: f64| Part { took_ms: span_ms(took), expected_ms };
        let sent_last = self.current.as_ref().map_or(ended.total, |it| it.placed);
        let failed = if self.past.is_empty() { placed } else { sent_last };
        let moved = self.tries().find_map(|it| it.expected.moved).map(|it| it.cause);
        let mut course = Course {
            intake_ms: span_ms(asked),
            line: part(placed.saturating_sub(asked), span_ms(ended.wait_expected)),
            tries_failed: u32::try_from(self.past.len()).unwrap_or(u32::MAX),
            failed_ms: span_ms(failed.saturating_sub(placed)),
            client_ms: span_ms(self.client),
            moved,
            end: ended.end,
            ..Course::default()
        };
        let Some(it) = &self.current else { return course };
        let answered = self.answered_by(ended.total);
        let Expected { ttft_ms, gap_ms, .. } = it.expected;
        if !ended.stream && it.head.is_some() {
            let tokens = f64::from(ended.tokens);
            course.whole =
                Some(part(answered.saturating_sub(it.placed), ttft_ms + tokens * gap_ms));
            return course;
        }
        // Without a first token it took until the end and still was not there.
        let came = it.first_token.unwrap_or(answered);
        course.first_token = Some(part(came.saturating_sub(it.placed), ttft_ms));
        let gaps = ended.tokens.saturating_sub(1);
        let is_resumed = self.past.iter().any(|it| it.first_token.is_some());
        if let (Some(first), true) = (it.first_token, 0 < gaps && !is_resumed) {
            let wrote = answered.saturating_sub(first).saturating_sub(self.client);
            course.gap = Some(part(wrote / gaps, gap_ms));
            course.gaps = gaps;
        }
        course.gap_longest_ms = span_ms(self.gap_longest.1);
        course
    }
}
