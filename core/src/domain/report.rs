//! What an engine says of itself when it is asked. It is as old as it is: whoever steers by it must
//! look at when it was taken.

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
