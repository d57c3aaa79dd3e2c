//! Which other routers there are: those that are talked to, and the addresses that are tried. Two routers that dial each
//! other at once have two connections; the one that the router with the lower id dialled stays, which both know.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use cleave_core::cluster::{Hello, RouterAt};
use cleave_core::domain::RouterId;
use tokio_util::sync::CancellationToken;

/// How many addresses are tried.
const ADDRESSES_MAX: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Members(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    talking: BTreeMap<RouterId, Talking>,
    /// Addresses that are dialled, and the router that answered there last.
    dialled: BTreeMap<String, Option<RouterId>>,
    /// Names under which this router found itself.
    own_names: BTreeSet<String>,
    connections: u64,
}

#[derive(Debug)]
struct Talking {
    number: u64,
    dialler: RouterId,
    address: String,
    /// Ends the connection.
    end: CancellationToken,
}

/// A connection that stays.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) number: u64,
    /// Ends when another connection takes its place.
    pub(super) end: CancellationToken,
}

impl Members {
    /// Notes a connection to a router that has introduced itself; `None` where another one stays.
    pub(super) fn admit(&self, own: RouterId, peer: &Hello, has_dialled: bool) -> Option<Admitted> {
        let mut state = self.lock();
        let dialler = if has_dialled { own } else { peer.router };
        if let Some(known) = state.talking.get(&peer.router) {
            // A new one from the same end means that this end gave the old one up.
            if known.dialler != dialler && dialler != own.min(peer.router) {
                return None;
            }
            known.end.cancel();
        }
        state.connections += 1;
        let (number, end) = (state.connections, CancellationToken::new());
        let address = peer.address.clone();
        let talking = Talking { number, dialler, address, end: end.clone() };
        state.talking.insert(peer.router, talking);
        Some(Admitted { number, end })
    }

    /// Notes that a connection is over; tells whether that was the one to its router.
    pub(super) fn part(&self, router: RouterId, number: u64) -> bool {
        let mut state = self.lock();
        let is_last = state.talking.get(&router).is_some_and(|it| it.number == number);
        if is_last {
            state.talking.remove(&router);
        }
        is_last
    }

    /// Lists those that are talked to.
    pub(super) fn list(&self) -> Vec<RouterAt> {
        let state = self.lock();
        let member = |(router, it): (&RouterId, &Talking)| RouterAt {
            router: *router,
            address: it.address.clone(),
        };
        state.talking.iter().map(member).collect()
    }

    /// Tells whether a router is talked to.
    pub(super) fn is_present(&self, router: RouterId) -> bool {
        self.lock().talking.contains_key(&router)
    }

    /// Begins to dial an address; `false` where it is dialled already, or a router that is there is talked to.
    pub(super) fn begin(&self, address: &str) -> bool {
        let mut state = self.lock();
        let is_known = state.dialled.contains_key(address)
            || state.own_names.contains(address)
            || state.talking.values().any(|it| it.address == address);
        if is_known || ADDRESSES_MAX <= state.dialled.len() {
            return false;
        }
        state.dialled.insert(address.to_owned(), None);
        true
    }

    /// Notes which router answered at an address.
    pub(super) fn found(&self, address: &str, router: RouterId) {
        if let Some(it) = self.lock().dialled.get_mut(address) {
            *it = Some(router);
        }
    }

    /// Notes that this router itself is at an address.
    pub(super) fn note_itself(&self, address: &str) {
        let mut state = self.lock();
        if state.own_names.len() < ADDRESSES_MAX {
            state.own_names.insert(address.to_owned());
        }
    }

    pub(super) fn give_up(&self, address: &str) {
        self.lock().dialled.remove(address);
    }

    /// Tells whether the router that answered at an address is talked to.
    pub(super) fn is_talking(&self, address: &str) -> bool {
        let state = self.lock();
        let there = state.dialled.get(address).copied().flatten();
        there.is_some_and(|it| state.talking.contains_key(&it))
            || state.talking.values().any(|it| it.address == address)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change is made in one step.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(router: u64) -> Hello {
        let address = format!("10.0.0.{router}:7400");
        Hello { version: 1, version_min: 1, router: RouterId(router), address }
    }

    #[test]
    fn of_two_connections_both_ends_keep_the_same() {
        let (low, high) = (Members::default(), Members::default());
        // The connection that the lower one dialled comes first at one end, and last at the other.
        let first = low.admit(RouterId(1), &hello(2), true).unwrap();
        assert!(low.admit(RouterId(1), &hello(2), false).is_none());
        let other = high.admit(RouterId(2), &hello(1), true).unwrap();
        let second = high.admit(RouterId(2), &hello(1), false).unwrap();
        assert!(other.end.is_cancelled() && !first.end.is_cancelled());
        assert!(!high.part(RouterId(1), other.number), "another is in its place");
        assert!(high.part(RouterId(1), second.number));
    }

    #[test]
    fn an_address_is_dialled_once_and_one_that_talks_not_at_all() {
        let members = Members::default();
        assert!(members.begin("a:1") && !members.begin("a:1"));
        members.admit(RouterId(1), &hello(2), false).unwrap();
        assert!(!members.begin("10.0.0.2:7400") && members.is_talking("10.0.0.2:7400"));
        members.found("a:1", RouterId(2));
        assert!(members.is_talking("a:1"));
        members.give_up("a:1");
        assert!(members.begin("a:1"));
        assert_eq!(members.list().len(), 1);
    }
}
