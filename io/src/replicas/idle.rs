//! Connections between requests, one store per thread. The newest is taken first, so that the rest
//! age and are closed; engines close idle connections after five seconds, so none is kept as long.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use cleave_core::domain::ReplicaId;
use rustc_hash::FxHashMap;

use super::connection::Connection;

/// Below uvicorn's five seconds, which vLLM and SGLang keep.
const KEPT: Duration = Duration::from_secs(4);
const PER_REPLICA_MAX: usize = 256;

#[derive(Debug, Default)]
pub struct IdleConnections(Mutex<FxHashMap<ReplicaId, Vec<Idle>>>);

#[derive(Debug)]
struct Idle {
    connection: Connection,
    since: Instant,
}

impl IdleConnections {
    /// Takes a connection that is young and still stands.
    pub fn take(&self, replica: ReplicaId) -> Option<Connection> {
        let mut all = self.lock();
        let kept = all.get_mut(&replica)?;
        while let Some(Idle { mut connection, since }) = kept.pop() {
            if since.elapsed() < KEPT && connection.is_fresh() {
                return Some(connection);
            }
        }
        None
    }

    pub fn put(&self, replica: ReplicaId, connection: Connection) {
        let mut all = self.lock();
        let kept = all.entry(replica).or_default();
        if kept.len() < PER_REPLICA_MAX {
            kept.push(Idle { connection, since: Instant::now() });
        }
    }

    /// Closes what is too old, also towards replicas that get no requests any more.
    pub fn sweep(&self) {
        self.lock().retain(|_, kept| {
            kept.retain(|it| it.since.elapsed() < KEPT);
            !kept.is_empty()
        });
    }

    fn lock(&self) -> MutexGuard<'_, FxHashMap<ReplicaId, Vec<Idle>>> {
        // A panic elsewhere cannot leave a list of connections half changed.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
