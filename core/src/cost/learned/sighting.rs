//! One time that was seen from outside, and what the engine worked through in it. Whether it is a first
//! token, a run of gaps or a whole answer, it is a sum of steps: some that only wrote answers, some that
//! also read a prompt. So one formula predicts all of them, and it is the one that prices requests.

use super::super::StepTimes;

/// The coefficients: of a step, and what an answer's way to the client adds.
pub(super) const TERMS: usize = 5;

pub(super) type Vector = [f64; TERMS];

/// What kind of time was seen. Each kind is off in its own way, so each is judged by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// From when a prompt's turn came to its first token.
    FirstToken,
    /// Between tokens of an answer.
    Gaps,
    /// From when it was sent to the end of an answer that came in one piece.
    Whole,
}

impl Kind {
    pub const ALL: [Self; 3] = [Self::FirstToken, Self::Gaps, Self::Whole];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FirstToken => "first_token",
            Self::Gaps => "gaps",
            Self::Whole => "whole",
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Self::FirstToken => 0,
            Self::Gaps => 1,
            Self::Whole => 2,
        }
    }
}

/// What an engine did in a time that was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sighting {
    /// Steps in which only answers were written.
    pub steps: f64,
    /// Answers in each step.
    pub batch: f64,
    /// Steps in which prompts were read.
    pub reading_steps: f64,
    /// New tokens in each of those, those of answers included.
    pub reading_tokens: f64,
    /// Pairs of attending tokens, over all steps.
    pub attention_pairs: f64,
    /// Tokens read from the KV cache, over all steps.
    pub context_tokens: f64,
    /// Answers whose way to the client is part of the time.
    pub answers: f64,
    pub ms: f64,
}

impl Sighting {
    /// Tells whether it is a time and work that can be, whatever a replica or a clock said.
    pub(super) fn is_sound(&self) -> bool {
        let work = [
            self.steps,
            self.batch,
            self.reading_steps,
            self.reading_tokens,
            self.attention_pairs,
            self.context_tokens,
            self.answers,
        ];
        let does_something = 0.0 < self.steps + self.reading_steps;
        let is_time = self.ms.is_finite() && 0.0 < self.ms;
        does_something && is_time && work.iter().all(|it| it.is_finite() && 0.0 <= *it)
    }

    /// Predicts how long it should have taken.
    pub(super) fn predict_ms(&self, terms: &Vector) -> f64 {
        self.parts(terms).iter().sum()
    }

    /// Says what each term adds to the prediction. The two sides of a step's right angle share it by their
    /// squares, which is also how fast it grows with each.
    pub(super) fn parts(&self, terms: &Vector) -> Vector {
        let [floor, new_token, attention, context, overhead] = *terms;
        let side = |steps: f64, tokens: f64| {
            let linear = new_token * tokens;
            let bend = floor.hypot(linear).max(f64::MIN_POSITIVE);
            (steps * floor * floor / bend, steps * linear * linear / bend)
        };
        let writing = side(self.steps, self.batch);
        let reading = side(self.reading_steps, self.reading_tokens);
        [
            writing.0 + reading.0,
            writing.1 + reading.1,
            attention * self.attention_pairs,
            context * self.context_tokens,
            overhead * self.answers,
        ]
    }
}

pub(super) fn terms_of(step: &StepTimes, overhead_ms: f64) -> Vector {
    [step.floor_ms, step.new_token_ms, step.attention_ms, step.context_ms, overhead_ms]
}

pub(super) const fn steps_of(terms: &Vector) -> StepTimes {
    let [floor_ms, new_token_ms, attention_ms, context_ms, _] = *terms;
    StepTimes { floor_ms, new_token_ms, attention_ms, context_ms }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::StepWork;

    #[test]
    fn a_sighting_of_one_step_is_predicted_as_that_step() {
        let (step, work) = (StepTimes::LLAMA_8B, StepWork::of(900, 3_000));
        let sighting = Sighting {
            reading_steps: 1.0,
            reading_tokens: work.new_tokens,
            attention_pairs: work.attention_pairs,
            context_tokens: work.context_tokens,
            answers: 1.0,
            ms: 1.0,
            ..Sighting::default()
        };
        let found = sighting.predict_ms(&terms_of(&step, 7.0));
        assert!((found - step.step_ms(&work) - 7.0).abs() < 1e-9, "{found}");
        assert_eq!(steps_of(&terms_of(&step, 7.0)), step);
    }

    #[test]
    fn what_cannot_be_is_not_sound() {
        let good = Sighting { steps: 1.0, batch: 2.0, ms: 5.0, ..Sighting::default() };
        assert!(good.is_sound());
        for bad in [
            Sighting { ms: 0.0, ..good },
            Sighting { ms: f64::NAN, ..good },
            Sighting { batch: -1.0, ..good },
            Sighting { attention_pairs: f64::INFINITY, ..good },
            Sighting { steps: 0.0, ..good },
        ] {
            assert!(!bad.is_sound(), "{bad:?}");
        }
    }
}
