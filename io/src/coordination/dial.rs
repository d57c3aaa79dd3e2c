//! Looks for other routers: at the addresses that are configured, for ever, and at those that peers tell of, for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cleave_core::cluster::{Election, RouterAt};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tracing::debug;

use super::handshake::Side;
use super::{Cluster, GREETING_MAX};
use crate::discovery::{self, FoundReplica, Source, SourceEvent};

/// Pauses between two tries grow from the first to the last.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// How often is looked whether a router is still there that came by itself.
const LOOK: Duration = Duration::from_millis(250);
/// How often addresses that a source gives are looked at again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
/// How long an address is tried that another router told of.
const TOLD_MAX: Duration = Duration::from_secs(60);

impl Cluster {
    /// Looks for a router at an address from now on.
    pub(super) fn look_for(self: &Arc<Self>, address: &str, is_configured: bool) {
        if address.is_empty() || address == self.hello.address || !self.members.begin(address) {
            return;
        }
        let (cluster, address) = (Arc::clone(self), address.to_owned());
        self.tasks.spawn(async move {
            let dialling = cluster.dial(&address, is_configured);
            _ = cluster.leave.run_until_cancelled(dialling).await;
            cluster.members.give_up(&address);
        });
    }

    /// Looks for routers that a peer knows.
    pub(super) fn on_members(self: &Arc<Self>, members: Vec<RouterAt>) {
        for it in members.into_iter().filter(|it| it.router != self.hello.router) {
            self.look_for(&it.address, false);
        }
    }

    /// Looks for routers where a source says that they are, for as long as it says so and a while longer. A router that
    /// is found counts among all from then on, so that those that are found together know how many they are.
    pub(super) async fn discover(self: Arc<Self>, source: Source) {
        let (sender, mut found) = watch::channel(Vec::new());
        let watching = discovery::watch(source, move |event| {
            if let SourceEvent::Found(routers) = event {
                let address = |it: FoundReplica| it.origin.authority().to_owned();
                _ = sender.send(routers.into_iter().map(address).collect::<Vec<String>>());
            }
        });
        let looking = async {
            loop {
                let there: Vec<String> = found.borrow_and_update().clone();
                // It lists all routers, this one among them.
                let count = u32::try_from(there.len()).unwrap_or(u32::MAX);
                self.elect(|it| it.on_configured(count));
                for address in &there {
                    self.look_for(address, false);
                }
                // One that is gone from the list and came back is looked for again.
                _ = timeout(LOOK_AGAIN, found.changed()).await;
            }
        };
        let both = async { tokio::join!(watching, looking) };
        _ = self.leave.run_until_cancelled(both).await;
    }

    async fn dial(self: &Arc<Self>, address: &str, is_configured: bool) {
        let mut pause = PAUSE_MIN;
        let mut seen_at = Instant::now();
        while is_configured || seen_at.elapsed() < TOLD_MAX {
            if self.members.is_talking(address) {
                (pause, seen_at) = (PAUSE_MIN, Instant::now());
                sleep(LOOK).await;
                continue;
            }
            match timeout(GREETING_MAX, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => match self.greet(stream, Side::Dialled, address).await {
                    Ok(connection) => {
                        // It says goodbye by itself when this router leaves.
                        let cluster = Arc::clone(self);
                        let talking =
                            self.tasks.spawn(async move { connection.talk(&cluster).await });
                        if let Ok(Some(router)) = talking.await {
                            if router == self.hello.router {
                                // This router itself is in the list of its peers, by another name.
                                self.members.note_itself(address);
                                if is_configured {
                                    self.elect(Election::on_itself);
                                }
                                return;
                            }
                            self.members.found(address, router);
                            (pause, seen_at) = (PAUSE_MIN, Instant::now());
                        }
                    }
                    Err(error) => self.on_refused(address, &error),
                },
                Ok(Err(error)) => debug!(address, %error, "no router there"),
                Err(_) => debug!(address, "no router there in time"),
            }
            sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }
}
