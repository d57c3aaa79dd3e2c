//! `GET /requests`: the requests whose decisions are kept, a line each: the newest, the slowest or those that
//! failed. `/explain/REQUEST_ID` tells the rest of one.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use cleave_core::domain::Moment;
use serde::{Deserialize, Serialize};

use crate::proxy::{KeptDecision, Router, Tenants};

/// Lines in an answer.
const LISTED_MAX: usize = 100;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RequestOrder {
    #[default]
    Newest,
    Slowest,
    Failed,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(in crate::admin) struct RequestQuery {
    order: RequestOrder,
}

/// One request in a line.
#[derive(Clone, Debug, Serialize)]
pub(in crate::admin) struct RequestLine {
    request_id: String,
    pool: String,
    age_seconds: f64,
    tenant: Option<String>,
    class: Option<String>,
    replica: Option<String>,
    tries: usize,
    waited_ms: Option<f64>,
    prompt_tokens: Option<u32>,
    cached_tokens: Option<u32>,
    output_tokens: Option<u32>,
    /// As predicted when it was sent, and as it came.
    ttft_predicted_ms: Option<f64>,
    ttft_ms: Option<f64>,
    total_ms: Option<f64>,
    /// Null while it runs.
    outcome: Option<&'static str>,
    status: Option<u16>,
    refusal: Option<&'static str>,
}

pub(in crate::admin) async fn requests(
    State(router): State<Arc<Router>>,
    Query(asked): Query<RequestQuery>,
) -> Json<Vec<RequestLine>> {
    let (now, tenants) = (router.now(), router.tenants());
    let line = |it: &KeptDecision| RequestLine::of(it, now, &tenants);
    let slow_ms = |it: &KeptDecision| {
        let came = it.came.as_ref()?;
        Some(came.ttft.unwrap_or(came.total))
    };
    let mut lines = match asked.order {
        RequestOrder::Newest => router.explanations.map_all(|it| Some(((), line(it)))),
        RequestOrder::Failed => {
            router.explanations.map_all(|it| it.has_failed().then(|| ((), line(it))))
        }
        RequestOrder::Slowest => {
            let mut all =
                router.explanations.map_all(|it| Some((slow_ms(it)?, it.request_id.clone())));
            all.sort_by_key(|it| std::cmp::Reverse(it.0));
            let ids = all.into_iter().take(LISTED_MAX).map(|it| it.1);
            let found = ids.filter_map(|it| router.explanations.find(&it));
            found.map(|it| ((), line(&it))).collect()
        }
    };
    lines.truncate(LISTED_MAX);
    Json(lines.into_iter().map(|it| it.1).collect())
}

impl RequestLine {
    fn of(it: &KeptDecision, now: Moment, tenants: &Tenants) -> Self {
        let (last, waited, came) = (it.choices.last(), it.waited.as_ref(), it.came.as_ref());
        let ms = |it: std::time::Duration| it.as_secs_f64() * 1e3;
        let tenant = |it: &cleave_core::brain::Waited| {
            tenants.name(it.tenant).unwrap_or("default").to_owned()
        };
        let tries = it.life.as_ref().map_or(&[][..], |it| &it.tries);
        let sent = tries.last();
        let usage = came.map(|it| it.usage).unwrap_or_default();
        Self {
            request_id: it.request_id.clone(),
            pool: it.pool.clone(),
            age_seconds: now.since(it.arrived_at).as_secs_f64(),
            tenant: waited.map(tenant),
            class: waited.map(|it| it.class.clone()),
            replica: last.map(|it| it.name.clone()).or(sent.map(|it| it.replica.clone())),
            tries: tries.len().max(it.choices.len()),
            waited_ms: waited.map(|it| ms(it.span())),
            prompt_tokens: usage
                .input
                .or(sent.map(|it| it.expected.prompt_tokens))
                .or(last.map(|it| it.prompt_tokens)),
            cached_tokens: usage.cached,
            output_tokens: usage.output,
            ttft_predicted_ms: last.map(|it| it.ttft_ms).or(sent.map(|it| it.expected.ttft_ms)),
            ttft_ms: came.and_then(|it| it.ttft).map(ms),
            total_ms: came.map(|it| ms(it.total)),
            outcome: came.map(|it| it.outcome),
            status: came.map(|it| it.status),
            refusal: it.refusal,
        }
    }
}
