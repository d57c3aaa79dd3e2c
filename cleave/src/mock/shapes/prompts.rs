//! Prompts given as text or as tokens. A token's number is its four bytes.

use serde::Deserialize;

use crate::mock::ask::TextOr;
use crate::mock::refusal::Refusal;

/// One prompt or several, each as text or as tokens.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(super) struct PromptInput(TextOr<PromptItem>);

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum PromptItem {
    Text(String),
    Token(u32),
    Tokens(Vec<u32>),
}

impl PromptInput {
    /// Returns the bytes of each prompt.
    pub(super) fn into_bytes(self) -> Result<Vec<Vec<u8>>, Refusal> {
        let items = match self.0 {
            TextOr::Text(text) => return Ok(vec![text.into_bytes()]),
            TextOr::List(items) => items,
        };
        let (mut prompts, mut bare) = (Vec::new(), Vec::new());
        for item in items {
            match item {
                PromptItem::Text(text) => prompts.push(text.into_bytes()),
                PromptItem::Tokens(tokens) => prompts.push(to_bytes(&tokens)),
                PromptItem::Token(token) => bare.push(token),
            }
        }
        match (prompts.is_empty(), bare.is_empty()) {
            (false, true) => Ok(prompts),
            (true, false) => Ok(vec![to_bytes(&bare)]),
            (true, true) => Err(Refusal::bad("the prompt is empty")),
            (false, false) => Err(Refusal::bad("a prompt mixes tokens and texts")),
        }
    }
}

fn to_bytes(tokens: &[u32]) -> Vec<u8> {
    tokens.iter().flat_map(|token| token.to_le_bytes()).collect()
}
