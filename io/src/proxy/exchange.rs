//! The life of one request, top to bottom: intake, peek, pick, send, relay, settle. Everything that
//! can fail before the first byte fails here, and is tried elsewhere here; the settling hangs on
//! [`Visit`], which is dropped exactly once.

use std::sync::Arc;

use cleave_core::domain::{Extent, Outline, SliceKey};
use cleave_core::protocol::{
    Effect, KeptPath, PathVerdict, Peek, Route as Path, SessionId, health_body, path_verdict, peek,
};
use http::request::Parts;
use http::{Method, Request, Response, StatusCode, Version, header};
use hyper::body::Incoming;
use tracing::debug;

use crate::replicas::{Answer, Payload, Upload};
use crate::telemetry::TraceContext;
use crate::tokenizer::Count;

use super::body::Body;
use super::callers::{Caller, Owner};
use super::claim;
use super::client::Client;
use super::headers::{Framed, TRACEPARENT, clean_for_client, is_event_stream};
use super::intake::{self, Intake};
use super::kept_ids;
use super::outgoing;
use super::pool::Pool;
use super::relay::Relay;
use super::rescue::{ServeError, json};
use super::resume::{ResumableRequest, ResumeBuffer};
use super::router::Router;
use super::sending::{pass, try_each};
use super::table::Route;
use super::vetting::vet;
use super::visit::Visit;
use super::worker::Worker;

/// Answers one request, whatever it is.
pub(super) async fn exchange(
    worker: Arc<Worker>,
    client: Arc<Client>,
    request: Request<Incoming>,
) -> Response<Body> {
    let (parts, body) = request.into_parts();
    let request_id = intake::request_id(&parts.headers, || worker.fresh_id());
    let router = Arc::clone(&worker.router);
    let mut visit = Visit::new(router, parts.method.clone(), parts.uri.clone(), request_id);
    let given = parts.headers.get(TRACEPARENT).and_then(|it| TraceContext::read(it.as_bytes()));
    visit.client = Some(client.peer);
    visit.trace = worker.router.traces.begin(given, || worker.chance());
    visit.explain(&parts.headers);
    visit.session = intake::session(&parts.headers, &worker.router.settings.session_headers);
    let served = match own_answer(&worker, &parts) {
        Some(own) => own,
        None => match serve(&worker, &mut visit, &client, parts, body).await {
            Ok(served) => return relay(worker, visit, served, client),
            Err(error) => Err(visit.explained(error)),
        },
    };
    let mut answer = served.unwrap_or_else(|error| {
        debug!(%error, "request refused");
        visit.code = Some(error.code());
        error.answer(visit.api)
    });
    visit.answered(answer.status());
    visit.sign(answer.headers_mut());
    answer
}

