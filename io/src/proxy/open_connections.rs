//! The client connections that are open. When there are as many as there may be, those that have been
//! idle longest make room for a newcomer: else as many that say nothing would shut the port. One with a
//! request in flight is never ended.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::client::Client;

/// Of those that are idle, this part makes room at once, so that looking through all of them is rare.
const PART: usize = 32;
/// Entries of connections that have ended are looked for at this size, then at twice what is left.
const LOOK_MIN: usize = 256;

#[derive(Debug, Default)]
pub(super) struct OpenConnections(Mutex<ConnectionList>);

#[derive(Debug, Default)]
struct ConnectionList {
    clients: Vec<Weak<Client>>,
    look_at: usize,
}

impl OpenConnections {
    pub(super) fn enter(&self, client: &Arc<Client>) {
        // A panic elsewhere cannot leave a list half changed.
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.clients.push(Arc::downgrade(client));
        if open.look_at.max(LOOK_MIN) < open.clients.len() {
            open.clients.retain(|it| 0 < it.strong_count());
            open.look_at = 2 * open.clients.len();
        }
    }

    /// Ends some connections, those that have been idle longest. Returns how many.
    pub(super) fn make_room(&self) -> usize {
        let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let clients = open.clients.iter().filter_map(Weak::upgrade);
        let mut idle: Vec<_> = clients.filter_map(|it| Some((it.idle_since()?, it))).collect();
        idle.sort_by_key(|it| it.0);
        let some = idle.len().div_ceil(PART);
        idle.iter().take(some).filter(|it| it.1.end()).count()
    }
}
