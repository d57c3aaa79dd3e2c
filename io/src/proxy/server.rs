//! The threads behind the listener. One socket accepts, and hands each connection to the
//! thread with the fewest: a socket per thread would leave the balance to a hash, and a few long
//! streams on one thread to luck.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc::error::SendError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};

use super::client::Client;
use super::listener::Listener;
use super::open_connections::OpenConnections;
use super::panics::contained;
use super::router::Router;
use super::worker::{Accepted, Ending, Worker};

/// How often is looked for idle connections while a newcomer waits.
const LOOK: Duration = Duration::from_millis(100);
/// Accepted connections that wait for their thread.
const HANDED_MAX: usize = 256;
/// How long to wait after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// What carries requests itself.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    router: Arc<Router>,
}

struct Thread {
    accepted: mpsc::Sender<Accepted>,
    load: Arc<AtomicUsize>,
    ended: oneshot::Receiver<()>,
    handle: JoinHandle<()>,
}

impl Server {
    pub const fn new(router: Arc<Router>, listener: Listener) -> Self {
        Self { listener, router }
    }

    /// Serves until `stop`, then takes no more connections and lets requests finish, as long as the
    /// drain may take or until `hurry`. Unless the socket is `taken` by another process, it ends.
    /// Returns how many were cut.
    pub async fn run(
        self,
        stop: CancellationToken,
        hurry: CancellationToken,
        taken: CancellationToken,
    ) -> io::Result<usize> {
        let ending = Ending::default();
        let mut threads = Vec::new();
        for number in 0..self.router.settings.threads.get() {
            threads.push(self.start_thread(number, &ending)?);
        }
        let listener = self.listener.accepting()?;
        let mut acceptor = Acceptor {
            server: &self,
            ending: &ending,
            listener: &listener,
            places: Arc::new(Semaphore::new(self.listener.connections_max)),
            open_connections: OpenConnections::default(),
            threads,
        };
        _ = stop.run_until_cancelled(acceptor.keep_open()).await;
        let threads = acceptor.threads;

        self.router.start_draining();
        if !taken.is_cancelled() {
            self.listener.close();
        }
        drop(listener);
        ending.drain.cancel();
        let mut handles = Vec::new();
        let mut ended = Vec::new();
        for thread in threads {
            // Dropping the sender says that no connection comes any more.
            ended.push(thread.ended);
            handles.push(thread.handle);
        }
        let all = async {
            for end in ended {
                // An error means that the thread is gone, which is an end too.
                _ = end.await;
            }
        };
        let limit = self.router.settings.timeouts.drain;
        let in_time = timeout(limit, hurry.run_until_cancelled(all)).await;
        let cut = if matches!(in_time, Ok(Some(()))) { 0 } else { self.router.in_flight() };
        ending.cut.cancel();
        for handle in handles {
            _ = tokio::task::spawn_blocking(move || handle.join()).await;
        }
        self.router.flush();
        Ok(cut)
    }

    fn start_thread(&self, number: usize, ending: &Ending) -> io::Result<Thread> {
        let (accepted, receiver) = mpsc::channel(HANDED_MAX);
        let (end, ended) = oneshot::channel();
        let load = Arc::new(AtomicUsize::new(0));
        let router = Arc::clone(&self.router);
        let worker = Worker::new(router, ending.clone(), Arc::clone(&load));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle =
            std::thread::Builder::new().name(format!("proxy-{number}")).spawn(move || {
                runtime.block_on(worker.run(receiver));
                _ = end.send(());
            })?;
        Ok(Thread { accepted, load, ended, handle })
    }
}

/// Where connections come in.
struct Acceptor<'a> {
    server: &'a Server,
    ending: &'a Ending,
    listener: &'a tokio::net::TcpListener,
    places: Arc<Semaphore>,
    open_connections: OpenConnections,
    threads: Vec<Thread>,
}

impl Acceptor<'_> {
    /// Accepts for ever, whatever happens.
    async fn keep_open(&mut self) {
        while contained(Box::pin(self.accept())).await.is_err() {
            self.server.router.metrics.on_panic("thread");
            sleep(ACCEPT_PAUSE).await;
        }
    }

    async fn accept(&mut self) {
        loop {
            let accepted = self.listener.accept().await;
            match accepted.and_then(|(stream, peer)| Ok((stream.into_std()?, peer.ip()))) {
                Ok((stream, peer)) => {
                    let Some(place) = self.find_place().await else { return };
                    let client = Arc::new(Client::new(peer, self.server.router.clock));
                    self.open_connections.enter(&client);
                    self.hand_over(Accepted { stream, client, place }).await;
                }
                Err(error) => {
                    warn!(%error, "cannot accept");
                    // Out of file descriptors, most likely: trying at once would spin.
                    sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Finds a place for a newcomer. With all of them taken, idle connections make room; if none is idle, it
    /// and all that come after it wait until one ends.
    async fn find_place(&self) -> Option<OwnedSemaphorePermit> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Some(place);
        }
        loop {
            self.open_connections.make_room();
            if let Ok(place) = timeout(LOOK, Arc::clone(&self.places).acquire_owned()).await {
                return place.ok();
            }
        }
    }

    /// Gives a connection to the thread with the fewest. A thread that is gone has another started in its
    /// place, so that its share of connections is not lost.
    async fn hand_over(&mut self, mut accepted: Accepted) {
        for _ in 0..2 {
            let loads = self.threads.iter().map(|it| it.load.load(Relaxed)).enumerate();
            let Some((number, _)) = loads.min_by_key(|it| it.1) else { return };
            let idlest = &self.threads[number];
            idlest.load.fetch_add(1, Relaxed);
            match idlest.accepted.send(accepted).await {
                Ok(()) => return,
                Err(SendError(back)) => accepted = back,
            }
            self.server.router.metrics.on_panic("thread");
            error!(number, "a proxy thread is gone; starting another");
            match self.server.start_thread(number, self.ending) {
                Ok(thread) => self.threads[number] = thread,
                Err(error) => {
                    warn!(%error, "cannot start a thread");
                    return sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpStream;

    use crate::proxy::testing;

    use super::*;

    #[tokio::test]
    async fn a_thread_that_is_gone_is_replaced_and_the_connection_is_served() {
        let listener = testing::listener();
        let address = listener.local_addr().unwrap();
        let server = Server::new(testing::router(), listener);
        let ending = Ending::default();
        let listener = server.listener.accepting().unwrap();
        let mut gone = server.start_thread(0, &ending).unwrap();
        gone.accepted = mpsc::channel(1).0;
        let places = Arc::new(Semaphore::new(8));
        let mut acceptor = Acceptor {
            server: &server,
            ending: &ending,
            listener: &listener,
            places,
            open_connections: OpenConnections::default(),
            threads: vec![gone],
        };
        let mut client = TcpStream::connect(address).await.unwrap();
        let asking = async {
            let ask = b"GET /v1/models HTTP/1.1\r\nhost: r\r\nconnection: close\r\n\r\n";
            client.write_all(ask).await.unwrap();
            let mut answer = String::new();
            client.read_to_string(&mut answer).await.unwrap();
            answer
        };
        let answer = tokio::select! {
            answer = asking => answer,
            () = acceptor.keep_open() => unreachable!("the door stays open"),
        };
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        ending.cut.cancel();
        let metrics = server.router.write_metrics();
        assert!(metrics.contains("cleave_panics_total{kind=\"thread\"} 1"), "{metrics}");
    }
}
