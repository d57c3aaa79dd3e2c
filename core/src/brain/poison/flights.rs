//! What is in flight, as far as poison must know it: where each request is, what its prompt is, and whether
//! its session is new. An index of its own, so that a death, or a suspect's copy, is found without the books.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::brain::request::{Booking, Fingerprint};
use crate::domain::{ReplicaId, RequestId, SliceKey};

/// The requests in flight. As many as the books have.
#[derive(Debug, Default)]
pub(super) struct Flights(IndexMap<RequestId, Flight, FxBuildHasher>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Flight {
    pub(super) replica: ReplicaId,
    pub(super) key: SliceKey,
    pub(super) fingerprint: Fingerprint,
    /// Nothing of its session was sent before it, and its answer has not begun.
    pub(super) is_new: bool,
}

impl Flight {
    pub(super) const fn of(booking: &Booking) -> Self {
        let Booking { replica, key, fingerprint, .. } = *booking;
        let is_new = booking.past.is_first && booking.account.first.is_none();
        Self { replica, key, fingerprint, is_new }
    }
}

impl Flights {
    pub(super) fn on_sent(&mut self, request: RequestId, booking: &Booking) {
        self.0.insert(request, Flight::of(booking));
    }

    pub(super) fn on_answering(&mut self, request: RequestId) {
        if let Some(it) = self.0.get_mut(&request) {
            it.is_new = false;
        }
    }

    pub(super) fn on_closed(&mut self, request: RequestId) {
        self.0.swap_remove(&request);
    }

    pub(super) fn get(&self, request: RequestId) -> Option<&Flight> {
        self.0.get(&request)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Flight> {
        self.0.values()
    }

    /// Counts the copies of a prompt.
    pub(super) fn copies(&self, fingerprint: Fingerprint) -> usize {
        self.iter().filter(|it| it.fingerprint == fingerprint).count()
    }
}
