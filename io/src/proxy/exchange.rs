//! The life of one request, top to bottom: intake, peek, pick, send, relay, settle. Everything that
//! can fail before the first byte fails here, and is tried elsewhere here; the settling hangs on
//! [`Visit`], which is dropped exactly once.

use std::sync::Arc;

use http::request::Parts;
use http::{Method, Request, Response, header};
use hyper::body::Incoming;

use crate::replicas::{Answer, Payload, Upload};

use super::body::Body;
use super::callers::{Caller, Owner};
use super::client::Client;
use super::headers::{Framed, clean_for_client, is_event_stream};
use super::intake::{self, Intake};
use super::pick::{self, Placed};
use super::relay::Relay;
use super::rescue::ServeError;
use super::resume::{ResumableRequest, ResumeBuffer};
use super::sending::{pass, try_each};
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
    let mut visit = pick::begin(&worker.router, &worker.chance, &parts, client.peer);
    let served = match pick::own_answer(&worker.router, &parts) {
        Some(own) => own,
        None => match serve(&worker, &mut visit, &client, parts, body).await {
            Ok(served) => return relay(worker, visit, served, client),
            Err(error) => Err(error),
        },
    };
    pick::answer_itself(&mut visit, served)
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
    let path = pick::open_path(router, &parts)?;
    let tenants = router.tenants();
    let caller = tenants.caller(&parts.headers).map_err(|_| ServeError::UnknownKey)?;
    visit.asked.whose = caller.at.map(|at| (Arc::clone(&tenants), at));
    let owner = Owner::of(caller.tenant, client.peer);
    let (account, mut room) = intake::open(router, owner, &parts.headers)?;
    let reads = intake::must_read(path, &parts.method, &parts.headers);
    let taken = intake::take_body(router, &mut room, reads, body).await?;
    client.set_stage(parts.version, taken.stage());
    let fresh = || worker.chance.fresh_id();
    let placed = pick::pick(visit, &parts, path, &caller, taken.view(), fresh).await?;
    let Placed { member, passing, splices, resumes } = placed;

    // Send, and send elsewhere while nothing has come back.
    let head = |framed| visit.head_for_replica(&parts.headers, framed, passing);
    let (mut answer, resume_buffer) = match taken {
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
                resumes.then(kept).and_then(|it| ResumeBuffer::new(visit.asked.api, &answer, it));
            (answer, buffer)
        }
        Intake::Nothing => {
            let bare = matches!(parts.method, Method::GET | Method::HEAD);
            let head = head(if bare { Framed::Nothing } else { Framed::Length(0) });
            (try_each(worker, visit, member, &head, &Payload::default()).await?, None)
        }
    };
    vet(visit, answer.status, &mut answer.headers, passing)?;
    Ok(Served { answer, resume_buffer, account })
}

fn passing_framed(body: &Upload<Incoming>) -> Framed {
    body.length().map_or(Framed::Chunked, Framed::Length)
}

/// Begins the answer to the client; the rest is read only as the client takes it.
fn relay(
    worker: Arc<Worker>,
    mut visit: Box<Visit>,
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
