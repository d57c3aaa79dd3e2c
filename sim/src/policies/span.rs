//! How long a piece of work takes, for the rules that weigh in time. They know it from an offline
//! regression on one engine; ours is the one the simulated engines are made from, so these rules
//! are as well informed as their authors meant them to be, on that kind of hardware.

use cleave_core::cost::{StepTimes, StepWork};

/// What the regression was made on.
const TIMES: StepTimes = StepTimes::LLAMA_8B;

/// Predicts how long computing `new` prompt tokens over `cached` ones takes.
pub(super) fn prefill_ms(new: u32, cached: u32) -> f64 {
    if new == 0 { 0.0 } else { step_ms(new, cached) }
}

/// Predicts how long one token of an answer takes over `context` tokens, alone in its batch.
pub(super) fn decode_ms(context: u32) -> f64 {
    step_ms(1, context)
}

/// Rounds to a whole number, so that sums can be taken back exactly.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from float to int, `as` saturates, and spans are not negative"
)]
pub(super) fn whole_us(ms: f64) -> u64 {
    (ms * 1e3).round() as u64
}

/// Makes a float of microseconds, in milliseconds.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "2^53 us are 285 years")]
pub(super) fn ms_of(us: u64) -> f64 {
    us as f64 / 1e3
}

fn step_ms(new: u32, cached: u32) -> f64 {
    let mut work = StepWork::default();
    work.add(new, cached);
    TIMES.step_ms(&work)
}
