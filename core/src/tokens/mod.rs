//! How long is this prompt, and how long will its answer be? Learned from what engines report at the
//! end of each answer: bytes per token for each model, the length of each conversation so far, lengths of
//! answers for each workload. It counts no tokens itself: a tokenizer reads every byte of a prompt, and
//! a price wants the length to a few percent. All it remembers is bounded in number; the least recently
//! taught makes room.

mod answers;
mod known;
mod recent;
mod weight;

use crate::domain::{Extent, Outline, SliceKey, Usage, whole_u32};

use answers::Answers;
use known::Known;
pub(crate) use recent::Recent;
use weight::Weight;

const MODELS_MAX: usize = 256;
const WORKLOADS_MAX: usize = 2048;

/// What an image, a sound or a file is taken for. Models differ by a factor of four either way.
const ATTACHMENT_TOKENS: f64 = 1024.0;

/// What is expected of an answer before anything is known.
const OUTPUT_TOKENS: f64 = 256.0;

/// How many times as long as it is an answer is expected to become that is longer than any before:
/// lengths have long tails, and what has run long runs on.
const RUNS_ON: f64 = 1.5;

/// What has been learned of lengths in one pool.
#[derive(Debug)]
pub struct Lengths {
    models: Recent<Model>,
    known: Known,
    workloads: Recent<Answers>,
    misses: Misses,
}

/// How good the predictions were, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    pub input: Miss,
    pub output: Miss,
}

/// Predictions of one kind against what engines counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Miss {
    /// Tokens predicted, for requests whose true count came.
    pub predicted_tokens: u64,
    /// How many too many or too few, each request on its own.
    pub missed_tokens: u64,
}

#[derive(Clone, Debug, Default)]
struct Model {
    weight: Weight,
    answers: Answers,
}

impl Default for Lengths {
    fn default() -> Self {
        Self {
            models: Recent::new(MODELS_MAX),
            known: Known::default(),
            workloads: Recent::new(WORKLOADS_MAX),
            misses: Misses::default(),
        }
    }
}

impl Lengths {
    pub const fn misses(&self) -> Misses {
        self.misses
    }

    /// Fills in what an outline leaves open. What is known is kept, and where the extent says nothing
    /// nothing is made up.
    pub fn complete(&self, key: SliceKey, extent: &Extent, outline: &mut Outline) {
        let prompt_bytes = extent.prompt_bytes();
        if prompt_bytes == 0 {
            return;
        }
        if outline.prompt_tokens == 0 {
            outline.prompt_tokens = self.prompt_tokens(extent, outline);
        }
        if outline.block_tokens == 0 && !outline.blocks.is_empty() {
            // Spread evenly, so that the blocks of an image do not outweigh the prompt.
            let tokens = f64::from(outline.prompt_tokens);
            let per_block = tokens * f64::from(extent.block_bytes) / f64::from(prompt_bytes);
            outline.block_tokens = whole_u32(per_block).max(1);
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
        if extent.prompt_bytes() == 0 {
            return;
        }
        if let Some(tokens) = usage.input {
            self.misses.input.note(outline.prompt_tokens, tokens);
            // What an image came to says nothing of the words around it.
            if extent.attachments == 0 {
                self.models.get_or_insert(extent.model).weight.learn(extent.text_bytes, tokens);
                self.known.learn(extent, outline, tokens);
            }
        }
        if let (Some(tokens), true) = (usage.output, whole) {
            self.misses.output.note(outline.output_tokens.unwrap_or(0), tokens);
            self.models.get_or_insert(extent.model).answers.learn(tokens);
            self.workloads.get_or_insert(workload(key, extent)).learn(tokens);
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
        let total = expect(self.workloads.get(workload(key, extent)), of_model);
        Some(whole_u32(total).max(streamed))
    }

    fn prompt_tokens(&self, extent: &Extent, outline: &Outline) -> u32 {
        let prior = Weight::default();
        let weight = self.models.get(extent.model).map_or(&prior, |it| &it.weight);
        // Where attachments lie in a prompt nobody has noted, so beginnings are of text alone.
        let known =
            (extent.attachments == 0).then(|| self.known.longest(extent, outline)).flatten();
        let (bytes, tokens) = known.map_or((0, 0.0), |it| (it.bytes, it.tokens));
        let rest = f64::from(extent.text_bytes.saturating_sub(bytes)) / weight.bytes_per_token();
        whole_u32(tokens + rest + f64::from(extent.attachments) * ATTACHMENT_TOKENS).max(1)
    }

    /// Expects what the workload's answers came to, leaning on those of the model while there are few,
    /// and on a guess while those are few.
    fn output_tokens(&self, key: SliceKey, extent: &Extent) -> u32 {
        let cap = extent.output_tokens_max.map_or(f64::INFINITY, f64::from);
        let expect =
            |from: Option<&Answers>, prior: f64| from.map_or(prior, |it| it.expected(cap, prior));
        let guess = OUTPUT_TOKENS.min(cap);
        let of_model = expect(self.models.get(extent.model).map(|it| &it.answers), guess);
        whole_u32(expect(self.workloads.get(workload(key, extent)), of_model))
    }
}

impl Miss {
    fn note(&mut self, predicted: u32, seen: u32) {
        self.predicted_tokens += u64::from(predicted);
        self.missed_tokens += u64::from(predicted.abs_diff(seen));
    }
}

/// Whose answers: the workload half of the key, and the model.
const fn workload(key: SliceKey, extent: &Extent) -> u64 {
    (key.0 & !0xFFFF_FFFF) | (extent.model >> 32)
}

#[cfg(test)]
mod tests;
