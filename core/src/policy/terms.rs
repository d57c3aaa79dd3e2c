//! What a replica would cost a request, term by term, for whoever asks why it was chosen. Made only
//! for decisions that somebody keeps; the others never see one.

/// The price of one replica for one request. Every term counts as it did in the decision.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Terms {
    /// Until those before it are computed.
    pub wait_ms: f64,
    /// Until its own prompt is computed, as far as it is not cached.
    pub prefill_ms: f64,
    /// To compute again what this placement pushes out of the cache.
    pub evict_ms: f64,
    /// What it costs those who are being answered there.
    pub slow_ms: f64,
    /// What was compared: all of them, by the replica's weight.
    pub price_ms: f64,
    /// Tokens of the prompt that are believed to be cached there.
    pub cached_tokens: u32,
}

impl Terms {
    /// Predicts the time to the first token.
    pub fn ttft_ms(&self) -> f64 {
        self.wait_ms + self.prefill_ms
    }
}
