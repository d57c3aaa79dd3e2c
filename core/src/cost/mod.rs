//! What a step of an engine costs in milliseconds, and from that a request. One formula for prefill,
//! decode and any mixture of them, because engines mix them: a step is a set of slices, each some new
//! tokens of a sequence over those already in its KV cache. The coefficients are fitted on
//! measurements (`fit`), and a guess is marked as one (`builtin`); a table of interpolated timings
//! was not used because it says nothing about mixtures.

mod builtin;
mod coefficients;
mod fit;
mod hardware;
mod knee;
pub mod learned;
mod request;
mod solve;
mod table;
mod within;

pub use builtin::{GPUS, H200_MEMORY_TB_S, built_in, built_in_on, from_table, guess};
pub use coefficients::{BookError, Coefficients, CostBook, Origin};
pub use fit::{ErrorQuantiles, Fit, fit};
pub use hardware::Hardware;
pub use knee::{KneePoint, Mix, Rung, predict_rate, still_grows};
pub use request::{MODEL_UNIT_MS, RequestCost};
pub use table::{StepSample, TableError, read_samples};
pub use within::MeanRequest;

use serde::{Deserialize, Serialize};

/// Step times of one NVIDIA H200, as text; see `core/data/README.md`.
pub const H200_TABLE: &str = include_str!("../../data/h200-decoder.csv");

/// What one step works through, summed over its slices.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepWork {
    /// Tokens computed in this step.
    pub new_tokens: f64,
    /// Pairs of a new token and a token it attends to: Σ new · (cached + new / 2).
    pub attention_pairs: f64,
    /// Tokens whose keys and values are read from the cache: Σ cached.
    pub context_tokens: f64,
}

impl StepWork {
    /// One slice alone.
    pub fn of(new: u32, cached: u32) -> Self {
        let mut work = Self::default();
        work.add(new, cached);
        work
    }

    /// One token more for each of `count` answers, whose contexts are `context_tokens` in all.
    pub const fn answers(count: f64, context_tokens: f64) -> Self {
        Self { new_tokens: count, attention_pairs: context_tokens, context_tokens }
    }

    /// Adds one slice: `new` tokens of a sequence over the `cached` ones before them. A decode is
    /// the slice with one new token.
    pub fn add(&mut self, new: u32, cached: u32) {
        let (new, cached) = (f64::from(new), f64::from(cached));
        self.new_tokens += new;
        self.attention_pairs += new * (cached + new / 2.0);
        self.context_tokens += cached;
    }
}

/// The coefficients of one model on one kind of hardware.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepTimes {
    /// What reading the weights once takes: the shortest step there is.
    pub floor_ms: f64,
    /// What one new token adds while the step is bound by arithmetic.
    pub new_token_ms: f64,
    /// What one pair of attending tokens adds.
    pub attention_ms: f64,
    /// What reading one token from the KV cache adds.
    pub context_ms: f64,
}

impl StepTimes {
    /// Llama 3 8B in bf16 on one H200, fitted on [`H200_TABLE`].
    pub const LLAMA_8B: Self = Self {
        floor_ms: 5.5276,
        new_token_ms: 2.4351e-2,
        attention_ms: 1.5422e-6,
        context_ms: 2.9615e-5,
    };

    /// Llama 3 70B in bf16 without tensor parallelism, fitted on [`H200_TABLE`].
    pub const LLAMA_70B: Self = Self {
        floor_ms: 37.649,
        new_token_ms: 0.215_32,
        attention_ms: 7.9809e-6,
        context_ms: 6.9910e-5,
    };

    /// Predicts how long a step takes. Reading the weights and computing with them overlap, so the
    /// two meet as the sides of a right angle: the longer one rules, and the bend between is smooth.
    pub fn step_ms(&self, work: &StepWork) -> f64 {
        self.floor_ms.hypot(self.new_token_ms * work.new_tokens)
            + self.attention_ms * work.attention_pairs
            + self.context_ms * work.context_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMES: StepTimes =
        StepTimes { floor_ms: 3.0, new_token_ms: 0.5, attention_ms: 0.25, context_ms: 2.0 };

    fn work(slices: &[(u32, u32)]) -> StepWork {
        let mut work = StepWork::default();
        for &(new, cached) in slices {
            work.add(new, cached);
        }
        work
    }

    #[test]
    fn an_empty_step_takes_the_floor() {
        assert!((TIMES.step_ms(&work(&[])) - 3.0).abs() < 1e-12);
    }

    #[test]
    fn slices_of_one_step_share_the_floor() {
        // hypot(3, 0.5 · 8) = 5; pairs 4·(10 + 2) + 4·(0 + 2) = 56; context 10.
        let ms = TIMES.step_ms(&work(&[(4, 10), (4, 0)]));
        assert!((ms - (5.0 + 14.0 + 20.0)).abs() < 1e-12, "{ms}");
    }
}
