//! Embeddings: the engine reads and writes nothing. Vectors are made up from the text, so equal inputs
//! get equal vectors on every replica.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::prompts::PromptInput;
use crate::mock::Replica;
use crate::mock::answer;
use crate::mock::ask;
use crate::mock::refusal::{ErrorDialect, Refusal, json, to_json};

const DIMENSIONS: usize = 64;

#[derive(Deserialize)]
struct EmbeddingsBody {
    model: Option<String>,
    input: PromptInput,
}

#[derive(Serialize)]
struct Reply<'a> {
    id: &'static str,
    object: &'static str,
    model: &'a str,
    data: Vec<Embedded>,
    usage: EmbeddingsUsage,
}

#[derive(Serialize)]
struct EmbeddingsUsage {
    prompt_tokens: u32,
    total_tokens: u32,
}

#[derive(Serialize)]
struct Embedded {
    object: &'static str,
    index: usize,
    embedding: Vec<f32>,
}

pub(in crate::mock) async fn embeddings(State(replica): State<Replica>, body: Bytes) -> Response {
    let embedded = embed(&replica, &body).await;
    embedded.map_or_else(|refusal| refusal.into_response(ErrorDialect::OpenAi), json)
}

async fn embed(replica: &Replica, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let body: EmbeddingsBody = ask::read(body)?;
    let model = replica.resolve(body.model.as_deref())?;
    let inputs = body.input.into_bytes()?;
    let tokens = answer::read_only(replica, &inputs).await?;
    let data = inputs.iter().enumerate().map(|(index, input)| Embedded {
        object: "embedding",
        index,
        embedding: vector(input),
    });
    let data = data.collect();
    let usage = EmbeddingsUsage { prompt_tokens: tokens, total_tokens: tokens };
    Ok(to_json(&Reply { id: "embd-mock", object: "list", model, data, usage }))
}

/// Makes a vector of length one up.
fn vector(input: &[u8]) -> Vec<f32> {
    let mut rng = Pcg64Mcg::seed_from_u64(XxHash3_64::oneshot(input));
    let mut vector: Vec<f32> = (0..DIMENSIONS).map(|_| rng.random_range(-1.0..1.0)).collect();
    let length = vector.iter().map(|it| it * it).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    for it in &mut vector {
        *it /= length;
    }
    vector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_have_length_one() {
        let length = vector(b"x").iter().map(|it| it * it).sum::<f32>();
        assert!((length - 1.0).abs() < 1e-5);
    }
}