/// Answers what no replica needs to be asked for.
fn own_answer(worker: &Worker, parts: &Parts) -> Option<Result<Response<Body>, ServeError>> {
    let hosts = parts.headers.get_all(header::HOST).iter().count();
    if 1 < hosts || (hosts == 0 && parts.version == Version::HTTP_11) {
        // As RFC 9112 has it: what stands before the router may have read another one.
        return Some(Err(ServeError::NotOneHost));
    }
    match (&parts.method, parts.uri.path()) {
        (&Method::CONNECT, _) => Some(Err(ServeError::Method { method: Method::CONNECT })),
        (&Method::GET | &Method::HEAD, "/health") => Some(Ok(health(&worker.router))),
        (&Method::GET, path) => {
            let listed = worker.router.table().answer(path)?;
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

/// What a replica answers, and the account it is for.
struct Served {
    answer: Answer,
    /// What is kept so that another replica can go on with it.
    resume_buffer: Option<Box<ResumeBuffer>>,
    account: Arc<Caller>,
}

async fn serve(
    worker: &Worker,
    visit: &mut Visit,
    client: &Client,
    parts: Parts,
    body: Incoming,
) -> Result<Served, ServeError> {
    // Intake and peek: the request, its caller and its session.
    let router = &worker.router;
    let path = open_path(router, &parts)?;
    let tenants = router.tenants();
    let caller = tenants.caller(&parts.headers).map_err(|_| ServeError::UnknownKey)?;
    visit.whose = caller.at.map(|at| (Arc::clone(&tenants), at));
    let owner = Owner::of(caller.tenant, client.peer);
    let (account, mut room) = intake::open(router, owner, &parts.headers)?;
    let reads = intake::must_read(path, &parts.method, &parts.headers);
    let taken = intake::take_body(router, &mut room, reads, body).await?;
    client.set_stage(parts.version, taken.stage());
    let body = taken.held();
    let mut found = body.as_ref().map(|it| peek(visit.api, it)).transpose()?.unwrap_or_default();
    let kept_path = KeptPath::read(parts.uri.path());
    let keeper = kept_ids::locate(visit, &caller, kept_path, &found)?;
    let named = visit.session.take().or(found.session.take()).or_else(|| kept_path.session());
    let session = named.unwrap_or_else(|| SessionId::bounded(worker.fresh_id().as_bytes()));
    let session = visit.session.insert(session).as_str();
    let model = found.model.as_deref();
    let route = kept_ids::route(&router.table(), keeper.as_ref(), visit.named.as_ref(), model)?;
    let Route { pool, model: known_as, is_adapter } = route;
    let model = known_as.as_deref().or(model).unwrap_or("");
    visit.model = Some(model.into());
    let workload = intake::workload(router, &parts.headers).unwrap_or(model);
    let key = SliceKey::new(caller.salt, workload, session);
    let spec = pool.spec();
    let resumes = found.stream && spec.resume;
    let (urgency, bytes) = (&found.urgency, taken.held_bytes());
    let claim =
        claim::claim(router.now(), &parts.headers, urgency, &caller, pool.classes(), bytes)?;

    let whose = (&router.salts, caller.identity);
    let out = outgoing::Outgoing::new(&spec, path, &taken, &found, whose)?;
    let splices = out.edits(&found, known_as.as_deref())?;

    // Pick: the decision and its booking are one step.
    let (mut outline, mut extent) = found.outline(model, out.seed());
    extent.output_tokens_max = output_tokens_max(&extent, path, kept_path);
    outline.kept_at = keeper.map(|it| it.place);
    outline.adapter = if is_adapter { extent.model } else { outline.adapter };
    outline.prompt_tokens = count(&pool, &found, &outline, &extent).await;
    let placed = visit.place(pool, key, (outline, extent), claim).await;
    let member = placed.map_err(|refusal| ServeError::refused(refusal, 0, None))?;
    #[cfg(test)]
    router.traps.at_request();

    // Send, and send elsewhere while nothing has come back.
    let passing = out.passing;
    let head = |framed| visit.head_for_replica(&parts.headers, framed, passing);
    let (answer, resume_buffer) = match taken {
        Intake::Passing(body) => {
            let framed = passing_framed(&body);
            let head = head(framed);
            let chunked = framed == Framed::Chunked;
            (pass(worker, visit, member, &head, body, chunked).await?, None)
        }
        Intake::Held(body) => {
            let payload = Payload::edited(&body, &splices);
            let head = head(Framed::Length(payload.len()));
            let answer = try_each(worker, visit, member, &head, &payload).await?;
            let headers = parts.headers;
            let kept = || ResumableRequest { body, share: room, headers, splices, passing };
            let buffer =
                resumes.then(kept).and_then(|it| ResumeBuffer::new(visit.api, &answer, it));
            (answer, buffer)
        }
        Intake::Nothing => {
            let bare = matches!(parts.method, Method::GET | Method::HEAD);
            let head = head(if bare { Framed::Nothing } else { Framed::Length(0) });
            (try_each(worker, visit, member, &head, &Payload::default()).await?, None)
        }
    };
    let answer = vet(visit, answer, passing)?;
    Ok(Served { answer, resume_buffer, account })
}

/// Reads the path of a request, and refuses one that may not pass.
fn open_path(router: &Router, parts: &Parts) -> Result<Path, ServeError> {
    let path = Path::read(parts.uri.path())?;
    let allowed = &router.settings.paths_allowed;
    match path_verdict(parts.method.as_str(), parts.uri.path(), path, allowed) {
        PathVerdict::Open => Ok(path),
        PathVerdict::Closed => Err(ServeError::ClosedPath),
        PathVerdict::Method => Err(ServeError::Method { method: parts.method.clone() }),
    }
}

/// Says how long an answer may be. What limits one in a form of its own is not read, and a question about what is kept
/// computes nothing.
fn output_tokens_max(extent: &Extent, path: Path, kept_path: KeptPath<'_>) -> Option<u32> {
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

fn passing_framed(body: &Upload<Incoming>) -> Framed {
    body.length().map_or(Framed::Chunked, Framed::Length)
}

/// Begins the answer to the client; the rest is read only as the client takes it.
fn relay(
    worker: Arc<Worker>,
    mut visit: Visit,
    served: Served,
    client: Arc<Client>,
) -> Response<Body> {
    let Served { answer: Answer { status, mut headers, body }, resume_buffer, account } = served;
    let stream = is_event_stream(&headers);
    let is_encoded = headers.contains_key(header::CONTENT_ENCODING);
    visit.answering(status, stream, is_encoded);
    clean_for_client(&mut headers, stream);
    visit.sign(&mut headers);
    let relay = Relay::new(worker, visit, body, stream, resume_buffer, &account, client);
    let mut answer = Response::new(Body::relay(Box::new(relay)));
    *answer.status_mut() = status;
    *answer.headers_mut() = headers;
    answer
}
