//! A picker with its listener, two replicas that say that they are well, and a proxy that speaks external processing.

use std::collections::BTreeMap;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;
use cleave_core::brain;
use futures_util::stream::poll_fn;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::body::Body;
use tonic::client::Grpc;
use tonic::{Status, Streaming};
use tonic_prost::ProstCodec;
use tower::Service;

use crate::picker::PickerServer;
use crate::picker::messages::{
    BodyChange, FULL_DUPLEX_STREAMED, HeaderField, HeaderList, HeaderMutation, HealthCheck,
    HealthStatus, HttpBody, HttpHeaders, ImmediateResponse, PartResponse, PickerMessage,
    ProcessingRequest, ProcessingResponse, ProtocolConfiguration, ProxyMessage, Struct,
    StructValue,
};
use crate::proxy::testing::{self, LONG};
use crate::proxy::{Router, Tenants};

pub(super) const PATH: &str = "/v1/chat/completions";
const DESTINATION: &str = "x-gateway-destination-endpoint";

pub(super) struct Bench {
    pub(super) router: Arc<Router>,
    pub(super) replicas: Vec<String>,
    channel: Channel,
    stop: CancellationToken,
    serving: JoinHandle<io::Result<usize>>,
    tasks: JoinSet<()>,
}

impl Bench {
    pub(super) async fn start() -> Self {
        let mut tasks = JoinSet::new();
        let mut replicas = Vec::new();
        for _ in 0..2 {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            replicas.push(listener.local_addr().unwrap().to_string());
            tasks.spawn(be_well(listener));
        }
        let router = testing::router();
        let urls: Vec<String> = replicas.iter().map(|it| format!("http://{it}")).collect();
        let mut pool = testing::pool("p", &urls, brain::Settings::default());
        pool.models = vec!["m".to_owned()];
        pool.aliases = BTreeMap::from([("alias".to_owned(), "m".to_owned())]);
        pool.brain.retries.tries_max = 1;
        router.apply(vec![pool], Tenants::default());
        let listener = testing::listener();
        let address = listener.local_addr().unwrap();
        let server = PickerServer::new(Arc::clone(&router), listener);
        let stop = CancellationToken::new();
        let (hurry, taken) = (CancellationToken::new(), CancellationToken::new());
        let serving = TaskTracker::new().spawn(server.run(stop.clone(), hurry, taken));
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) =
            handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tasks.spawn(async move { _ = connection.await });
        let bench = Self { router, replicas, channel: Channel(sender), stop, serving, tasks };
        let all_up = || {
            let pools = bench.router.pools();
            pools[0].snapshot().replicas.iter().filter(|it| it.state == "up").count() == 2
        };
        bench.until("both replicas are up", all_up).await;
        bench
    }

    /// Begins an exchange.
    pub(super) async fn call(&self) -> Exchange {
        let (sender, mut receiver) = mpsc::channel(1_000);
        let messages = poll_fn(move |cx| receiver.poll_recv(cx));
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let path = "/envoy.service.ext_proc.v3.ExternalProcessor/Process";
        let codec = ProstCodec::default();
        let request = tonic::Request::new(messages);
        let answered = grpc.streaming(request, path.parse().unwrap(), codec).await.unwrap();
        Exchange { sender: Some(sender), answers: answered.into_inner() }
    }

    pub(super) async fn health(&self, service: &str) -> Result<i32, Status> {
        let mut grpc = Grpc::new(self.channel.clone());
        grpc.ready().await.unwrap();
        let codec = ProstCodec::<HealthCheck, HealthStatus>::default();
        let asked = tonic::Request::new(HealthCheck { service: service.to_owned() });
        let path = "/grpc.health.v1.Health/Check".parse().unwrap();
        grpc.unary(asked, path, codec).await.map(|it| it.into_inner().status)
    }

    /// Waits until something holds.
    pub(super) async fn until(&self, what: &str, holds: impl Fn() -> bool) {
        let began = Instant::now();
        while !holds() {
            assert!(began.elapsed() < LONG, "{what}: never");
            sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    /// Ends it; all books are closed by then.
    pub(super) async fn end(mut self) {
        self.until("the books are empty", || self.router.in_flight() == 0).await;
        self.stop.cancel();
        // A proxy goes away when it is told that nothing more is served here.
        self.tasks.abort_all();
        let cut = timeout(LONG, self.serving).await.expect("it ends").unwrap().unwrap();
        assert_eq!(cut, 0);
    }
}

/// Answers every question of HTTP with 200.
async fn be_well(listener: TcpListener) {
    let mut all = JoinSet::new();
    while let Ok((mut stream, _)) = listener.accept().await {
        all.spawn(async move {
            let mut bytes = [0; 4096];
            while stream.read(&mut bytes).await.is_ok_and(|it| 0 < it) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}";
                if stream.write_all(answer).await.is_err() {
                    return;
                }
            }
        });
    }
}

