//! What is known of a request's content without its text: enough to tell what two prompts share and
//! how long they are. The text itself never comes this far.

use std::sync::Arc;

use super::Place;

/// A prompt by its blocks. Cheap to clone; the default says that nothing is known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outline {
    /// The hash of each whole block, chained: it names the block and all before it.
    pub blocks: Arc<[u64]>,
    /// Tokens in each of the blocks; 0 when there are none.
    pub block_tokens: u32,
    /// All tokens of the prompt, those after the last whole block included; 0 when unknown.
    pub prompt_tokens: u32,
    /// How long the answer is expected to be, where there is a reason to expect it.
    pub output_tokens: Option<u32>,
    /// The adapter that the model wears for it, by the hash of its name; 0 for none.
    pub adapter: u64,
    /// The replica that keeps what the request names by an id: no other can serve it.
    pub kept_at: Option<Place>,
}

impl Outline {
    /// Counts the prompt tokens in the leading `blocks`.
    pub fn tokens_in(&self, blocks: usize) -> u32 {
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        blocks.saturating_mul(self.block_tokens).min(self.prompt_tokens)
    }

    /// Counts the prompt tokens that are left to compute when the leading `blocks` are cached.
    pub fn tokens_beyond(&self, blocks: usize) -> u32 {
        self.prompt_tokens - self.tokens_in(blocks)
    }
}
