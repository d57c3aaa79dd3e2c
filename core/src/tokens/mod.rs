//! How long is this prompt, and how long will its answer be? Learned from what engines report at
//! the end of each answer: bytes per token for each model, the length of each conversation so far,
//! lengths of answers for each workload. It counts no tokens itself: a tokenizer reads every byte
//! of a prompt, and a price wants the length to a few percent. Every table is bounded in number;
//! the least recently updated entry makes room.
//!
//! What one workload teaches others is bounded. Each workload, and with it each tenant, has a
//! memory of its own; what all workloads of a model share is where a new one starts from, and one
//! answer moves it little.

mod answers;
mod entry;
mod known;
mod possible;
mod ratio;
mod recent;

use crate::domain::{Extent, Outline, SliceKey, Usage, whole_u32};

use answers::Answers;
pub use entry::LengthsEntry;
use known::KnownBeginnings;
use possible::BYTES_PER_TOKEN_MAX;
pub use possible::{Possible, Seen, TOKENS_MAX};
use ratio::{BytesPerToken, OwnBytesPerToken};
pub(crate) use recent::Recent;

const MODELS_MAX: usize = 256;
const WORKLOADS_MAX: usize = 2048;

/// What an image, a sound or a file is taken for. Models differ by a factor of four either way.
const ATTACHMENT_TOKENS: f64 = 1024.0;

/// Bytes a token of text without blanks: hashes, keys, base64.
const DENSE_BYTES_PER_TOKEN: f64 = 1.5;

/// What is expected of an answer before anything is known.
const OUTPUT_TOKENS: f64 = 256.0;

/// No answer teaches all of a model more than this many times what was expected of it.
const LEAP: f64 = 16.0;

/// How many times as long as it is an answer is expected to become that is longer than any before:
/// lengths have long tails, and what has run long runs on.
const RUNS_ON: f64 = 1.5;

/// What has been learned of lengths in one pool.
#[derive(Debug)]
pub struct Lengths {
    models: Recent<ModelLengths>,
    known: KnownBeginnings,
    workloads: Recent<Workload>,
    misses: TokenErrors,
}

/// How good the predictions were, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenErrors {
    pub input: TokenError,
    pub output: TokenError,
}

/// Predictions of one kind against what engines counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenError {
    /// Tokens predicted, for requests whose true count came.
    pub predicted_tokens: u64,
    /// How many too many or too few, each request on its own.
    pub missed_tokens: u64,
}

/// What one answer teaches of lengths. It has no text in it, so it can be told to other routers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lesson {
    pub key: SliceKey,
    pub model: u64,
    /// The bytes of a prompt that is all text, and the tokens that it came to.
    pub text: Option<(u32, u32)>,
    /// The last block of a beginning of it, and the tokens up to there.
    pub beginning: Option<(u64, f64)>,
    /// The length of an answer that came to its end by itself.
    pub output_tokens: Option<u32>,
}

impl Lesson {
    /// Says what an answer teaches; `None` where nothing is known of its prompt.
    pub fn of(
        key: SliceKey,
        extent: &Extent,
        outline: &Outline,
        usage: Usage,
        whole: bool,
    ) -> Option<Self> {
        if extent.prompt_bytes() == 0 {
            return None;
        }
        // What an image came to says nothing of the words around it.
        let input = usage.input.filter(|_| is_text(extent));
        Some(Self {
            key,
            model: extent.model,
            text: input.map(|it| (extent.text_bytes, it)),
            beginning: input.and_then(|it| known::beginning(extent, outline, it)),
            output_tokens: usage.output.filter(|_| whole),
        })
    }
}

/// What was learned of a model from all its workloads.
#[derive(Clone, Debug, Default)]
struct ModelLengths {
    weight: BytesPerToken,
    answers: Answers,
}

/// What was learned of it from one workload.
#[derive(Clone, Debug, Default)]
struct Workload {
    weight: OwnBytesPerToken,
    answers: Answers,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            models: Recent::new(MODELS_MAX),
            known: KnownBeginnings::default(),
            workloads: Recent::new(WORKLOADS_MAX),
            misses: TokenErrors::default(),
        }
    }
}

impl Lengths {
    pub const fn misses(&self) -> TokenErrors {
        self.misses
    }

    /// Fills in what an outline leaves open, and bounds what it says. What is known is kept, and where
    /// the extent says nothing nothing is made up.
    pub fn complete(&self, key: SliceKey, extent: &Extent, outline: &mut Outline) {
        outline.prompt_tokens = outline.prompt_tokens.min(TOKENS_MAX);
        outline.block_tokens = outline.block_tokens.min(TOKENS_MAX);
        outline.output_tokens = outline.output_tokens.map(|it| it.min(TOKENS_MAX));
        let prompt_bytes = extent.prompt_bytes();
        if outline.prompt_tokens == 0 && 0 < prompt_bytes.max(extent.body_bytes) {
            outline.prompt_tokens = self.prompt_tokens(key, extent, outline);
        }
        if prompt_bytes == 0 {
            return;
        }
        if outline.block_tokens == 0 && !outline.blocks.is_empty() {
            // Spread evenly, so that the blocks of an image do not outweigh the prompt.
            let tokens = f64::from(outline.prompt_tokens);
            let per_block = tokens * f64::from(extent.block_bytes) / f64::from(prompt_bytes);
            outline.block_tokens = whole_u32(per_block).clamp(1, TOKENS_MAX);
        }
        if outline.output_tokens.is_none() {
            outline.output_tokens = Some(self.output_tokens(key, extent));
        }
    }

