//! Several routers that decide as one: one long-lived TCP stream between each two, over which each tells what it does.
//! The protocol is `core/cluster`; here frames are carried, and what is heard is handed to the brains. A router that has
//! no peers runs none of this.
//!
//! Framed TCP and not HTTP/2: there is one stream in each direction, it is bounded by what the peer has heard, and
//! nothing else shares the connection. Frames are authenticated with a shared secret, or carried under TLS with
//! certificates on both ends, or both. What they hold is no secret of clients, for no text of a prompt or an answer is
//! in them.

mod connection;
mod dial;
mod electing;
mod handover;
mod handshake;
mod members;
mod questions;
mod securing;
mod settings;
mod store;
mod waking;

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cleave_core::cluster::{Election, Hello, StoreWord, VERSION, VERSION_MIN, View};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info};

use crate::proxy::{Router, Sharing, StoreStanding};

pub use handover::{hand_over, take_over};
pub use settings::{ClusterSettings, PeerAddress};
pub use store::{EtcdSettings, EtcdUser, KubernetesStoreSettings, StoreSettings};

use handshake::Side;
use members::Members;
use securing::Refusals;

/// How long a router that starts waits to be told what the others know.
const JOIN_WAIT: Duration = Duration::from_secs(2);
/// How long a handshake may take.
const GREETING_MAX: Duration = Duration::from_secs(3);
/// How long leaving may take.
const LEAVE_MAX: Duration = Duration::from_secs(1);
const BACKLOG: u32 = 128;
/// Strangers that may be on the way to introduce themselves.
const GREETINGS_MAX: usize = 64;

/// Why a router cannot take part.
#[derive(Debug, thiserror::Error)]
#[error("cannot listen on {address} for other routers: {error}")]
pub struct ClusterBindError {
    pub address: SocketAddr,
    pub error: io::Error,
}

/// Listens where the process before this one may still listen, until it has drained.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.set_reuseport(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// This router's part among the others.
#[derive(Debug)]
pub struct Cluster {
    settings: ClusterSettings,
    router: Arc<Router>,
    sharing: Arc<Sharing>,
    hello: Hello,
    members: Members,
    refusals: Refusals,
    election: Mutex<Election>,
    /// What this router sees, for the others.
    views: watch::Sender<View>,
    tasks: TaskTracker,
    /// Tasks that run beside the connections.
    started: Mutex<BTreeSet<&'static str>>,
    leave: CancellationToken,
}

impl Cluster {
    /// Binds the port for other routers, and has the pools tell what they do from their start on.
    pub fn bind(
        settings: ClusterSettings,
        router: Arc<Router>,
    ) -> Result<(Arc<Self>, TcpListener), ClusterBindError> {
        let address = settings.listen;
        let bound = listen(address).and_then(|it| Ok((it.local_addr()?, it)));
        let (address, listener) = bound.map_err(|error| ClusterBindError { address, error })?;
        let sharing = Sharing::new();
        let hello = Hello {
            version: VERSION,
            version_min: VERSION_MIN,
            router: sharing.router(),
            address: settings.advertise.clone().unwrap_or_else(|| address.to_string()),
        };
        router.share(Arc::clone(&sharing));
        sharing.set_tls(settings.tls.clone());
        sharing.set_joining(settings.expects_others() || settings.store.is_some());
        let mut election = Election::new(hello.router, settings.routers(&hello.address));
        if settings.store.is_some() {
            // What it keeps is read before anything is planned.
            election.on_store(StoreWord::Silent, true);
            sharing.set_store(StoreStanding::default());
        }
        sharing.set_standing(election.standing());
        let views = watch::Sender::new(election.view());
        let cluster = Self {
            settings,
            router,
            sharing,
            hello,
            members: Members::default(),
            refusals: Refusals::default(),
            election: Mutex::new(election),
            views,
            tasks: TaskTracker::new(),
            started: Mutex::default(),
            leave: CancellationToken::new(),
        };
        Ok((Arc::new(cluster), listener))
    }

    /// Where other routers reach this one.
    pub fn address(&self) -> &str {
        &self.hello.address
    }

    /// Talks to other routers until [`Cluster::leave`].
    pub async fn run(self: Arc<Self>, listener: Arc<TcpListener>) {
        info!(router = %self.hello.router, address = self.hello.address, "talks to other routers");
        for peer in &self.settings.peers {
            self.look_for(peer.as_str(), true);
        }
        if let Some(store) = self.settings.store.clone() {
            let cluster = Arc::clone(&self);
            let keeping = move || {
                let (cluster, store) = (Arc::clone(&cluster), store.clone());
                async move { cluster.keep_store(store).await }
            };
            self.start("store", keeping);
        }
        if let Some(source) = self.settings.discover.clone() {
            let cluster = Arc::clone(&self);
            self.start("discovery of routers", move || {
                let (cluster, source) = (Arc::clone(&cluster), source.clone());
                async move { cluster.discover(source).await }
            });
        }
        let joined = async {
            sleep(JOIN_WAIT).await;
            self.sharing.set_joining(false);
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = self.accept(&listener) => {}
            () = joined => {}
            () = self.leave.cancelled() => {}
        }
    }

    /// Starts a task once, and again if it panics; leaving waits for it.
    fn start<F>(&self, task: &'static str, start: impl FnMut() -> F + Send + 'static)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        if started.insert(task) {
            self.tasks.spawn(Arc::clone(&self.router).keep_up(task, start));
        }
    }

    /// Says goodbye to all, and waits until that is sent.
    pub async fn leave(&self) {
        self.leave.cancel();
        self.tasks.close();
        _ = timeout(LEAVE_MAX, self.tasks.wait()).await;
    }

    async fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let greetings = Arc::new(Semaphore::new(GREETINGS_MAX));
        loop {
            let Ok(permit) = Arc::clone(&greetings).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, from)) => {
                    let cluster = Arc::clone(self);
                    self.tasks.spawn(async move {
                        let from = from.ip().to_string();
                        let greeted = cluster.greet(stream, Side::Accepted, &from).await;
                        drop(permit);
                        match greeted {
                            Ok(connection) => _ = connection.talk(&cluster).await,
                            Err(error) => cluster.on_refused(&from, &error),
                        }
                    });
                }
                Err(error) => {
                    debug!(%error, "cannot accept a router");
                    sleep(Duration::from_millis(50)).await;
                }
            }
        }
    }

    /// Shakes hands on a fresh connection with the router at an address.
    async fn greet(
        &self,
        stream: TcpStream,
        side: Side,
        address: &str,
    ) -> Result<connection::PeerConnection, handshake::Refused> {
        // What is told must not wait for more to be told.
        _ = stream.set_nodelay(true);
        let (secret, tls) = (self.settings.secret.as_deref(), self.sharing.tls());
        let greeting = async {
            let stream = securing::secure(stream, side, tls.as_deref(), address).await?;
            handshake::shake(stream, side, secret).await
        };
        let greeted = timeout(GREETING_MAX, greeting).await;
        let session = greeted.map_err(|_| handshake::Refused::Late)??;
        Ok(connection::PeerConnection::new(session, side))
    }
}