/// One exchange as a proxy sees it.
pub(super) struct Exchange {
    sender: Option<mpsc::Sender<ProcessingRequest>>,
    pub(super) answers: Streaming<ProcessingResponse>,
}

impl Exchange {
    pub(super) fn send(&self, message: ProxyMessage) {
        self.send_with(message, FULL_DUPLEX_STREAMED, None);
    }

    pub(super) fn send_with(&self, message: ProxyMessage, mode: i32, details: Option<&str>) {
        let protocol_config =
            Some(ProtocolConfiguration { request_body_mode: mode, response_body_mode: mode });
        let attribute = |it| {
            let told = Struct::with("response.code_details", StructValue::text(it));
            ("envoy.filters.http.ext_proc".to_owned(), told)
        };
        let request = ProcessingRequest {
            request: Some(message),
            metadata_context: None,
            attributes: details.map(attribute).into_iter().collect(),
            protocol_config,
        };
        self.sender.as_ref().unwrap().try_send(request).unwrap();
    }

    /// Closes the proxy's side, as one does whose client left.
    pub(super) fn close(&mut self) {
        self.sender = None;
    }

    /// Waits for the next message; none at the end.
    pub(super) async fn next(&mut self) -> Option<ProcessingResponse> {
        timeout(LONG, self.answers.message()).await.expect("an answer comes").unwrap()
    }

    /// Waits for the destination, in answer to the head of a request.
    pub(super) async fn destination(&mut self) -> String {
        let message = self.next().await.unwrap();
        let Some(PickerMessage::RequestHeaders(head)) = &message.response else {
            panic!("{message:?}")
        };
        let named = header(mutation(head), DESTINATION).expect("a head names the destination");
        assert_eq!(told(&message).as_deref(), Some(named.as_str()), "both say the same");
        assert!(head.response.as_ref().unwrap().clear_route_cache);
        named
    }

    pub(super) async fn immediate(&mut self) -> ImmediateResponse {
        let message = self.next().await.unwrap();
        let Some(PickerMessage::Immediate(it)) = message.response else { panic!("{message:?}") };
        assert_eq!(self.next().await, None, "nothing comes after it");
        it
    }

    /// Plays a request with its body up to the destination.
    pub(super) async fn ask(&mut self, headers: &[(&str, &str)], body: &str) -> String {
        self.send(head(PATH, headers));
        self.send(request_body(body, true));
        let to = self.destination().await;
        assert_eq!(streamed(&self.next().await.unwrap()), (body.to_owned(), true));
        to
    }

    /// Plays an answer of the replica's, with `pieces`; each is passed on as it came.
    pub(super) async fn answer(&mut self, pieces: &[&str]) -> HeaderMutation {
        self.send(answer_head(200, "text/event-stream"));
        let message = self.next().await.unwrap();
        let Some(PickerMessage::ResponseHeaders(head)) = message.response else {
            panic!("{message:?}")
        };
        for (at, piece) in pieces.iter().enumerate() {
            let is_end = at + 1 == pieces.len();
            self.send(answer_body(piece, is_end));
            assert_eq!(streamed(&self.next().await.unwrap()), ((*piece).to_owned(), is_end));
        }
        mutation(&head).clone()
    }
}