    /// Learns from an answer that is over. `outline` is what was predicted; `whole` tells whether the
    /// answer came to its end by itself.
    pub fn on_ended(
        &mut self,
        key: SliceKey,
        extent: &Extent,
        outline: &Outline,
        usage: Usage,
        whole: bool,
    ) {
        let Some(lesson) = Lesson::of(key, extent, outline, usage, whole) else { return };
        if let Some(tokens) = usage.input {
            self.misses.input.note(outline.prompt_tokens, tokens);
        }
        if let Some(tokens) = lesson.output_tokens {
            self.misses.output.note(outline.output_tokens.unwrap_or(0), tokens);
        }
        self.learn(&lesson);
    }

    /// Learns from an answer that is over, of this router or another one.
    pub fn learn(&mut self, lesson: &Lesson) {
        let Lesson { key, model, text, beginning, output_tokens } = *lesson;
        if let Some((bytes, tokens)) = text {
            self.models.get_or_insert(model).weight.learn(bytes, tokens);
            self.workloads.get_or_insert(workload(key, model)).weight.learn(bytes, tokens);
        }
        if let Some((block, tokens)) = beginning {
            self.known.learn(key, block, tokens);
        }
        if let Some(tokens) = output_tokens {
            let of_all = &mut self.models.get_or_insert(model).answers;
            let expected = of_all.expected(f64::INFINITY, OUTPUT_TOKENS).max(OUTPUT_TOKENS);
            of_all.learn(tokens.min(whole_u32(LEAP * expected)));
            self.workloads.get_or_insert(workload(key, model)).answers.learn(tokens);
        }
    }

    /// Expects the whole length of an answer of which `streamed` tokens have come; `None` where nothing
    /// is known of its request.
    pub fn expected_beyond(&self, key: SliceKey, extent: &Extent, streamed: u32) -> Option<u32> {
        if extent.prompt_bytes() == 0 {
            return None;
        }
        let cap = extent.output_tokens_max.map_or(f64::INFINITY, f64::from);
        let so_far = f64::from(streamed);
        let expect = |from: Option<&Answers>, prior: f64| {
            from.map_or(prior, |it| it.expected_beyond(so_far, cap, prior))
        };
        let guess = (so_far * RUNS_ON).max(so_far + 1.0).min(cap);
        let of_model = expect(self.models.get(extent.model).map(|it| &it.answers), guess);
        let own = self.workloads.get(workload(key, extent.model)).map(|it| &it.answers);
        let total = expect(own, of_model);
        Some(whole_u32(total).min(TOKENS_MAX).max(streamed))
    }

    fn prompt_tokens(&self, key: SliceKey, extent: &Extent, outline: &Outline) -> u32 {
        let prior = BytesPerToken::default();
        let of_model = self.models.get(extent.model).map_or(&prior, |it| &it.weight);
        let own = self.workloads.get(workload(key, extent.model)).map(|it| it.weight);
        let bytes_per_token = own.unwrap_or_default().bytes_per_token(of_model);
        // The index does not note where attachments lie in a prompt, so beginnings are of text
        // alone.
        let known = is_text(extent).then(|| self.known.longest(key, extent, outline)).flatten();
        let (bytes, tokens) = known.map_or((0, 0.0), |it| (it.bytes, it.tokens));
        let rest = extent.text_bytes.saturating_sub(bytes);
        // What is known of a beginning is known of its text without blanks too.
        let dense = if known.is_some() { 0 } else { extent.dense_bytes.min(rest) };
        let dense_per_token = DENSE_BYTES_PER_TOKEN.min(bytes_per_token);
        let estimate = tokens
            + f64::from(rest - dense) / bytes_per_token
            + f64::from(dense) / dense_per_token
            + f64::from(extent.attachments) * ATTACHMENT_TOKENS;
        let least = extent.text_bytes.max(extent.body_bytes) / BYTES_PER_TOKEN_MAX;
        whole_u32(estimate).max(least).clamp(1, TOKENS_MAX)
    }

    /// Expects what the workload's answers came to, leaning on those of the model while there are few,
    /// and on a guess while those are few.
    fn output_tokens(&self, key: SliceKey, extent: &Extent) -> u32 {
        let cap = extent.output_tokens_max.map_or(f64::INFINITY, f64::from);
        let expect =
            |from: Option<&Answers>, prior: f64| from.map_or(prior, |it| it.expected(cap, prior));
        let guess = OUTPUT_TOKENS.min(cap);
        let of_model = expect(self.models.get(extent.model).map(|it| &it.answers), guess);
        let own = self.workloads.get(workload(key, extent.model)).map(|it| &it.answers);
        whole_u32(expect(own, of_model)).min(TOKENS_MAX)
    }
}

impl TokenError {
    fn note(&mut self, predicted: u32, seen: u32) {
        self.predicted_tokens = self.predicted_tokens.saturating_add(predicted.into());
        self.missed_tokens = self.missed_tokens.saturating_add(predicted.abs_diff(seen).into());
    }
}

/// Tells whether a prompt is all text, as far as it shows.
const fn is_text(extent: &Extent) -> bool {
    extent.attachments == 0 && extent.media == 0 && !extent.is_continued
}

/// Answers are told apart by the workload half of the key, and the model.
const fn workload(key: SliceKey, model: u64) -> u64 {
    (key.0 & !0xFFFF_FFFF) | (model >> 32)
}

#[cfg(test)]
mod tests;
