//! Texts of a wanted length that no replica has seen before: each begins with a name of its own, so
//! that not even its first block can be in a cache. The words are common ones, because an engine's time
//! depends on tokens, not on sense.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

const WORDS: [&str; 32] = [
    "about", "after", "again", "before", "between", "city", "could", "every", "family", "first",
    "found", "great", "house", "large", "later", "little", "money", "never", "number", "other",
    "people", "place", "point", "right", "small", "story", "table", "think", "under", "water",
    "where", "world",
];
/// Until the replica has said how it counts.
const BYTES_PER_TOKEN: f64 = 5.0;

/// Writes prompts.
#[derive(Debug)]
pub(super) struct Prompts {
    rng: Pcg64Mcg,
    bytes_per_token: f64,
}

impl Prompts {
    /// Begins texts that those of another seed do not repeat.
    pub(super) fn new(seed: u64) -> Self {
        Self { rng: Pcg64Mcg::seed_from_u64(seed), bytes_per_token: BYTES_PER_TOKEN }
    }

    /// Learns how long a token is from a prompt that was counted.
    pub(super) fn learn(&mut self, prompt: &str, tokens: u32) {
        let bytes = f64::from(u32::try_from(prompt.len()).unwrap_or(u32::MAX));
        self.bytes_per_token = (bytes / f64::from(tokens.max(1))).clamp(0.5, 20.0);
    }

    /// Writes a new text of about `tokens` tokens.
    pub(super) fn write(&mut self, tokens: u32) -> String {
        let mut text = format!("{:016x}", self.rng.random::<u64>());
        while text.len() < self.bytes(tokens) {
            text.push(' ');
            text.push_str(WORDS[self.rng.random_range(0..WORDS.len())]);
        }
        text
    }

    fn bytes(&self, tokens: u32) -> usize {
        let bytes = f64::from(tokens) * self.bytes_per_token;
        #[expect(
            clippy::as_conversions,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "at most 20 bytes for each of 2^32 tokens, and never below zero"
        )]
        let bytes = bytes as usize;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_two_prompts_begin_alike() {
        let (mut one, mut other) = (Prompts::new(1), Prompts::new(2));
        let begin = |prompts: &mut Prompts| prompts.write(50)[..16].to_owned();
        let mut seen: BTreeSet<String> = (0..500).map(|_| begin(&mut one)).collect();
        assert_eq!(seen.len(), 500);
        assert!(seen.insert(begin(&mut other)));
    }

    #[test]
    fn lengths_follow_what_was_learned() {
        let mut prompts = Prompts::new(7);
        let text = prompts.write(100);
        prompts.learn(&text, 200);
        let text = prompts.write(1_000);
        assert!((2_480..2_560).contains(&text.len()), "{}", text.len());
    }
}
