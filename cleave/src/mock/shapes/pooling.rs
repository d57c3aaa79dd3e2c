//! Embeddings, rerank and score: the engine reads and writes nothing. Vectors and scores are made up
//! from the text, so equal inputs get equal results on every replica.

use axum::body::Bytes;
use axum::extract::State;
use axum::response::Response;
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

use super::tokens::PromptInput;
use crate::mock::Replica;
use crate::mock::answer;
use crate::mock::ask::{self, TextOr};
use crate::mock::refusal::{ErrorDialect, Refusal, json, to_json};

const DIMENSIONS: usize = 64;
const DIMENSIONS_MAX: usize = 8192;

#[derive(Serialize)]
struct List<'a, T> {
    id: String,
    object: &'static str,
    model: &'a str,
    data: Vec<T>,
    usage: PoolingUsage,
}

#[derive(Serialize)]
struct PoolingUsage {
    prompt_tokens: u32,
    total_tokens: u32,
}

fn usage(tokens: u32) -> PoolingUsage {
    PoolingUsage { prompt_tokens: tokens, total_tokens: tokens }
}

fn respond(result: Result<Vec<u8>, Refusal>) -> Response {
    result.map_or_else(|refusal| refusal.into_response(ErrorDialect::OpenAi), json)
}

#[derive(Deserialize)]
struct EmbeddingsBody {
    model: Option<String>,
    input: PromptInput,
    encoding_format: Option<String>,
    dimensions: Option<usize>,
}

#[derive(Serialize)]
struct Embedded {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Floats(Vec<f32>),
    Base64(String),
}

pub(in crate::mock) async fn embeddings(State(replica): State<Replica>, body: Bytes) -> Response {
    respond(embed(&replica, &body).await)
}

async fn embed(replica: &Replica, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let body: EmbeddingsBody = ask::read(body)?;
    let model = replica.resolve(body.model.as_deref())?;
    let dimensions = body.dimensions.unwrap_or(DIMENSIONS);
    if DIMENSIONS_MAX < dimensions {
        return Err(Refusal::bad(format!("dimensions: at most {DIMENSIONS_MAX}")));
    }
    let inputs = body.input.into_bytes()?;
    let tokens = answer::read_only(replica, &inputs).await?;
    let packed = body.encoding_format.as_deref() == Some("base64");
    let data = inputs.iter().enumerate().map(|(index, input)| {
        let vector = vector(input, dimensions);
        let embedding = if packed { Vector::Base64(pack(&vector)) } else { Vector::Floats(vector) };
        Embedded { object: "embedding", index, embedding }
    });
    let data = data.collect();
    let id = "embd-mock".to_owned();
    Ok(to_json(&List { id, object: "list", model, data, usage: usage(tokens) }))
}

/// Makes a vector of length one up.
fn vector(input: &[u8], dimensions: usize) -> Vec<f32> {
    let mut rng = Pcg64Mcg::seed_from_u64(XxHash3_64::oneshot(input));
    let mut vector: Vec<f32> = (0..dimensions).map(|_| rng.random_range(-1.0..1.0)).collect();
    let length = vector.iter().map(|it| it * it).sum::<f32>().sqrt().max(f32::MIN_POSITIVE);
    for it in &mut vector {
        *it /= length;
    }
    vector
}

/// Packs numbers as `OpenAI` does: little-endian, in base64.
fn pack(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|it| it.to_le_bytes()).collect();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |at: usize| u32::from(chunk.get(at).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for at in 0..4 {
            let six = usize::try_from(bits >> (18 - 6 * at) & 63).expect("six bits");
            let digit = if at <= chunk.len() { char::from(alphabet[six]) } else { '=' };
            text.push(digit);
        }
    }
    text
}

/// Makes a score up, 0 to 1.
fn made_up_score(query: &str, document: &str) -> f64 {
    let seed = XxHash3_64::oneshot(query.as_bytes());
    Pcg64Mcg::seed_from_u64(XxHash3_64::oneshot_with_seed(seed, document.as_bytes())).random()
}

