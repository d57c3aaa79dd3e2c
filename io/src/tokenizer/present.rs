//! The tokenizer of a build with one, in the words of this crate.

use std::ops::Range;
use std::path::Path;

use cleave_tokenizer::Uncounted;

use super::{Count, TokenizerError};

#[derive(Clone, Debug, PartialEq)]
pub struct Tokenizer(cleave_tokenizer::Tokenizer);

impl Tokenizer {
    pub fn load(path: &Path) -> Result<Self, TokenizerError> {
        cleave_tokenizer::Tokenizer::load(path).map(Self).map_err(TokenizerError::Unreadable)
    }

    pub async fn count(&self, blocks: &[u64], text: impl Fn(Range<usize>) -> String) -> Count {
        match self.0.count(blocks, text).await {
            Ok(tokens) => Count::Tokens(tokens),
            Err(Uncounted::Late) => Count::Late,
            Err(Uncounted::Skipped) => Count::Skipped,
        }
    }
}
