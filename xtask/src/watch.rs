//! Looks at the router's own view of its replicas, many times a second, and writes down every change
//! with its time. This is how it is known when a fault was noticed, and whether a replica was put out
//! that had none.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Deserialize;

use crate::http1;
use crate::rig::TOKEN;

const LOOK: Duration = Duration::from_millis(25);

/// A replica's state changed, as far as the router is concerned.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub(crate) at: Instant,
    pub(crate) url: String,
    /// Whether it takes requests as a matter of course.
    pub(crate) up: bool,
    /// Whether it was judged unfit, and not only doubted.
    pub(crate) out: bool,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
}

#[derive(Deserialize)]
struct Status {
    pools: Vec<PoolStatus>,
}

#[derive(Deserialize)]
struct PoolStatus {
    replicas: Vec<ReplicaStatus>,
}

#[derive(Deserialize)]
struct ReplicaStatus {
    url: String,
    state: String,
    reason: Option<String>,
}

pub(crate) struct Watch {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Change>>,
}

impl Watch {
    pub(crate) fn start(admin: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let mut changes: Vec<Change> = Vec::new();
            while !seen.load(Relaxed) {
                // While the router restarts nothing answers.
                for replica in look(admin).unwrap_or_default() {
                    note(&mut changes, replica);
                }
                thread::sleep(LOOK);
            }
            changes
        });
        Self { stop, thread }
    }

    pub(crate) fn stop(self) -> Vec<Change> {
        self.stop.store(true, Relaxed);
        self.thread.join().expect("the watch does not panic")
    }
}

/// Tells whether the router has put a replica out.
pub(crate) fn is_out(admin: SocketAddr, url: &str) -> bool {
    look(admin).unwrap_or_default().iter().any(|it| it.url == url && it.state == "out")
}

fn look(admin: SocketAddr) -> Option<Vec<ReplicaStatus>> {
    let (_, body) = http1::get_as(TOKEN, admin, "/status").ok()?;
    let status: Status = serde_json::from_slice(&body).ok()?;
    Some(status.pools.into_iter().flat_map(|it| it.replicas).collect())
}

fn note(changes: &mut Vec<Change>, now: ReplicaStatus) {
    let before = changes.iter().rev().find(|it| it.url == now.url);
    if before.is_some_and(|it| it.state == now.state && it.reason == now.reason) {
        return;
    }
    let ReplicaStatus { url, state, reason } = now;
    // A new process knows no replica yet, which is no judgement.
    let up = matches!(state.as_str(), "up" | "joining");
    let out = state == "out";
    changes.push(Change { at: Instant::now(), url, up, out, state, reason });
}