pub(super) fn head(path: &str, headers: &[(&str, &str)]) -> ProxyMessage {
    let pseudo = [(":method", "POST"), (":path", path), (":authority", "gateway")];
    let usual = [("content-type", "application/json"), ("x-forwarded-for", "10.1.1.1")];
    let all = pseudo.iter().chain(&usual).chain(headers);
    let headers = HeaderList { headers: all.map(|(key, value)| field(key, value)).collect() };
    ProxyMessage::RequestHeaders(HttpHeaders { headers: Some(headers), end_of_stream: false })
}

pub(super) fn get(path: &str) -> ProxyMessage {
    let all = [(":method", "GET"), (":path", path), (":authority", "gateway")];
    let headers = HeaderList { headers: all.map(|(key, value)| field(key, value)).to_vec() };
    ProxyMessage::RequestHeaders(HttpHeaders { headers: Some(headers), end_of_stream: true })
}

pub(super) fn answer_head(status: u16, kind: &str) -> ProxyMessage {
    let all = [field(":status", &status.to_string()), field("content-type", kind)];
    let headers = HeaderList { headers: all.to_vec() };
    ProxyMessage::ResponseHeaders(HttpHeaders { headers: Some(headers), end_of_stream: false })
}

fn field(key: &str, value: &str) -> HeaderField {
    let raw_value = Bytes::copy_from_slice(value.as_bytes());
    HeaderField { key: key.to_owned(), value: String::new(), raw_value }
}

pub(super) fn request_body(text: &str, end_of_stream: bool) -> ProxyMessage {
    ProxyMessage::RequestBody(HttpBody { body: text.to_owned().into(), end_of_stream })
}

pub(super) fn answer_body(text: &str, end_of_stream: bool) -> ProxyMessage {
    ProxyMessage::ResponseBody(HttpBody { body: text.to_owned().into(), end_of_stream })
}

/// Reads the changes of a head.
pub(super) fn mutation(part: &PartResponse) -> &HeaderMutation {
    part.response.as_ref().unwrap().header_mutation.as_ref().unwrap()
}

pub(super) fn header(mutation: &HeaderMutation, name: &str) -> Option<String> {
    let mut fields = mutation.set_headers.iter().map(|it| it.header.as_ref().unwrap());
    let found = fields.find(|it| it.key == name)?;
    Some(String::from_utf8(found.raw_value.to_vec()).unwrap())
}

/// Reads the destination from the metadata.
pub(super) fn told(message: &ProcessingResponse) -> Option<String> {
    use crate::picker::messages::StructKind::Struct;
    let Some(Struct(lb)) = &message.dynamic_metadata.as_ref()?.fields.get("envoy.lb")?.kind else {
        return None;
    };
    Some(lb.fields.get(DESTINATION)?.as_text()?.to_owned())
}

/// Reads a piece that is passed on, and whether it is the last.
pub(super) fn streamed(message: &ProcessingResponse) -> (String, bool) {
    let Some(PickerMessage::RequestBody(part) | PickerMessage::ResponseBody(part)) =
        &message.response
    else {
        panic!("{message:?}")
    };
    let body = part.response.as_ref().and_then(|it| it.body_mutation.as_ref());
    let Some(BodyChange::Streamed(it)) = body.and_then(|it| it.mutation.as_ref()) else {
        panic!("{message:?}")
    };
    (String::from_utf8(it.body.to_vec()).unwrap(), it.end_of_stream)
}

/// A connection as tonic wants it.
#[derive(Clone)]
struct Channel(SendRequest<Body>);

impl Service<Request<Body>> for Channel {
    type Response = Response<Incoming>;
    type Error = hyper::Error;
    type Future = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<hyper::Result<()>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let path = request.uri().path().to_owned();
        *request.uri_mut() = format!("http://picker{path}").parse().unwrap();
        Box::pin(self.0.send_request(request))
    }
}
