//! Bytes per token: a ratio of sums, in which older prompts fade. Long prompts weigh more, as they
//! do in the cost, but a cap keeps one odd document from setting the ratio. What cannot be text at
//! all teaches nothing: a prompt whose history is kept at the engine, a list of token ids.

use super::possible::BYTES_PER_TOKEN_MAX;

/// How much of the sums is kept at each prompt: about the last hundred count.
const KEPT: f64 = 0.99;

/// The most tokens one prompt counts for.
const TOKENS_MAX: f64 = 8192.0;

/// The same where many are taught by it, most of them not its sender's.
const TOKENS_MAX_SHARED: f64 = 1024.0;

/// What others have shown is worth this many tokens of one's own.
const PRIOR_TOKENS: f64 = 1024.0;

/// What prompts of many senders may come to together. A ratio beyond it is believed of the sender only.
const SHARED: std::ops::RangeInclusive<f64> = 2.0..=8.0;

/// What one prompt may move that by, as a factor either way.
const STEP: f64 = 2.0;

/// Bytes per token of a model, as shown by all its senders.
#[derive(Clone, Debug)]
pub(super) struct BytesPerToken {
    bytes: f64,
    tokens: f64,
}

/// Bytes per token as shown by one sender. It leans on the model's figure while it has shown
/// little.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct OwnBytesPerToken {
    bytes: f64,
    tokens: f64,
}

impl Default for BytesPerToken {
    /// English prose with its JSON around it; worth a prompt of a thousand tokens.
    fn default() -> Self {
        Self { bytes: 4.0 * PRIOR_TOKENS, tokens: PRIOR_TOKENS }
    }
}

impl BytesPerToken {
    /// Bytes and tokens, older ones faded.
    pub(super) const fn sums(&self) -> (f64, f64) {
        (self.bytes, self.tokens)
    }

    /// Takes what came together elsewhere.
    pub(super) fn set_sums(&mut self, bytes: f64, tokens: f64) {
        self.tokens = tokens.clamp(1.0, TOKENS_MAX / (1.0 - KEPT));
        self.bytes = bytes.clamp(self.tokens, self.tokens * f64::from(BYTES_PER_TOKEN_MAX));
    }

    pub(super) fn bytes_per_token(&self) -> f64 {
        (self.bytes / self.tokens).clamp(*SHARED.start(), *SHARED.end())
    }

    pub(super) fn learn(&mut self, bytes: u32, tokens: u32) {
        if !is_text(bytes, tokens) {
            return;
        }
        let now = self.bytes_per_token();
        let shown = (f64::from(bytes) / f64::from(tokens)).clamp(now / STEP, now * STEP);
        let tokens = f64::from(tokens).min(TOKENS_MAX_SHARED);
        self.bytes = KEPT * self.bytes + tokens * shown;
        self.tokens = KEPT * self.tokens + tokens;
    }
}

impl OwnBytesPerToken {
    pub(super) const fn sums(&self) -> (f64, f64) {
        (self.bytes, self.tokens)
    }

    pub(super) fn set_sums(&mut self, bytes: f64, tokens: f64) {
        self.tokens = tokens.clamp(0.0, TOKENS_MAX / (1.0 - KEPT));
        self.bytes = bytes.clamp(self.tokens, self.tokens * f64::from(BYTES_PER_TOKEN_MAX));
    }

    pub(super) fn bytes_per_token(&self, of_all: &BytesPerToken) -> f64 {
        let prior_bytes = PRIOR_TOKENS * of_all.bytes_per_token();
        (self.bytes + prior_bytes) / (self.tokens + PRIOR_TOKENS)
    }

    pub(super) fn learn(&mut self, bytes: u32, tokens: u32) {
        if !is_text(bytes, tokens) {
            return;
        }
        let (bytes, tokens) = (f64::from(bytes), f64::from(tokens));
        let share = (TOKENS_MAX / tokens).min(1.0);
        self.bytes = KEPT * self.bytes + share * bytes;
        self.tokens = KEPT * self.tokens + share * tokens;
    }
}

/// Tells whether `bytes` of text in any script can be `tokens` tokens.
pub(super) fn is_text(bytes: u32, tokens: u32) -> bool {
    let most = tokens.saturating_mul(BYTES_PER_TOKEN_MAX);
    0 < tokens && (tokens..=most).contains(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(prompts: impl Iterator<Item = (u32, u32)>) -> f64 {
        let mut weight = OwnBytesPerToken::default();
        prompts.for_each(|(bytes, tokens)| weight.learn(bytes, tokens));
        weight.bytes_per_token(&BytesPerToken::default())
    }

    #[test]
    fn the_ratio_comes_to_what_prompts_show_and_follows_when_they_change() {
        assert!((learned(std::iter::empty()) - 4.0).abs() < 1e-9);
        let first = || (0..50).map(|it| (3000 + 30 * it, 1000 + 10 * it));
        assert!((learned(first()) - 3.0).abs() < 0.05);
        let after = (0..300).map(|_| (10_000, 2000));
        assert!((learned(first().chain(after)) - 5.0).abs() < 0.15);
    }

    #[test]
    fn one_odd_prompt_does_not_set_the_ratio() {
        let usual = || (0..100).map(|_| (4000, 1000));
        let odd = std::iter::once((20_000_000, 1_000_000));
        let ratio = learned(usual().chain(odd));
        assert!((4.0..6.5).contains(&ratio), "{ratio}");
    }

    #[test]
    fn what_is_no_text_teaches_nothing() {
        let odd = [(0, 100), (100, 0), (0, 0), (50, 100_000), (10_000_000, 1000), (9, u32::MAX)];
        assert!((learned(odd.into_iter()) - 4.0).abs() < 1e-9);
        let mut of_all = BytesPerToken::default();
        for (bytes, tokens) in odd {
            of_all.learn(bytes, tokens);
        }
        assert!((of_all.bytes_per_token() - 4.0).abs() < 1e-9);
    }

    #[test]
    fn what_all_learn_moves_by_steps_and_stays_where_text_is() {
        for (bytes, tokens) in [(32_000_000, 1_000_000), (1_000_000, 1_000_000)] {
            let mut of_all = BytesPerToken::default();
            of_all.learn(bytes, tokens);
            let first = of_all.bytes_per_token();
            assert!((2.9..=6.1).contains(&first), "{first}");
            (0..1_000).for_each(|_| of_all.learn(bytes, tokens));
            assert!((2.0..=8.0).contains(&of_all.bytes_per_token()));
        }
        let mut of_all = BytesPerToken::default();
        (0..300).for_each(|_| of_all.learn(3_000, 1_000));
        assert!((of_all.bytes_per_token() - 3.0).abs() < 0.1, "{}", of_all.bytes_per_token());
    }
}
