//! The text model: a token is four bytes, an answer is noise that depends on the seed and the prompt
//! alone. So token counts are exact, equal prompts get equal answers on every replica, and the next
//! turn of a conversation begins with the bytes of this one, prompt and answer, which is what makes a
//! prefix cache hit. A real tokenizer would add weight and no insight.

use std::fmt::Write as _;
use std::sync::Arc;

use rand::{Rng as _, RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use twox_hash::XxHash3_64;

pub(super) const TOKEN_BYTES: usize = 4;

/// Begins the text of a tool call inside an answer, as chat templates do.
pub(super) const CALL_MARK: &str = "<|call|>";

/// A conversation rendered as a model would see it.
#[derive(Clone, Debug, Default)]
pub(super) struct Transcript(String);

impl Transcript {
    pub(super) fn say(&mut self, role: &str, text: &str) {
        write!(self.0, "<|{role}|>\n{text}<|end|>\n").expect("a string takes everything");
    }

    /// Ends with the opening of the answer, so that a continued conversation has it as a prefix.
    pub(super) fn into_prompt(mut self) -> Vec<u8> {
        self.0.push_str("<|assistant|>\n");
        self.0.into_bytes()
    }
}

pub(super) fn count_tokens(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(TOKEN_BYTES)).unwrap_or(u32::MAX)
}

/// Hashes each full block together with all before it.
pub(super) fn hash_blocks(text: &[u8], block_tokens: u32) -> Arc<[u64]> {
    let block_bytes = usize::try_from(block_tokens).unwrap_or(usize::MAX) * TOKEN_BYTES;
    let chain = text.chunks_exact(block_bytes).scan(0, |parent, block| {
        *parent = XxHash3_64::oneshot_with_seed(*parent, block);
        Some(*parent)
    });
    chain.collect()
}

/// Writes answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Author {
    pub(super) seed: u64,
}

impl Author {
    /// Draws everything about one answer from the prompt.
    pub(super) fn begin(self, prompt: &[u8]) -> Draft {
        Draft { rng: Pcg64Mcg::seed_from_u64(XxHash3_64::oneshot_with_seed(self.seed, prompt)) }
    }
}

/// An answer being made up.
#[derive(Debug)]
pub(super) struct Draft {
    rng: Pcg64Mcg,
}

impl Draft {
    /// Draws how long the answer would be if nothing cut it: 16 to 256 tokens, half of them below 80.
    pub(super) fn natural_tokens(&mut self) -> u32 {
        let share = self.rng.random::<f64>().powf(0.8);
        let tokens = 16.0 * 16_f64.powf(share);
        #[expect(
            clippy::as_conversions,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 16 and 256"
        )]
        let tokens = tokens as u32;
        tokens
    }

    /// Writes a text of `tokens` tokens, each of four letters or so.
    pub(super) fn write(&mut self, tokens: u32) -> String {
        let mut text = String::with_capacity(TOKEN_BYTES * usize::try_from(tokens).unwrap_or(0));
        for at in 0..tokens {
            let kind = if at == 0 { 0 } else { self.rng.random_range(1..16) };
            match kind {
                0 => self.push(&mut text, "Ovcv"),
                1 => self.push(&mut text, ". Ov"),
                2..=10 => self.push(&mut text, " cvc"),
                _ => self.push(&mut text, "vcvc"),
            }
        }
        text
    }

    /// Writes one plain word.
    pub(super) fn word(&mut self) -> String {
        let mut word = String::new();
        self.push(&mut word, "cvcvc");
        word
    }

    pub(super) fn number(&mut self) -> u32 {
        self.rng.random_range(1..100)
    }

    /// Appends a pattern: `c` for a consonant, `v` for a vowel, `O` for a capital, else as it is.
    fn push(&mut self, text: &mut String, pattern: &str) {
        for mark in pattern.chars() {
            let choices: &[u8] = match mark {
                'c' => b"dlmnrvz",
                'v' => b"aeiou",
                'O' => b"ADEILMNORSTU",
                _ => b"",
            };
            let drawn = choices.get(self.rng.random_range(0..choices.len().max(1)));
            text.push(drawn.map_or(mark, |byte| char::from(*byte)));
        }
    }

    pub(super) fn id(&mut self) -> u64 {
        self.rng.next_u64()
    }
}

/// Rounds a position up to where a character begins; tool names need not be ASCII.
pub(super) fn ceil_char_boundary(text: &str, at: usize) -> usize {
    (at..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_next_turn_begins_with_this_turn_and_its_answer() {
        let mut first = Transcript::default();
        first.say("user", "hello");
        let mut second = first.clone();
        let mut before = first.into_prompt();
        before.extend_from_slice(b"Hi there");
        second.say("assistant", "Hi there");
        second.say("user", "and now?");
        assert!(second.into_prompt().starts_with(&before));
    }

    #[test]
    fn answers_repeat_for_one_prompt_and_differ_between_prompts() {
        let write = |seed, prompt: &[u8]| Author { seed }.begin(prompt).write(100);
        assert_eq!(write(1, b"a"), write(1, b"a"));
        assert_ne!(write(1, b"a"), write(1, b"b"));
        assert_ne!(write(1, b"a"), write(2, b"a"));
    }

    #[test]
    fn an_answer_has_four_bytes_a_token_and_many_different_tokens() {
        let text = Author { seed: 0 }.begin(b"x").write(100);
        assert_eq!(text.len(), 400);
        let distinct: std::collections::BTreeSet<_> = text.as_bytes().chunks(4).collect();
        assert!(60 < distinct.len(), "{}", distinct.len());
    }

    #[test]
    fn natural_lengths_lie_between_16_and_256_around_80() {
        let mut lengths: Vec<u32> = (0..1_001_u32)
            .map(|at| Author { seed: 0 }.begin(&at.to_le_bytes()).natural_tokens())
            .collect();
        lengths.sort_unstable();
        assert!(16 <= lengths[0] && lengths[1_000] <= 256);
        assert!((70..90).contains(&lengths[500]), "{}", lengths[500]);
    }

    #[test]
    fn hashes_of_blocks_cover_all_before_them() {
        let (one, other) =
            (hash_blocks(&[1; 160], 16), hash_blocks(&[[2; 64], [1; 64]].concat(), 16));
        assert_eq!((one.len(), other.len()), (2, 2));
        assert_ne!(one[1], other[1]);
    }
}
