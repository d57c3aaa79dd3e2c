//! What a rule that weighs in time is shown of a replica, and what it can show of its reasons. The
//! figures are the brain's: what all routers have booked there, checked against what the engine says,
//! in the times of the replica's own hardware at its own pace. A rule that kept an account of its own
//! would know neither other routers nor other hardware.

use crate::cost::{RequestCost, StepTimes, StepWork};
use crate::domain::{ReplicaId, float};

/// No replica is taken to read prompts for more than this share of its time: answers go on, slowly.
const READING_SHARE_MAX: f64 = 0.95;

/// What is booked on one replica, and what work takes there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LoadModel {
    /// Reading the prompts that are ahead of the next one.
    pub wait_ms: f64,
    /// The part of that which routers have booked; the rest is what the engine says beyond it.
    pub booked_wait_ms: f64,
    /// Answers that are being written.
    pub running: f64,
    /// The share of its time that goes to prompts, and not to answers.
    pub reading_share: f64,
    /// Tokens in KV memory, as if no two requests shared any.
    pub kv_tokens: u64,
    /// How many times as long as its hardware promises things take; 1 for most. Times that these
    /// books give have it in them already.
    pub pace: f64,
    pub step: StepTimes,
    pub cost: RequestCost,
    /// What an answer's way to the client adds to its first token.
    pub overhead_ms: f64,
}

impl LoadModel {
    /// Predicts how long reading `new` prompt tokens over `cached` ones takes, with no request ahead.
    pub fn prefill_ms(&self, new: u32, cached: u32) -> f64 {
        self.pace * self.step.step_ms(&StepWork::of(new, cached))
    }

    /// Predicts what one more sequence of that context adds to every step.
    pub fn sequence_ms(&self, context: u32) -> f64 {
        self.pace * (self.step.new_token_ms + self.step.context_ms * f64::from(context))
    }

    /// Predicts the time between two tokens of an answer: a step of all answers, and its share of the
    /// prompts that are read in between.
    pub fn gap_ms(&self) -> f64 {
        let step = StepWork::answers(self.running, float(self.kv_tokens));
        self.pace * self.step.step_ms(&step) / (1.0 - self.reading_share.min(READING_SHARE_MAX))
    }

    /// Predicts the time to the first token.
    pub fn ttft_ms(&self, new: u32, cached: u32) -> f64 {
        self.wait_ms + self.prefill_ms(new, cached) + self.residual_ms() + self.overhead_ms
    }

    /// Predicts how long the step that is under way still takes: half of one, if there is one.
    fn residual_ms(&self) -> f64 {
        if self.running < 1.0 {
            return 0.0;
        }
        let step = StepWork { new_tokens: self.running, ..StepWork::default() };
        self.pace * self.step.step_ms(&step) / 2.0
    }
}

/// Nothing is booked and nothing is known but the reference hardware.
impl Default for LoadModel {
    fn default() -> Self {
        let step = StepTimes::LLAMA_8B;
        Self {
            wait_ms: 0.0,
            booked_wait_ms: 0.0,
            running: 0.0,
            reading_share: 0.0,
            kv_tokens: 0,
            pace: 1.0,
            step,
            cost: RequestCost::at_knee(&step, 1),
            overhead_ms: 0.0,
        }
    }
}

/// How a rule weighs one candidate, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    pub replica: ReplicaId,
    /// Prompt tokens believed to be in its cache.
    pub cached_tokens: u32,
    /// The time to the first token, as predicted.
    pub ttft_ms: f64,
    /// Reading the prompts ahead of this one.
    pub wait_ms: f64,
    /// Reading what is new of this prompt, and loading its adapter.
    pub prefill_ms: f64,
    /// What is added for a long time to the first token, beyond its length.
    pub late_ms: f64,
    /// Computing again what this placement pushes out of the cache, as far as it is asked for again.
    pub evict_ms: f64,
    /// How much later requests are delayed by this one's prefill.
    pub crowd_ms: f64,
    /// How much the answers being written there are slowed, as time to the first token.
    pub slow_ms: f64,
    /// What the replica's weight adds.
    pub weight_ms: f64,
    /// What was compared: the terms from `wait_ms` to `weight_ms` added up. The lowest wins.
    pub price_ms: f64,
}

impl Terms {
    /// Adds up the terms of the price.
    pub fn sum_ms(&self) -> f64 {
        self.wait_ms
            + self.prefill_ms
            + self.late_ms
            + self.evict_ms
            + self.crowd_ms
            + self.slow_ms
            + self.weight_ms
    }

    /// Rounds every term to a tenth of a millisecond, and gives as the price what these add up to: a reader who
    /// adds what is shown finds what is shown.
    #[must_use]
    pub fn rounded(&self) -> Self {
        let tenths = |ms: f64| (ms * 10.0).round() / 10.0;
        let mut shown = Self {
            ttft_ms: tenths(self.ttft_ms),
            wait_ms: tenths(self.wait_ms),
            prefill_ms: tenths(self.prefill_ms),
            late_ms: tenths(self.late_ms),
            evict_ms: tenths(self.evict_ms),
            crowd_ms: tenths(self.crowd_ms),
            slow_ms: tenths(self.slow_ms),
            weight_ms: tenths(self.weight_ms),
            ..*self
        };
        shown.price_ms = tenths(shown.sum_ms());
        shown
    }
}
