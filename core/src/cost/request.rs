//! What one request costs, in milliseconds of a busy replica: the unit in which load is booked. A
//! step is shared by many requests, so a request is charged what it adds to its steps, and an equal
//! share of the fixed cost of each step. That share is only known at the knee, where a well used
//! replica lives. Below the knee the same request takes longer and delays no other.

use super::{StepTimes, StepWork};

/// Milliseconds of a reference replica at its knee that make one model unit: such a replica makes
/// 100 of them in a minute.
pub const MODEL_UNIT_MS: f64 = 600.0;

/// The coefficients of the cost of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RequestCost {
    /// For each prompt token that is not cached.
    pub new_token_ms: f64,
    /// For each pair of a new token and one that it attends to.
    pub attention_ms: f64,
    /// For each token of the answer, whatever the context: a share of the step at the knee.
    pub output_token_ms: f64,
    /// For each token of the answer and each token of its context.
    pub output_context_ms: f64,
    /// For each image, beside its tokens.
    pub image_ms: f64,
    /// For each second of sound, beside its tokens.
    pub audio_second_ms: f64,
    /// For loading an adapter that is not there.
    pub adapter_ms: f64,
}

impl RequestCost {
    /// The assumed time to load an adapter when it was not measured: between a copy from the host's
    /// memory, some milliseconds, and from a disk, up to a second.
    pub const ADAPTER_MS_UNKNOWN: f64 = 100.0;

    /// Derives what requests cost from what steps take while `concurrency` answers are written at
    /// once.
    pub fn at_knee(times: &StepTimes, concurrency: u32) -> Self {
        let batch = f64::from(concurrency.max(1));
        let step = StepWork { new_tokens: batch, ..StepWork::default() };
        Self {
            new_token_ms: times.new_token_ms,
            attention_ms: times.attention_ms,
            output_token_ms: times.step_ms(&step) / batch,
            output_context_ms: times.attention_ms + times.context_ms,
            image_ms: 0.0,
            audio_second_ms: 0.0,
            adapter_ms: Self::ADAPTER_MS_UNKNOWN,
        }
    }

    /// Prices a whole request of text: `new` prompt tokens over `cached` ones, and an answer of
    /// `output` tokens over a mean context of `context`.
    pub fn cost_ms(&self, new: u32, cached: u32, output: u32, context: u32) -> f64 {
        self.prefill_ms(new, cached) + self.decode_ms(output, context)
    }

    /// Prices reading the prompt.
    pub fn prefill_ms(&self, new: u32, cached: u32) -> f64 {
        let (new, cached) = (f64::from(new), f64::from(cached));
        new * (self.new_token_ms + self.attention_ms * (cached + new / 2.0))
    }

    /// Prices writing the answer.
    pub fn decode_ms(&self, output: u32, context: u32) -> f64 {
        f64::from(output) * (self.output_token_ms + self.output_context_ms * f64::from(context))
    }

    /// Prices what is turned into tokens before the prompt is read.
    pub fn media_ms(&self, images: u32, audio_s: f64) -> f64 {
        f64::from(images) * self.image_ms + audio_s * self.audio_second_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: RequestCost = RequestCost {
        new_token_ms: 2.0,
        attention_ms: 0.5,
        output_token_ms: 3.0,
        output_context_ms: 0.25,
        image_ms: 7.0,
        audio_second_ms: 4.0,
        adapter_ms: 0.0,
    };

    #[test]
    fn a_request_costs_what_the_formula_says() {
        // 10·(2 + 0.5·(20 + 5)) = 145; 4·(3 + 0.25·32) = 44.
        assert!((COST.cost_ms(10, 20, 4, 32) - 189.0).abs() < 1e-12);
        assert!((COST.media_ms(2, 1.5) - 20.0).abs() < 1e-12);
    }

    #[test]
    fn answers_at_the_knee_pay_for_whole_steps_together() {
        let times = StepTimes::LLAMA_8B;
        let (batch, context) = (64, 1_000);
        let mut work = StepWork::default();
        for _ in 0..batch {
            work.add(1, context);
        }
        let paid = RequestCost::at_knee(&times, batch).decode_ms(batch, context);
        assert!((paid / times.step_ms(&work) - 1.0).abs() < 1e-3, "{paid}");
    }

    #[test]
    fn a_cached_prompt_costs_almost_nothing() {
        let cost = RequestCost::at_knee(&StepTimes::LLAMA_8B, 64);
        assert!(cost.prefill_ms(16, 8_000) < 0.01 * cost.prefill_ms(8_016, 0));
    }
}
