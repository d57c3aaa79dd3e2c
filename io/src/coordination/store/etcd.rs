//! A client of etcd for the few calls that are needed, as gRPC over the HTTP/2 that is here anyway. The crates that offer
//! a whole client need a compiler for protocol descriptions at every build, and reconnect and resume as little as this
//! one: what a lost connection means is for `core/cluster/tenure.rs`, not for a client.

use std::io;
use std::time::Duration;

use bytes::{BufMut as _, Bytes};
use cleave_core::cluster::{SeatHolder, StoreAnswer};
use cleave_core::domain::RouterId;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http2::{self, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};

use super::client::{StoreError, read_holder, write_holder};
use super::messages::{
    AuthenticateRequest, AuthenticateResponse, DoneResponse, LeaseGrantRequest, LeaseGrantResponse,
    LeaseKeepAliveResponse, LeaseRequest, PutRequest, RangeRequest, RangeResponse, StoredPair,
    TxnCompare, TxnRequest, TxnResponse, TxnStep,
};
use super::settings::EtcdSettings;

/// No answer is longer.
const ANSWER_BYTES_MAX: usize = 32 << 20;
/// Pools whose orders and plans are read at most.
const PAIRS_MAX: i64 = 10_000;
/// Before each message: whether it is compressed, and its length.
const FRAME_HEAD: usize = 5;
/// The key of the seat, below the prefix.
const SEAT: &str = "leader";
/// What is kept of pools, below the prefix.
const POOLS: &str = "pools/";
const GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
const GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const TOKEN: HeaderName = HeaderName::from_static("token");
/// A member that is cut off from the others says so instead of answering from what it knew.
const HAS_LEADER: HeaderName = HeaderName::from_static("hasleader");

/// Codes of gRPC.
const NOT_FOUND: &str = "5";
const UNAUTHENTICATED: &str = "16";

/// Where to send requests, and the task that carries them.
type DrivenConnection = (SendRequest<Full<Bytes>>, AbortOnDropHandle<()>);

/// A connection to one of the endpoints, made when it is needed.
pub(super) struct EtcdClient {
    settings: EtcdSettings,
    /// Which endpoint is asked.
    at: usize,
    connection: Option<DrivenConnection>,
    /// What the user is known by after the password was shown.
    token: Option<HeaderValue>,
    tasks: TaskTracker,
}

impl EtcdClient {
    pub(super) fn new(settings: EtcdSettings) -> Self {
        Self { settings, at: 0, connection: None, token: None, tasks: TaskTracker::new() }
    }

    pub(super) async fn grant(&mut self, ttl: Duration) -> Result<StoreAnswer, StoreError> {
        let ttl = i64::try_from(ttl.as_secs()).unwrap_or(i64::MAX).max(1);
        let path = "/etcdserverpb.Lease/LeaseGrant";
        let granted: LeaseGrantResponse = self.call(path, &LeaseGrantRequest { ttl }).await?;
        Ok(StoreAnswer::Granted { lease: granted.id, ttl: seconds(granted.ttl) })
    }

    pub(super) async fn renew(&mut self, lease: i64) -> Result<StoreAnswer, StoreError> {
        let path = "/etcdserverpb.Lease/LeaseKeepAlive";
        // A stream of one question.
        let renewed: LeaseKeepAliveResponse = self.call(path, &LeaseRequest { id: lease }).await?;
        Ok(StoreAnswer::Renewed { ttl: seconds(renewed.ttl) })
    }

    /// Gives a lease back, and with it the seat.
    pub(super) async fn revoke(&mut self, lease: i64) -> Result<(), StoreError> {
        // The question that was under way may hold the connection.
        self.reset();
        let path = "/etcdserverpb.Lease/LeaseRevoke";
        let _: DoneResponse = self.call(path, &LeaseRequest { id: lease }).await?;
        Ok(())
    }

