//! A replica that does what the test says, byte by byte: answers, breaks off, resets, hangs. It
//! passes health checks and says that it serves the model `m`, and that with the adapter `m-sql`, so
//! that the router takes it on.

use std::future::Future;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::WAIT_MAX;
use super::client::Request;
use super::wire::{Head, Wire};

const MODELS: &str = r#"{"object":"list","data":[{"id":"m","object":"model","parent":null},{"id":"m-sql","object":"model","parent":"m"}]}"#;

/// One request that reached the replica, and the connection to answer it on. Dropping it hangs up.
#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) head: Head,
    pub(crate) wire: Wire,
}

impl Exchange {
    /// Reads the whole body of the request.
    pub(crate) async fn body(&mut self) -> Vec<u8> {
        self.wire.body().await.expect("the request is whole")
    }

    pub(crate) async fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.wire.send(bytes.as_ref()).await;
    }

    /// Takes the request in, answers it and hangs up.
    pub(crate) async fn answer(mut self, bytes: impl AsRef<[u8]>) {
        self.body().await;
        self.send(bytes).await;
    }

    /// Sends one chunk.
    pub(crate) async fn chunk(&mut self, data: impl AsRef<[u8]>) {
        let data = data.as_ref();
        let mut chunk = format!("{:x}\r\n", data.len()).into_bytes();
        chunk.extend_from_slice(data);
        chunk.extend_from_slice(b"\r\n");
        self.send(chunk).await;
    }

    /// Hangs up in the rudest way.
    pub(crate) fn reset(self) {
        self.wire.stream.set_zero_linger().unwrap();
    }
}

/// What came so far: requests of clients, and questions for its models.
#[derive(Debug, Default)]
struct Counts {
    hits: AtomicUsize,
    listings: AtomicUsize,
}

/// A scripted replica; dropping it ends all it does.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) address: SocketAddr,
    counts: Arc<Counts>,
    _server: JoinSet<()>,
}

impl Scripted {
    /// Starts a replica that treats every request alike.
    pub(crate) async fn start<F>(behaviour: impl Fn(Exchange) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::start_on(listener, behaviour)
    }

    pub(crate) fn start_on<F>(
        listener: TcpListener,
        behaviour: impl Fn(Exchange) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        Self::start_behind(None, listener, behaviour)
    }

    /// Starts a replica that answers 401 to everything but health checks without its key.
    pub(crate) async fn guarded<F>(
        key: &'static str,
        behaviour: impl Fn(Exchange) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        Self::start_behind(Some(key), listener, behaviour)
    }

    fn start_behind<F>(
        key: Option<&'static str>,
        listener: TcpListener,
        behaviour: impl Fn(Exchange) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let address = listener.local_addr().unwrap();
        let counts = Arc::new(Counts::default());
        let (counted, behaviour) = (Arc::clone(&counts), Arc::new(behaviour));
        let mut server = JoinSet::new();
        server.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let (counts, behaviour) = (Arc::clone(&counted), Arc::clone(&behaviour));
                        connections.spawn(serve(accepted.unwrap().0, key, counts, behaviour));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Self { address, counts, _server: server }
    }

    /// Starts a replica whose requests the test answers by hand, in the order they come.
    pub(crate) async fn by_hand() -> (Self, Requests) {
        let (sender, receiver) = mpsc::channel(64);
        let replica = Self::start(move |exchange| {
            let sender = sender.clone();
            async move { _ = sender.send(exchange).await }
        });
        (replica.await, Requests(receiver))
    }

    /// Starts a replica that gives every client the same answer.
    pub(crate) async fn answering(bytes: impl Into<Vec<u8>>) -> Self {
        let bytes: Arc<[u8]> = bytes.into().into();
        Self::start(move |exchange| {
            let bytes = Arc::clone(&bytes);
            async move { exchange.answer(bytes).await }
        })
        .await
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Requests that reached it, the router's own questions aside.
    pub(crate) fn hits(&self) -> usize {
        self.counts.hits.load(Relaxed)
    }

    /// Waits until the router has heard which models it has, asked after this call.
    pub(crate) async fn until_listed(&self) {
        // The second question shows that the answer to the first has been read.
        let enough = self.counts.listings.load(Relaxed) + 2;
        let is_listed = async || enough <= self.counts.listings.load(Relaxed);
        super::eventually("it is asked for its models", is_listed).await;
    }
}

/// What a replica played by hand is asked.
#[derive(Debug)]
pub(crate) struct Requests(mpsc::Receiver<Exchange>);

impl Requests {
    pub(crate) async fn next(&mut self) -> Exchange {
        let next = timeout(WAIT_MAX, self.0.recv()).await.expect("a request comes in time");
        next.expect("the replica runs")
    }

    /// Opens a stream through the router and lets its first event come to the client. Returns both of
    /// its ends.
    pub(crate) async fn begin(
        &mut self,
        router: SocketAddr,
        request: &Request,
    ) -> (Wire, Exchange) {
        let (mut client, exchange) = self.open(router, request).await;
        client.head().await.unwrap();
        client.piece().await.unwrap().unwrap();
        (client, exchange)
    }

    /// Opens a stream whose first event the replica has sent and the client has not read.
    pub(crate) async fn open(&mut self, router: SocketAddr, request: &Request) -> (Wire, Exchange) {
        let (client, mut exchange) = self.ask(router, request).await;
        exchange.send(sse_head()).await;
        exchange.chunk("data: 1\n\n").await;
        (client, exchange)
    }

    /// Sends a request through the router, which the replica has read and not answered.
    pub(crate) async fn ask(&mut self, router: SocketAddr, request: &Request) -> (Wire, Exchange) {
        let mut client = Wire::connect(router).await;
        client.send(&request.bytes()).await;
        let mut exchange = self.next().await;
        exchange.body().await;
        (client, exchange)
    }
}

async fn serve<F>(
    stream: TcpStream,
    key: Option<&str>,
    counts: Arc<Counts>,
    behaviour: Arc<impl Fn(Exchange) -> F>,
) where
    F: Future<Output = ()>,
{
    stream.set_nodelay(true).unwrap();
    let mut wire = Wire::over(stream);
    let Some(head) = wire.head().await else { return };
    if head.first_line.starts_with("GET /health ") {
        _ = wire.try_send(json_answer(200, "{}").as_bytes()).await;
    } else if key.is_some_and(|it| head.header("authorization") != Some(&format!("Bearer {it}"))) {
        _ = wire.try_send(json_answer(401, r#"{"error":"Unauthorized"}"#).as_bytes()).await;
    } else if head.first_line.starts_with("GET /v1/models ") {
        counts.listings.fetch_add(1, Relaxed);
        _ = wire.try_send(json_answer(200, MODELS).as_bytes()).await;
    } else if head.headers.iter().all(|(name, _)| name != "x-request-id") {
        // A question of the router's own about metrics; those it passes on have an id.
        _ = wire.try_send(json_answer(404, "{}").as_bytes()).await;
    } else {
        counts.hits.fetch_add(1, Relaxed);
        behaviour(Exchange { head, wire }).await;
    }
}

/// Writes a whole answer with a JSON body.
pub(crate) fn json_answer(status: u16, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status} Word\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\
         connection: close\r\n\r\n{body}"
    )
}

/// Writes the head of a stream of events, in chunks.
pub(crate) const fn sse_head() -> &'static str {
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
}

/// Takes a port on which nothing listens, so that connections to it are refused. It stays taken as
/// long as the socket lives.
pub(crate) fn deaf() -> (TcpSocket, SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}
