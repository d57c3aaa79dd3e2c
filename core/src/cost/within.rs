//! What a replica gets done while answers keep the time between tokens that is promised. Its steps take longer the more
//! answers run at once, and while it reads a prompt no answer goes on: both grow with the requests that come.

use super::{StepTimes, StepWork};

/// The mean of what requests take.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MeanRequest {
    pub prefill_ms: f64,
    pub output_tokens: f64,
    /// While the answer is written.
    pub context_tokens: f64,
    pub cost_ms: f64,
}

impl MeanRequest {
    /// Takes in one more request, which counts `share` of the mean.
    pub fn learn(&mut self, newest: Self, share: f64) {
        for (mean, newest) in [
            (&mut self.prefill_ms, newest.prefill_ms),
            (&mut self.output_tokens, newest.output_tokens),
            (&mut self.context_tokens, newest.context_tokens),
            (&mut self.cost_ms, newest.cost_ms),
        ] {
            *mean += share * (newest - *mean);
        }
    }

    /// How many of these a replica answers in a millisecond with no more than `gap_ms` between tokens.
    pub fn per_ms_within(&self, times: &StepTimes, gap_ms: f64) -> f64 {
        let keeps = |per_ms: f64| {
            let answers = per_ms * self.output_tokens * gap_ms;
            let step_ms = times.step_ms(&StepWork::answers(answers, answers * self.context_tokens));
            step_ms <= gap_ms * (1.0 - per_ms * self.prefill_ms)
        };
        // One that does nothing but read.
        let (mut low, mut high) = (0.0, 1.0 / self.prefill_ms.max(1e-3));
        for _ in 0..40 {
            let middle = f64::midpoint(low, high);
            *(if keeps(middle) { &mut low } else { &mut high }) = middle;
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: MeanRequest = MeanRequest {
        prefill_ms: 100.0,
        output_tokens: 200.0,
        context_tokens: 1_000.0,
        cost_ms: 200.0,
    };

    #[test]
    fn a_shorter_gap_and_longer_prompts_leave_room_for_fewer() {
        let times = StepTimes::LLAMA_8B;
        let within = |it: MeanRequest, gap_ms| it.per_ms_within(&times, gap_ms);
        let (tight, loose) = (within(USUAL, 20.0), within(USUAL, 80.0));
        assert!(0.0 < tight && tight < loose && loose < 1.0 / USUAL.prefill_ms);
        let long = MeanRequest { prefill_ms: 400.0, ..USUAL };
        assert!(within(long, 80.0) < loose / 2.0);
    }

    #[test]
    fn a_promise_that_no_step_keeps_leaves_room_for_none() {
        assert!(USUAL.per_ms_within(&StepTimes::LLAMA_8B, 0.01) < 1e-9);
    }

    #[test]
    fn a_mean_follows_what_comes() {
        let mut mean = MeanRequest::default();
        (0..100).for_each(|_| mean.learn(USUAL, 0.1));
        assert!((mean.prefill_ms - 100.0).abs() < 0.1 && (mean.cost_ms - 200.0).abs() < 0.1);
    }
}
