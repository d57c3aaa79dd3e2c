//! Which path leads where, and what happens around every request: the name on the answer and
//! the faults.

use std::future;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use http::{HeaderName, HeaderValue, StatusCode, header};
use serde::Serialize;
use twox_hash::XxHash3_64;

use super::answer::{self, Shape};
use super::faults::{Faults, Spoiled, Verdict};
use super::metrics::Page;
use super::refusal::{ErrorDialect, Refusal, json, to_json};
use super::shapes::{chat, completions, embeddings, messages, responses};
use super::{Replica, ask};

const BODY_BYTES_MAX: usize = 64 << 20;

pub(super) fn router(replica: Replica) -> Router {
    let work = Router::new()
        .route("/v1/chat/completions", post(generate::<chat::Chat>))
        .route("/v1/completions", post(generate::<completions::Completion>))
        .route("/v1/responses", post(generate::<responses::Responses>))
        .route("/v1/messages", post(generate::<messages::Messages>))
        .route("/v1/embeddings", post(embeddings::embeddings))
        .route_layer(middleware::from_fn_with_state(replica.clone(), strike));
    Router::new()
        .merge(work)
        .route("/v1/responses/{id}", get(stored).delete(delete))
        .route("/v1/models", get(models))
        .route("/health", get(health))
        .route("/metrics", get(metrics))
        .fallback(not_found)
        .route("/mock/faults", post(replace_faults))
        .layer(middleware::from_fn_with_state(replica.clone(), put_name))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(replica)
}

async fn generate<S: Shape>(State(replica): State<Replica>, body: Bytes) -> Response {
    if replica.shared.faults.is_deadly(&body) {
        replica.shared.crash.cancel();
        return future::pending().await;
    }
    answer::generate::<S>(&replica, &body).await
}

/// Answers a response that is kept.
async fn stored(State(replica): State<Replica>, Path(id): Path<String>) -> Response {
    match replica.shared.stored.get(&id) {
        Some(stored) => json(stored.reply),
        None => Refusal::UnknownResponse { id }.into_response(ErrorDialect::OpenAi),
    }
}

#[derive(Serialize)]
struct Deletion<'a> {
    id: &'a str,
    object: &'a str,
    deleted: bool,
}

async fn delete(State(replica): State<Replica>, Path(id): Path<String>) -> Response {
    if !replica.shared.stored.delete(&id) {
        return Refusal::UnknownResponse { id }.into_response(ErrorDialect::OpenAi);
    }
    json(to_json(&Deletion { id: &id, object: "response", deleted: true }))
}

async fn health(State(replica): State<Replica>) -> StatusCode {
    let ill = replica.shared.faults.is_unhealthy();
    if ill { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::OK }
}

/// Puts the replica's name on every answer, so that tests see which replica gave it.
async fn put_name(State(replica): State<Replica>, request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    if let Ok(name) = HeaderValue::from_str(&replica.shared.name) {
        response.headers_mut().insert(HeaderName::from_static("x-mock-replica"), name);
    }
    response
}

async fn strike(State(replica): State<Replica>, request: Request, next: Next) -> Response {
    match replica.shared.faults.judge() {
        Verdict::Serve => next.run(request).await,
        Verdict::Fail => Refusal::Injected.into_response(dialect(&request)),
        Verdict::Hang => future::pending().await,
        Verdict::Spoil { how, chunks } => {
            next.run(request).await.map(|body| Body::new(Spoiled::new(body, how, chunks)))
        }
    }
}

fn dialect(request: &Request) -> ErrorDialect {
    if request.uri().path() == "/v1/messages" {
        ErrorDialect::Anthropic
    } else {
        ErrorDialect::OpenAi
    }
}

/// Replaces all faults by those in the body; an empty object takes them all away.
async fn replace_faults(State(replica): State<Replica>, body: Bytes) -> Response {
    let faults = ask::read::<Faults>(&body).and_then(|faults| faults.check().map(|()| faults));
    match faults {
        Ok(faults) => {
            replica.shared.faults.replace(faults);
            replica.shared.driver.set_slow_factor(faults.slow_factor);
            json(to_json(&faults))
        }
        Err(refusal) => refusal.into_response(ErrorDialect::OpenAi),
    }
}

#[derive(Serialize)]
struct ServedModels<'a> {
    object: &'a str,
    data: Vec<ServedModel<'a>>,
}

#[derive(Serialize)]
struct ServedModel<'a> {
    id: &'a str,
    object: &'a str,
    created: u64,
    owned_by: &'a str,
    root: &'a str,
    parent: Option<&'a str>,
    max_model_len: u32,
}

async fn models(State(replica): State<Replica>) -> Response {
    let max_model_len = replica.shared.driver.capacity_tokens();
    let model = |id| ServedModel {
        id,
        object: "model",
        created: 1_700_000_000,
        owned_by: "vllm",
        root: id,
        parent: None,
        max_model_len,
    };
    let data = replica.shared.models.iter().map(|id| model(id.as_str())).collect();
    json(to_json(&ServedModels { object: "list", data }))
}

#[derive(Serialize)]
struct Detail<'a> {
    detail: &'a str,
}

/// Answers an unknown path as vLLM's web framework does.
async fn not_found() -> Response {
    (StatusCode::NOT_FOUND, json(to_json(&Detail { detail: "Not Found" }))).into_response()
}

async fn metrics(State(replica): State<Replica>) -> Response {
    let shared = &replica.shared;
    let page = Page {
        model: replica.default_model(),
        block_tokens: shared.block_tokens,
        capacity_tokens: shared.driver.capacity_tokens(),
        stats: replica.stats(),
        timings: shared.driver.timings(),
        started_at: shared.started_at,
    };
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shared.faults.shown(page.render())).into_response()
}

impl Replica {
    pub(super) fn default_model(&self) -> &str {
        self.shared.models.first().map_or("", String::as_str)
    }

    /// Finds the model a request names; the first one when it names none.
    pub(super) fn resolve<'a>(&'a self, model: Option<&'a str>) -> Result<&'a str, Refusal> {
        let model = model.unwrap_or_else(|| self.default_model());
        if self.shared.models.iter().any(|it| it == model) {
            Ok(model)
        } else {
            Err(Refusal::UnknownModel { model: model.to_owned() })
        }
    }

    /// Makes the id of a request, different on every replica and the same in every run.
    pub(super) fn name_request(&self, id: u64) -> String {
        format!("{:016x}{id:08x}", XxHash3_64::oneshot(self.shared.name.as_bytes()))
    }
}
