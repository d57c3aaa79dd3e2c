//! `GET /session/KEY`: where a session lives, by its place in the key space, and where it was as far as decisions were
//! kept; `GET /workloads`: what a page needs to hash the name of a session by itself, so that the name does not
//! leave the browser.

use std::sync::Arc;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use cleave_core::domain::SliceKey;
use serde::Serialize;

use crate::proxy::Router;

/// Workloads that are listed.
const WORKLOADS_MAX: usize = 4096;

/// What `/session/KEY` answers.
#[derive(Clone, Debug, Serialize)]
pub(in crate::admin) struct SessionSeen {
    key: String,
    workload: Option<String>,
    /// Null where no pool remembers it.
    home: Option<SessionHomeSeen>,
    /// The decisions about it that are kept, the newest first.
    visits: Vec<VisitSeen>,
}

#[derive(Clone, Debug, Serialize)]
struct SessionHomeSeen {
    pool: String,
    replica: String,
    served_seconds: f64,
}

#[derive(Clone, Debug, Serialize)]
struct VisitSeen {
    request_id: String,
    age_seconds: f64,
    replica: String,
    because: &'static str,
    /// Where it came from and why it left that, where it did.
    moved_from: Option<String>,
    moved_because: Option<&'static str>,
    cached_tokens: Option<u32>,
    prompt_tokens: u32,
}

/// A tenant and a model, and the number that sessions of both are hashed with.
#[derive(Clone, Debug, Serialize)]
pub(in crate::admin) struct WorkloadSeed {
    name: String,
    /// Sixteen hexadecimal digits.
    seed: String,
}

pub(in crate::admin) async fn session(
    State(router): State<Arc<Router>>,
    Path(key): Path<String>,
) -> Result<Json<SessionSeen>, (StatusCode, &'static str)> {
    let is_key = key.len() == 16 && key.bytes().all(|it| it.is_ascii_hexdigit());
    let number = is_key.then(|| u64::from_str_radix(&key, 16).ok()).flatten();
    let said = "name the session by its sixteen digits, as the access log and /explain do\n";
    number.map(|it| Json(look_up(&router, SliceKey(it)))).ok_or((StatusCode::BAD_REQUEST, said))
}

fn look_up(router: &Router, key: SliceKey) -> SessionSeen {
    let pools = router.pools();
    let home = pools.iter().find_map(|pool| {
        let (replica, served) = pool.session_home(key)?;
        let (pool, served_seconds) = (pool.name.clone(), served.as_secs_f64());
        Some(SessionHomeSeen { pool, replica, served_seconds })
    });
    let named = pools
        .iter()
        .find_map(|it| router.workload_names(it).find(key.workload()).map(str::to_owned));
    let now = router.now();
    let kept = router.explanations.of_session(key);
    let visits = kept.into_iter().flat_map(|(request_id, choices)| {
        choices.into_iter().rev().map(move |it| VisitSeen {
            request_id: request_id.clone(),
            age_seconds: now.since(it.at).as_secs_f64(),
            replica: it.name,
            because: it.why.sentence(),
            moved_from: it.moved.and(it.home),
            moved_because: it.moved.map(|it| it.cause.sentence()),
            cached_tokens: it.terms.map(|it| it.cached_tokens),
            prompt_tokens: it.prompt_tokens,
        })
    });
    SessionSeen { key: key.to_string(), workload: named, home, visits: visits.collect() }
}

pub(in crate::admin) async fn workloads(
    State(router): State<Arc<Router>>,
) -> Json<Vec<WorkloadSeed>> {
    let pools = router.pools();
    let seeds = pools.iter().flat_map(|it| router.workload_seeds(it));
    let seed = |(name, seed): (String, u64)| WorkloadSeed { name, seed: format!("{seed:016x}") };
    Json(seeds.take(WORKLOADS_MAX).map(seed).collect())
}
