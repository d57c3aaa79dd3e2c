//! The life of a request from its arrival to its end, stage by stage, each beside what was expected of it.

use std::time::Duration;

use cleave_core::brain::{Course, End, Part};
use cleave_core::domain::span_ms;
use serde::{Deserialize, Serialize};

use crate::proxy::{KeptDecision, KeptLife, KeptTry};

/// One stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stage {
    /// When it began, after the arrival.
    pub at_ms: f64,
    /// `arrival`, `line`, `try`, `failure`, `answer`, `first_token`, `gaps`, `longest_gap` or `end`.
    pub stage: String,
    pub took_ms: Option<f64>,
    pub expected_ms: Option<f64>,
    pub detail: String,
}

impl Stage {
    fn new(at: Duration, stage: &str, detail: impl Into<String>) -> Self {
        let (took_ms, expected_ms) = (None, None);
        Self {
            at_ms: span_ms(at),
            stage: stage.to_owned(),
            took_ms,
            expected_ms,
            detail: detail.into(),
        }
    }

    fn took(self, part: Part) -> Self {
        Self { took_ms: Some(part.took_ms), expected_ms: Some(part.expected_ms), ..self }
    }
}

/// Lists the stages of a request that is over.
pub(super) fn stages(kept: &KeptDecision, life: &KeptLife) -> Vec<Stage> {
    let course = &life.course;
    let arrival = Stage::new(Duration::ZERO, "arrival", "its body came");
    let mut all = vec![Stage { took_ms: Some(course.intake_ms), ..arrival }];
    let cause = course.line_cause.map_or("there was room at once", |it| it.sentence());
    all.push(Stage::new(life.asked, "line", cause).took(course.line));
    for it in &life.tries {
        tried(it, &mut all);
    }
    if let Some(refusal) = kept.refusal {
        let at = life.tries.last().and_then(|it| it.failed).map(|it| it.0);
        let waited = Duration::try_from_secs_f64(course.line.took_ms / 1e3).unwrap_or_default();
        all.push(Stage::new(at.unwrap_or(life.asked + waited), "refusal", refusal));
    }
    answered(life, &mut all);
    let total = kept.came.map_or(life.answered, |it| it.total);
    let end = Stage::new(total, "end", ending(course.end));
    let expected_ms = expected_ms(life, kept.came.and_then(|it| it.usage.output));
    all.push(Stage { took_ms: Some(span_ms(total)), expected_ms, ..end });
    all
}

/// Adds one time that it was sent.
fn tried(it: &KeptTry, all: &mut Vec<Stage>) {
    all.push(Stage::new(it.placed, "try", it.replica.as_str()));
    if let Some((at, word)) = it.failed {
        let took_ms = Some(span_ms(at.saturating_sub(it.placed)));
        all.push(Stage { took_ms, ..Stage::new(at, "failure", word) });
    } else if let Some(head) = it.head {
        let took_ms = Some(span_ms(head.saturating_sub(it.placed)));
        all.push(Stage { took_ms, ..Stage::new(head, "answer", "its head came") });
    }
}

/// Adds what came of the answer.
fn answered(life: &KeptLife, all: &mut Vec<Stage>) {
    let Course { first_token, gap, gaps, gap_longest_ms, client_ms, .. } = life.course;
    if let (Some(part), Some(at)) = (first_token, life.first_token) {
        all.push(Stage::new(at, "first_token", "since it was sent").took(part));
    }
    let begun = life.first_token.unwrap_or(life.answered);
    if let Some(part) = gap {
        let words = format!("between two of about {} tokens, on the average", gaps + 1);
        all.push(Stage::new(begun, "gaps", words).took(part));
    }
    if 0.0 < gap_longest_ms {
        let usual = gap.map(|it| it.expected_ms);
        let longest = Stage::new(life.gap_longest_at, "longest_gap", "nothing came");
        all.push(Stage { took_ms: Some(gap_longest_ms), expected_ms: usual, ..longest });
    }
    if 1.0 <= client_ms {
        let reader = Stage::new(begun, "reader", "what was there was not taken");
        all.push(Stage { took_ms: Some(client_ms), ..reader });
    }
}

/// Says how long it should have taken in all: as if it had been sent once, with as many tokens as came.
fn expected_ms(life: &KeptLife, output: Option<u32>) -> Option<f64> {
    let expected = life.tries.last()?.expected;
    let streamed = (0 < life.course.gaps).then_some(life.course.gaps + 1);
    let tokens = output.or(streamed).or(expected.output_tokens).unwrap_or(0);
    let answer_ms = f64::from(tokens.saturating_sub(1)) * expected.gap_ms;
    Some(life.course.line.expected_ms + expected.ttft_ms + answer_ms)
}

fn ending(end: End) -> String {
    match end {
        End::Running => "it is still running".to_owned(),
        End::Answered { status } => format!("status {status}"),
        End::Refused { reason } => format!("refused: {reason}"),
        End::Cut => "its replica stopped in the middle of the answer".to_owned(),
        End::Cancelled => "its client left".to_owned(),
        End::Panicked => "a mistake of the router".to_owned(),
    }
}