    /// Takes the seat if it is free, and says which router has it.
    pub(super) async fn campaign(
        &mut self,
        own: RouterId,
        address: &str,
        lease: i64,
    ) -> Result<StoreAnswer, StoreError> {
        let key = self.key(SEAT);
        let value = write_holder(own, address).into_bytes();
        let put = PutRequest { key: key.clone(), value, lease };
        let range = RangeRequest { key: key.clone(), ..RangeRequest::default() };
        let txn = TxnRequest {
            compare: vec![made_at(key, 0)],
            success: vec![TxnStep { put: Some(put), range: None }],
            failure: vec![TxnStep { put: None, range: Some(range) }],
        };
        let done: TxnResponse = match self.call("/etcdserverpb.KV/Txn", &txn).await {
            Ok(done) => done,
            Err(StoreError::Refused { code, .. }) if code == NOT_FOUND => {
                return Ok(StoreAnswer::NoLease);
            }
            Err(error) => return Err(error),
        };
        if done.succeeded {
            let revision = done.header.ok_or(StoreError::Answer)?.revision;
            return Ok(StoreAnswer::Seat(Some(SeatHolder { router: own, revision, lease })));
        }
        let found = done.responses.into_iter().find_map(|it| it.range);
        let pair = found.and_then(|it| it.pairs.into_iter().next());
        Ok(StoreAnswer::Seat(pair.and_then(|it| holder(&it))))
    }

    /// Lists what is kept of pools, by names below the prefix.
    pub(super) async fn read(&mut self) -> Result<Vec<(String, Vec<u8>)>, StoreError> {
        let key = self.key(POOLS);
        let mut range_end = key.clone();
        // The first key that does not begin so: the last byte is a slash.
        if let Some(last) = range_end.last_mut() {
            *last += 1;
        }
        let prefix = key.len() - POOLS.len();
        let range = RangeRequest { key, range_end, limit: PAIRS_MAX };
        let found: RangeResponse = self.call("/etcdserverpb.KV/Range", &range).await?;
        let named = |it: StoredPair| {
            Some((String::from_utf8(it.key.get(prefix..)?.to_vec()).ok()?, it.value))
        };
        Ok(found.pairs.into_iter().filter_map(named).collect())
    }

    /// Writes a value if the seat was taken at this revision; tells whether it was.
    pub(super) async fn write(
        &mut self,
        fence: i64,
        name: &str,
        value: Vec<u8>,
    ) -> Result<bool, StoreError> {
        let put = PutRequest { key: self.key(name), value, lease: 0 };
        let txn = TxnRequest {
            compare: vec![made_at(self.key(SEAT), fence)],
            success: vec![TxnStep { put: Some(put), range: None }],
            failure: Vec::new(),
        };
        let done: TxnResponse = self.call("/etcdserverpb.KV/Txn", &txn).await?;
        Ok(done.succeeded)
    }

