//! The first half of a request's life, whichever way it came in: its sender, what it is, where it goes. `exchange`
//! has its own bytes sent there; `picked` tells another proxy to send them.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use cleave_core::domain::{Extent, Outline, SliceKey};
use cleave_core::protocol::{
    ApiPath, Edit, Effect, KeptPath, PathVerdict, Peek, SessionId, health_body, path_verdict, peek,
};
use http::request::Parts;
use http::{Method, Response, StatusCode, Version, header};
use tracing::debug;

use crate::telemetry::TraceContext;
use crate::tokenizer::Count;

use super::body::Body;
use super::chance::Chance;
use super::claim;
use super::headers::TRACEPARENT;
use super::intake::{self, BodyView};
use super::kept_ids;
use super::outgoing;
use super::pool::{Member, Pool};
use super::rescue::{ServeError, json};
use super::router::Router;
use super::settings::Passing;
use super::table::Route;
use super::tenants::RequestTenant;
use super::visit::Visit;

/// A request that has a replica.
pub(super) struct Placed {
    pub(super) member: Arc<Member>,
    /// What of it may reach engines.
    pub(super) passing: Passing,
    /// What of its body goes out otherwise than it came.
    pub(super) splices: Vec<Edit>,
    /// Whether its stream goes on from another replica when its own is lost.
    pub(super) resumes: bool,
}

/// Begins the account of a request.
pub(super) fn begin(
    router: &Arc<Router>,
    chance: &Chance,
    parts: &Parts,
    peer: IpAddr,
) -> Box<Visit> {
    let request_id = intake::request_id(&parts.headers, || chance.fresh_id());
    let (method, uri) = (parts.method.clone(), parts.uri.clone());
    // Boxed: it is large, and goes from the one that asks to the one that answers.
    let mut visit = Box::new(Visit::new(Arc::clone(router), method, uri, request_id));
    let given = parts.headers.get(TRACEPARENT).and_then(|it| TraceContext::read(it.as_bytes()));
    visit.asked.client = Some(peer);
    visit.trace = router.traces.begin(given, || chance.draw());
    visit.explain(&parts.headers);
    visit.asked.session = intake::session(&parts.headers, &router.settings.session_headers);
    visit
}

/// Writes the answer of the router itself.
pub(super) fn answer_itself(
    visit: &mut Visit,
    own: Result<Response<Body>, ServeError>,
) -> Response<Body> {
    let mut answer = own.unwrap_or_else(|error| {
        let error = visit.explained(error);
        debug!(%error, "request refused");
        visit.answer.code = Some(error.code());
        error.answer(visit.asked.api)
    });
    visit.answered(answer.status());
    visit.sign(answer.headers_mut());
    answer
}

/// Answers what no replica needs to be asked for.
pub(super) fn own_answer(
    router: &Router,
    parts: &Parts,
) -> Option<Result<Response<Body>, ServeError>> {
    let hosts = parts.headers.get_all(header::HOST).iter().count();
    if 1 < hosts || (hosts == 0 && parts.version == Version::HTTP_11) {
        // As RFC 9112 has it: what stands before the router may have read another one.
        return Some(Err(ServeError::NotOneHost));
    }
    match (&parts.method, parts.uri.path()) {
        (&Method::CONNECT, _) => {
            let (method, allow) = (Method::CONNECT, String::new());
            Some(Err(ServeError::Method { method, allow }))
        }
        (&Method::GET | &Method::HEAD, "/health") => Some(Ok(health(router))),
        (&Method::GET | &Method::HEAD, path) => {
            let listed = router.table().answer(path)?;
            Some(listed.map(|it| json(StatusCode::OK, it)))
        }
        _ => None,
    }
}

/// Says to load balancers on the client port whether the router serves; an engine's own health is not theirs
/// to ask for.
fn health(router: &Router) -> Response<Body> {
    let (status, word) = if router.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining")
    } else if router.is_ready() {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no_replica")
    };
    json(status, health_body(word).into())
}

