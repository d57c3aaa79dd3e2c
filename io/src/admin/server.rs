//! The routes of the admin port.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router as Routes};
use serde::Deserialize;
use tokio::net::TcpListener;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::proxy::Router;
use crate::telemetry::MetricsFormat;

use super::assignment;
use super::events::events;
use super::explain::{self, Explained};
use super::load::Load;
use super::origin::OriginCheck;
use super::page::{self, LiveHub};
use super::record;
use super::routers::RouterList;
use super::scale::ScaleList;
use super::settings::AdminSettings;
use super::slots::ConnectionSlots;
use super::status::Status;
use super::tenants::TenantList;
use super::tokens::{Operator, guard};
use super::what_if::{self, WhatIfDesk};

/// For a request to be answered, however slowly its body comes. Streams of events only begin within it.
const REQUEST_LIMIT: Duration = Duration::from_secs(10);

/// A bound admin port that serves nothing yet.
#[derive(Debug)]
pub struct AdminServer {
    listener: TcpListener,
    app: Routes,
    router: Arc<Router>,
    hub: Arc<LiveHub>,
}

/// Why the admin port cannot start.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for admin: {error}")]
pub struct AdminBindError {
    pub address: SocketAddr,
    pub error: io::Error,
}

impl AdminServer {
    pub async fn bind(
        settings: &AdminSettings,
        router: Arc<Router>,
    ) -> Result<Self, AdminBindError> {
        let address = settings.listen;
        let listener =
            TcpListener::bind(address).await.map_err(|error| AdminBindError { address, error })?;
        let guarded = Routes::new()
            .route("/status", get(status))
            .route("/load", get(load))
            .route("/assignment", get(assignment::show))
            .route("/assignment/freeze", post(assignment::freeze))
            .route("/assignment/unfreeze", post(assignment::unfreeze))
            .route("/assignment/pin/{pool}/{workload}", post(assignment::pin))
            .route("/drain/{*replica}", post(assignment::drain))
            .route("/undrain/{*replica}", post(assignment::undrain))
            .route("/explain", get(explain_latest))
            .route("/explain/{*id}", get(explain_one))
            .route("/events", get(events))
            .route("/tenants", get(tenants))
            .route("/routers", get(routers))
            .route("/scale", get(scale))
            .route("/metrics", get(metrics))
            .route("/me", get(me))
            .route("/record", get(record::show).post(record::order))
            .route("/what-if", get(what_if::show).post(what_if::ask))
            .route("/live", get(page::live))
            .route("/waiting", get(page::waiting))
            .route("/requests", get(page::requests))
            .route("/session/{key}", get(page::session))
            .route("/workloads", get(page::workloads))
            .route_layer(from_fn_with_state(Arc::new(settings.tokens.clone()), guard))
            // What draws the page tells nothing of the fleet.
            .route("/", get(page::index))
            .route("/web/{*file}", get(page::file));
        // Probes of an orchestrator carry no token, and learn nothing but yes or no.
        let open = Routes::new().route("/healthz", get(healthz)).route("/readyz", get(readyz));
        let origin = Arc::new(OriginCheck::new(&settings.hosts, !settings.tokens.is_empty()));
        let hub = Arc::new(LiveHub::new(settings.compared.clone()));
        let desk = Arc::new(WhatIfDesk::new(settings.replayer.clone()));
        let guarded = guarded.layer(Extension(Arc::clone(&hub))).layer(Extension(desk));
        let guarded = guarded.fallback(unknown).layer(from_fn_with_state(origin, check));
        router.set_admin_certificate(settings.tls.as_ref());
        let app = guarded.merge(open).layer(from_fn(in_time)).with_state(Arc::clone(&router));
        Ok(Self { listener, app, router, hub })
    }

    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let (router, hub) = (self.router, self.hub);
        let acceptor = || router.admin_acceptor();
        let served =
            ConnectionSlots::default().serve(self.listener, self.app, acceptor, stop.clone());
        tokio::join!(served, hub.run(&router, &stop));
    }
}

/// Gives each request its time: a body that does not come takes no seat for long.
async fn in_time(request: Request, next: Next) -> Response {
    let answer = timeout(REQUEST_LIMIT, next.run(request)).await;
    answer.unwrap_or_else(|_| StatusCode::REQUEST_TIMEOUT.into_response())
}

async fn check(State(origin): State<Arc<OriginCheck>>, request: Request, next: Next) -> Response {
    let (parts, body) = request.into_parts();
    match origin.check(&parts) {
        Ok(()) => next.run(Request::from_parts(parts, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

async fn healthz() -> &'static str {
    "ok\n"
}

async fn readyz(State(router): State<Arc<Router>>) -> (StatusCode, &'static str) {
    if router.is_draining() {
        (StatusCode::SERVICE_UNAVAILABLE, "draining\n")
    } else if router.is_ready() {
        (StatusCode::OK, "ready\n")
    } else if router.sharing().is_some_and(|it| it.is_joining()) {
        (StatusCode::SERVICE_UNAVAILABLE, "joining other routers\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "no replica is up\n")
    }
}

/// What the token of a request is called, and whether it may give orders.
async fn me(Extension(operator): Extension<Operator>) -> Json<Operator> {
    Json(operator)
}

async fn status(State(router): State<Arc<Router>>) -> Json<Status> {
    Json(Status::of(&router))
}

async fn load(State(router): State<Arc<Router>>) -> Json<Load> {
    Json(Load::of(&router))
}

/// Which decisions are listed.
#[derive(Debug, Deserialize)]
struct Wanted {
    kept_for: Option<String>,
}

async fn explain_latest(
    State(router): State<Arc<Router>>,
    Query(wanted): Query<Wanted>,
) -> Json<Vec<Explained>> {
    Json(explain::latest(&router, wanted.kept_for).await)
}

async fn explain_one(
    State(router): State<Arc<Router>>,
    Path(id): Path<String>,
) -> Result<Json<Explained>, (StatusCode, String)> {
    explain::find(&router, &id).await.map(Json).map_err(|why| (StatusCode::NOT_FOUND, why))
}

async fn tenants(State(router): State<Arc<Router>>) -> Json<TenantList> {
    Json(TenantList::of_all(&router).await)
}

async fn routers(State(router): State<Arc<Router>>) -> Json<RouterList> {
    Json(RouterList::of(&router))
}

async fn scale(State(router): State<Arc<Router>>) -> Json<ScaleList> {
    Json(ScaleList::of(&router))
}

/// Writes what the scraper takes: `OpenMetrics` where it asks for that, else Prometheus' text.
async fn metrics(State(router): State<Arc<Router>>, headers: HeaderMap) -> impl IntoResponse {
    let accept = headers.get_all(header::ACCEPT).iter().filter_map(|it| it.to_str().ok());
    let format = MetricsFormat::accepted(&accept.collect::<Vec<_>>());
    ([(header::CONTENT_TYPE, format.content_type())], format.write(router.write_metrics()))
}

async fn unknown() -> (StatusCode, &'static str) {
    (
        StatusCode::NOT_FOUND,
        "there are GET / (the page), /healthz, /readyz, /status, /load, /events, /explain, /explain/REQUEST_ID, \
         /assignment, /tenants, /routers, /scale, /waiting, /requests, /session/KEY, /workloads, /live, \
         /record, /what-if, /me and /metrics, and POST /record, /what-if, /drain/HOST:PORT, /undrain/HOST:PORT, \
         /assignment/freeze, /assignment/unfreeze and /assignment/pin/POOL/WORKLOAD\n",
    )
}