#[derive(Deserialize)]
struct RerankBody {
    model: Option<String>,
    query: String,
    documents: Vec<RerankDocument>,
    top_n: Option<usize>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum RerankDocument {
    Plain(String),
    Wrapped { text: String },
}

impl RerankDocument {
    fn into_text(self) -> String {
        match self {
            Self::Plain(text) | Self::Wrapped { text } => text,
        }
    }
}

#[derive(Serialize)]
struct Reranked<'a> {
    id: &'static str,
    model: &'a str,
    usage: PoolingUsage,
    results: Vec<Ranked>,
}

#[derive(Serialize)]
struct Ranked {
    index: usize,
    document: RankedDocument,
    relevance_score: f64,
}

#[derive(Serialize)]
struct RankedDocument {
    text: String,
}

pub(in crate::mock) async fn rerank(State(replica): State<Replica>, body: Bytes) -> Response {
    respond(rank(&replica, &body).await)
}

async fn rank(replica: &Replica, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let RerankBody { model, query, documents, top_n } = ask::read(body)?;
    let model = replica.resolve(model.as_deref())?;
    let texts: Vec<String> = documents.into_iter().map(RerankDocument::into_text).collect();
    let inputs: Vec<Vec<u8>> =
        texts.iter().map(|text| [query.as_bytes(), text.as_bytes()].concat()).collect();
    let tokens = answer::read_only(replica, &inputs).await?;
    let ranked = texts.into_iter().enumerate().map(|(index, text)| {
        let relevance_score = made_up_score(&query, &text);
        Ranked { index, document: RankedDocument { text }, relevance_score }
    });
    let mut results: Vec<Ranked> = ranked.collect();
    results.sort_by(|a, b| {
        b.relevance_score.total_cmp(&a.relevance_score).then(a.index.cmp(&b.index))
    });
    results.truncate(top_n.filter(|n| 0 < *n).unwrap_or(usize::MAX));
    Ok(to_json(&Reranked { id: "rerank-mock", model, usage: usage(tokens), results }))
}

#[derive(Deserialize)]
struct ScoreBody {
    model: Option<String>,
    #[serde(alias = "queries")]
    text_1: TextOr<String>,
    #[serde(alias = "documents", alias = "items")]
    text_2: TextOr<String>,
}

#[derive(Serialize)]
struct Scored {
    index: usize,
    object: &'static str,
    score: f64,
}

pub(in crate::mock) async fn score(State(replica): State<Replica>, body: Bytes) -> Response {
    respond(score_pairs(&replica, &body).await)
}

async fn score_pairs(replica: &Replica, body: &[u8]) -> Result<Vec<u8>, Refusal> {
    let body: ScoreBody = ask::read(body)?;
    let model = replica.resolve(body.model.as_deref())?;
    let (mut queries, documents) = (list(body.text_1), list(body.text_2));
    if let [only] = queries.as_slice() {
        queries = vec![only.clone(); documents.len()];
    }
    if queries.len() != documents.len() {
        return Err(Refusal::bad("text_1 must be one text or as many as text_2"));
    }
    let pairs: Vec<(String, String)> = queries.into_iter().zip(documents).collect();
    let inputs: Vec<Vec<u8>> =
        pairs.iter().map(|(a, b)| [a.as_bytes(), b.as_bytes()].concat()).collect();
    let tokens = answer::read_only(replica, &inputs).await?;
    let data = pairs.iter().enumerate().map(|(index, (query, document))| Scored {
        index,
        object: "score",
        score: made_up_score(query, document),
    });
    let data = data.collect();
    let id = "score-mock".to_owned();
    Ok(to_json(&List { id, object: "list", model, data, usage: usage(tokens) }))
}

fn list(texts: TextOr<String>) -> Vec<String> {
    match texts {
        TextOr::Text(text) => vec![text],
        TextOr::List(texts) => texts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_packed_as_base64() {
        assert_eq!(pack(&[1.0]), "AACAPw==");
        assert_eq!(pack(&[1.0, -2.0, 0.5]), "AACAPwAAAMAAAAA/");
    }

    #[test]
    fn vectors_have_length_one() {
        let length = vector(b"x", 64).iter().map(|it| it * it).sum::<f32>();
        assert!((length - 1.0).abs() < 1e-5);
    }
}