/// Looks into a request and has it placed; the decision and its booking are one step.
pub(super) async fn pick(
    visit: &mut Visit,
    parts: &Parts,
    path: ApiPath,
    caller: &RequestTenant<'_>,
    taken: BodyView<'_>,
    fresh_id: impl FnOnce() -> String,
) -> Result<Placed, ServeError> {
    let router = Arc::clone(&visit.router);
    let mut found =
        taken.held().map(|it| peek(visit.asked.api, it)).transpose()?.unwrap_or_default();
    let kept_path = KeptPath::read(parts.uri.path());
    let keeper = kept_ids::locate(visit, caller, kept_path, &found)?;
    let named = visit.asked.session.take().or(found.session.take()).or_else(|| kept_path.session());
    let session = named.unwrap_or_else(|| SessionId::bounded(fresh_id().as_bytes()));
    let session = visit.asked.session.insert(session).as_str();
    let model = found.model.as_deref();
    let route =
        kept_ids::route(&router.table(), keeper.as_ref(), visit.asked.named.as_ref(), model)?;
    let Route { pool, model: known_as, is_adapter } = route;
    let model = known_as.as_deref().or(model).unwrap_or("");
    visit.asked.model = Some(model.into());
    let workload = intake::workload(&router, &parts.headers).unwrap_or(model);
    let key = SliceKey::new(caller.salt, workload, session);
    let spec = pool.spec();
    let resumes = found.stream && spec.resume;
    let (urgency, bytes) = (&found.urgency, taken.held().map_or(0, Bytes::len));
    let claim = claim::claim(router.now(), &parts.headers, urgency, caller, pool.classes(), bytes)?;

    let whose = (&router.salts, caller.identity);
    let out = outgoing::Outgoing::new(&spec, path, taken, &found, whose)?;
    let splices = out.edits(&found, known_as.as_deref())?;

    let (mut outline, mut extent) = found.outline(model, out.seed());
    extent.output_tokens_max = output_tokens_max(&extent, path, kept_path);
    outline.kept_at = keeper.map(|it| it.place);
    outline.adapter = if is_adapter { extent.model } else { outline.adapter };
    outline.prompt_tokens = count(&pool, &found, &outline, &extent).await;
    let placed = visit.place(pool, key, (outline, extent), claim).await;
    let member = placed.map_err(|refusal| ServeError::refused(refusal, 0, None))?;
    #[cfg(test)]
    router.traps.at_request();
    Ok(Placed { member, passing: out.passing, splices, resumes })
}

/// Reads the path of a request, and refuses one that may not pass.
pub(super) fn open_path(router: &Router, parts: &Parts) -> Result<ApiPath, ServeError> {
    let path = ApiPath::read(parts.uri.path())?;
    let allowed = &router.settings.paths_allowed;
    match path_verdict(parts.method.as_str(), parts.uri.path(), path, allowed) {
        PathVerdict::Open => Ok(path),
        PathVerdict::Closed => Err(ServeError::ClosedPath),
        PathVerdict::Method { allow } => {
            Err(ServeError::Method { method: parts.method.clone(), allow })
        }
    }
}

/// Says how long an answer may be. What limits one in a form of its own is not read, and a question about what is kept
/// computes nothing.
fn output_tokens_max(extent: &Extent, path: ApiPath, kept_path: KeptPath<'_>) -> Option<u32> {
    match kept_path {
        KeptPath::Item { .. } => Some(0),
        KeptPath::None | KeptPath::Collection => {
            extent.output_tokens_max.filter(|_| path.effect != Effect::Written)
        }
    }
}

/// Counts the tokens of a prompt, if its pool has a tokenizer that is done in time; else 0, and the
/// brain estimates them. An attachment's tokens are none of its words'.
async fn count(pool: &Pool, found: &Peek<'_>, outline: &Outline, extent: &Extent) -> u32 {
    let Some(tokenizer) = pool.tokenizer().filter(|_| extent.attachments == 0) else { return 0 };
    let counted = tokenizer.count(&outline.blocks, |blocks| found.text(blocks)).await;
    pool.metrics.on_counted(counted.as_str());
    if let Count::Tokens(tokens) = counted { tokens } else { 0 }
}
