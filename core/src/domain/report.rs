//! What an engine reports about itself when it is polled. A report ages: code that steers by it
//! must check when it was taken.

use super::Moment;

/// One reading of an engine's metrics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Report {
    pub taken_at: Moment,
    /// Requests in its line.
    pub waiting: u32,
    /// Requests in its batch.
    pub running: u32,
    /// Prompt tokens in its line that are not in its cache. vLLM does not tell.
    pub waiting_tokens: Option<u64>,
    /// Share of its KV memory in use, 0 to 1.
    pub kv_used_share: f64,
    /// Tokens its KV memory holds, where the engine tells.
    pub kv_tokens_max: Option<u64>,
}

/// No engine holds more than this of anything; what claims to is taken for this.
const COUNT_MAX: u32 = 1 << 20;
const KV_TOKENS_MAX: u64 = 1 << 40;

impl Report {
    /// Moves figures to where they make sense, so that they can be added up whatever an engine says.
    #[must_use]
    pub fn bounded(self) -> Self {
        let share = self.kv_used_share;
        Self {
            taken_at: self.taken_at,
            waiting: self.waiting.min(COUNT_MAX),
            running: self.running.min(COUNT_MAX),
            waiting_tokens: self.waiting_tokens.map(|it| it.min(KV_TOKENS_MAX)),
            kv_used_share: if share.is_nan() { 0.0 } else { share.clamp(0.0, 1.0) },
            kv_tokens_max: self.kv_tokens_max.map(|it| it.min(KV_TOKENS_MAX)),
        }
    }

    /// Tokens in its KV memory; zero where the engine does not tell how many fit.
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "no memory holds 2^53")]
    pub fn kv_used_tokens(&self) -> f64 {
        self.kv_used_share * self.kv_tokens_max.unwrap_or(0) as f64
    }
}