    /// Gives up what is under way: the next question goes to another endpoint.
    pub(super) fn reset(&mut self) {
        self.connection = None;
        self.at = (self.at + 1) % self.settings.endpoints.len().max(1);
    }

    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.settings.prefix).into_bytes()
    }

    async fn call<A: Message + Default>(
        &mut self,
        path: &'static str,
        question: &impl Message,
    ) -> Result<A, StoreError> {
        if let (None, Some(user)) = (&self.token, &self.settings.user) {
            let (name, password) = (user.name.clone(), user.password.clone());
            let shown = AuthenticateRequest { name, password };
            let known: AuthenticateResponse =
                self.exchange("/etcdserverpb.Auth/Authenticate", &shown).await?;
            let mut token = HeaderValue::try_from(known.token).map_err(|_| StoreError::Answer)?;
            token.set_sensitive(true);
            self.token = Some(token);
        }
        let answered = self.exchange(path, question).await;
        match &answered {
            Err(StoreError::Refused { code, message })
                if code == UNAUTHENTICATED || message.contains("auth") =>
            {
                // It expires when it was not used for some minutes, and with a restart of etcd.
                self.token = None;
            }
            Err(StoreError::Refused { code, .. }) if code == NOT_FOUND => {}
            Err(_) => self.reset(),
            Ok(_) => {}
        }
        answered
    }

    async fn exchange<A: Message + Default>(
        &mut self,
        path: &'static str,
        question: &impl Message,
    ) -> Result<A, StoreError> {
        let endpoint = self.settings.endpoints.get(self.at).cloned().unwrap_or_default();
        let request = self.request(&endpoint, path, question);
        if self.connection.as_ref().is_none_or(|it| it.0.is_closed()) {
            self.connection = Some(self.connect(&endpoint).await?);
        }
        let Some((sender, _)) = &mut self.connection else { return Err(StoreError::Answer) };
        let (parts, body) = sender.send_request(request).await?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|_| StoreError::Answer)?;
        let said = |name: &HeaderName| {
            let trailer = body.trailers().and_then(|it| it.get(name));
            let word = trailer.or_else(|| parts.headers.get(name))?;
            Some(String::from_utf8_lossy(word.as_bytes()).into_owned())
        };
        let code = said(&GRPC_STATUS).unwrap_or_else(|| parts.status.as_u16().to_string());
        if code != "0" {
            let message = said(&GRPC_MESSAGE).unwrap_or_else(|| "it says no more".to_owned());
            return Err(StoreError::Refused { code, message });
        }
        let bytes = body.to_bytes();
        let message = bytes.get(FRAME_HEAD..).ok_or(StoreError::Answer)?;
        A::decode(message).map_err(|_| StoreError::Answer)
    }

    fn request(
        &self,
        endpoint: &Uri,
        path: &'static str,
        question: &impl Message,
    ) -> Request<Full<Bytes>> {
        let mut framed = Vec::with_capacity(question.encoded_len() + FRAME_HEAD);
        framed.put_u8(0);
        framed.put_u32(u32::try_from(question.encoded_len()).unwrap_or(u32::MAX));
        framed.extend_from_slice(&question.encode_to_vec());
        let mut request = Request::new(Full::new(Bytes::from(framed)));
        *request.method_mut() = Method::POST;
        let uri = Uri::builder()
            .scheme(endpoint.scheme_str().unwrap_or("http"))
            .authority(endpoint.authority().map_or("", |it| it.as_str()))
            .path_and_query(path);
        *request.uri_mut() = uri.build().unwrap_or_default();
        let mut headers = HeaderMap::new();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
        headers.insert(HAS_LEADER, HeaderValue::from_static("true"));
        headers.extend(self.token.clone().map(|it| (TOKEN, it)));
        *request.headers_mut() = headers;
        request
    }

    async fn connect(&self, endpoint: &Uri) -> Result<DrivenConnection, StoreError> {
        let failed = |error| StoreError::Connect(endpoint.clone(), error);
        let host = endpoint.host().unwrap_or_default();
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        let port = endpoint.port_u16().unwrap_or(2379);
        let stream = TcpStream::connect((bare, port)).await.map_err(failed)?;
        _ = stream.set_nodelay(true);
        let Some(tls) = self.settings.tls.as_ref().filter(|_| is_secure(endpoint)) else {
            return self.begin(stream).await;
        };
        let tls = tls.current();
        let name = tls.server_name(host).ok_or_else(|| io::ErrorKind::InvalidInput.into());
        let connector = tls.connector_for(b"h2");
        let secure = connector.connect(name.map_err(failed)?, stream).await.map_err(failed)?;
        self.begin(secure).await
    }

    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
    ) -> Result<DrivenConnection, StoreError> {
        let (sender, connection) =
            http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
        let driver = self.tasks.spawn(async move {
            // The one that asks is told what ended it.
            _ = connection.await;
        });
        Ok((sender, AbortOnDropHandle::new(driver)))
    }
}

fn is_secure(endpoint: &Uri) -> bool {
    endpoint.scheme_str() == Some("https")
}

/// Asks whether a key was made at a revision; 0 for one that is not there.
fn made_at(key: Vec<u8>, revision: i64) -> TxnCompare {
    TxnCompare { result: 0, target: 1, key, create_revision: Some(revision) }
}

fn holder(pair: &StoredPair) -> Option<SeatHolder> {
    let router = read_holder(std::str::from_utf8(&pair.value).ok()?)?;
    Some(SeatHolder { router, revision: pair.create_revision, lease: pair.lease })
}

fn seconds(ttl: i64) -> Duration {
    Duration::from_secs(u64::try_from(ttl).unwrap_or(0))
}
