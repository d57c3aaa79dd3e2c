//! `/tokenize`, `/detokenize`, and prompts given as text or tokens. A token's number is its four
//! bytes, the last one of a text filled up with zeros.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::chat::ChatTurn;
use crate::mock::Replica;
use crate::mock::ask::{self, TextOr, Toolbox};
use crate::mock::refusal::{ErrorDialect, Refusal, json, to_json};
use crate::mock::text::TOKEN_BYTES;

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

fn to_tokens(text: &[u8]) -> Vec<u32> {
    let chunks = text.chunks(TOKEN_BYTES).map(|chunk| {
        let mut bytes = [0; TOKEN_BYTES];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u32::from_le_bytes(bytes)
    });
    chunks.collect()
}

#[derive(Deserialize)]
struct TokenizeBody {
    model: Option<String>,
    prompt: Option<String>,
    messages: Option<Vec<ChatTurn>>,
    tools: Option<Box<RawValue>>,
}

#[derive(Serialize)]
struct Tokenized {
    count: usize,
    max_model_len: u32,
    tokens: Vec<u32>,
    token_strs: Option<Vec<String>>,
}

pub(in crate::mock) async fn tokenize(State(replica): State<Replica>, body: Bytes) -> Response {
    let tokens = ask::read::<TokenizeBody>(&body).and_then(|body| {
        replica.resolve(body.model.as_deref())?;
        match (body.prompt, body.messages) {
            (Some(prompt), None) => Ok(to_tokens(prompt.as_bytes())),
            (None, Some(messages)) => {
                let toolbox = Toolbox { tools: body.tools, choice: None };
                Ok(to_tokens(&ChatTurn::render_all(&messages, &toolbox)))
            }
            (Some(_), Some(_)) | (None, None) => {
                Err(Refusal::bad("either prompt or messages must be given"))
            }
        }
    });
    match tokens {
        Ok(tokens) => json(to_json(&Tokenized {
            count: tokens.len(),
            max_model_len: replica.shared.driver.capacity_tokens(),
            tokens,
            token_strs: None,
        })),
        Err(refusal) => refusal.into_response(ErrorDialect::OpenAi),
    }
}

#[derive(Deserialize)]
struct DetokenizeBody {
    model: Option<String>,
    tokens: Vec<u32>,
}

#[derive(Serialize)]
struct Detokenized {
    prompt: String,
}

pub(in crate::mock) async fn detokenize(State(replica): State<Replica>, body: Bytes) -> Response {
    let prompt = ask::read::<DetokenizeBody>(&body).and_then(|body| {
        replica.resolve(body.model.as_deref())?;
        let mut bytes = to_bytes(&body.tokens);
        while bytes.last() == Some(&0) {
            bytes.pop();
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    });
    match prompt {
        Ok(prompt) => json(to_json(&Detokenized { prompt })),
        Err(refusal) => refusal.into_response(ErrorDialect::OpenAi),
    }
}
