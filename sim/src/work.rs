//! What a request costs, in milliseconds of a busy replica: the unit in which load, fairness and
//! bounds are counted. A step's floor is left out, because a busy replica shares it among its whole
//! batch. So these are what a request adds, never what it would take alone (that is [`alone_ms`]).

use cleave_core::cost::{StepTimes, StepWork};

/// What computing `new` tokens over `cached` ones adds.
pub fn prefill_ms(times: &StepTimes, new: u32, cached: u32) -> f64 {
    let mut work = StepWork::default();
    work.add(new, cached);
    times.new_token_ms * work.new_tokens
        + times.attention_ms * work.attention_pairs
        + times.context_ms * work.context_tokens
}

/// What answering with `output` tokens after a prompt adds. The first of them comes with the prefill.
pub fn decode_ms(times: &StepTimes, prompt: u32, output: u32) -> f64 {
    let steps = f64::from(output.saturating_sub(1));
    let context = f64::from(prompt) + steps / 2.0;
    steps * (times.new_token_ms + (times.attention_ms + times.context_ms) * context)
}

/// How long the first token takes on a replica that has nothing else to do: chunks of at most
/// `batched_tokens_max`, each a step of its own.
pub fn alone_ms(times: &StepTimes, batched_tokens_max: u32, new: u32, cached: u32) -> f64 {
    let (mut left, mut before, mut total) = (new.max(1), cached, 0.0);
    while 0 < left {
        let chunk = left.min(batched_tokens_max.max(1));
        let mut work = StepWork::default();
        work.add(chunk, before);
        total += times.step_ms(&work);
        left -= chunk;
        before += chunk;
    }
    total
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_adds_no_more_than_it_takes_alone() {
        let times = StepTimes::LLAMA_8B;
        for (new, cached) in [(1, 0), (100, 5_000), (20_000, 0), (20_000, 60_000)] {
            let (added, alone) =
                (prefill_ms(&times, new, cached), alone_ms(&times, u32::MAX, new, cached));
            assert!(added <= alone, "{new} over {cached}: {added} of {alone}");
        }
    }
}
