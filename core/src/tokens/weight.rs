//! Bytes per token of one model: a ratio of sums, in which older prompts fade. Long prompts weigh more,
//! as they do in the cost, but none so much that one odd document sets the ratio. What cannot be text
//! at all teaches nothing: a prompt whose history is kept at the engine, a list of token ids.

/// How much of the sums is kept at each prompt: about the last hundred count.
const KEPT: f64 = 0.99;

/// The most tokens one prompt counts for.
const TOKENS_MAX: f64 = 8192.0;

/// Raw JSON of any text in any script is between these.
const PLAUSIBLE: std::ops::RangeInclusive<f64> = 1.0..=32.0;

#[derive(Clone, Debug)]
pub(super) struct Weight {
    bytes: f64,
    tokens: f64,
}

impl Default for Weight {
    /// English prose with its JSON around it; worth a prompt of a thousand tokens.
    fn default() -> Self {
        Self { bytes: 4096.0, tokens: 1024.0 }
    }
}

impl Weight {
    pub(super) fn bytes_per_token(&self) -> f64 {
        self.bytes / self.tokens
    }

    pub(super) fn learn(&mut self, bytes: u32, tokens: u32) {
        let (bytes, tokens) = (f64::from(bytes), f64::from(tokens));
        if !PLAUSIBLE.contains(&(bytes / tokens)) {
            return;
        }
        let share = (TOKENS_MAX / tokens).min(1.0);
        self.bytes = KEPT * self.bytes + share * bytes;
        self.tokens = KEPT * self.tokens + share * tokens;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn learned(prompts: impl Iterator<Item = (u32, u32)>) -> f64 {
        let mut weight = Weight::default();
        prompts.for_each(|(bytes, tokens)| weight.learn(bytes, tokens));
        weight.bytes_per_token()
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
        let odd = [(0, 100), (100, 0), (0, 0), (50, 100_000), (10_000_000, 1000)];
        assert!((learned(odd.into_iter()) - 4.0).abs() < 1e-9);
    }
}
