//! One replica of a pool, as the data plane needs it: where it is, when it was last heard, how many
//! wait for it, what it says of itself. Whether it may be used is the brain's to know.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use cleave_core::domain::{Moment, Place, ProcessAge, ReplicaId};
use cleave_core::protocol::Model;
use tokio_util::sync::CancellationToken;

use crate::replicas::Origin;

/// A replica.
#[derive(Debug)]
pub(in crate::proxy) struct Member {
    pub id: ReplicaId,
    pub origin: Origin,
    pub place: Place,
    /// When a byte last came from it, in the clock's nanoseconds; 0 for never.
    last_byte: AtomicU64,
    /// How many wait for it at this moment, rather than for their client.
    awaited: AtomicU32,
    /// What it says it serves.
    pub(in crate::proxy) models: ArcSwap<Vec<Model>>,
    /// Which process answers there, where it tells.
    birth: Mutex<Option<ProcessAge>>,
    /// Ends its probing.
    pub(in crate::proxy) gone: CancellationToken,
}

impl Member {
    pub(super) fn new(id: ReplicaId, origin: Origin) -> Arc<Self> {
        let (last_byte, awaited, models, birth, gone) = Default::default();
        let place = Place::of(origin.as_str());
        Arc::new(Self { id, origin, place, last_byte, awaited, models, birth, gone })
    }

    pub(in crate::proxy) fn on_byte(&self, now: Moment) {
        self.last_byte.store(now.as_nanos(), Relaxed);
    }

    /// Counts a request that waits for it, until that is dropped.
    pub(in crate::proxy) fn wait(self: &Arc<Self>) -> WaitingRequest {
        self.awaited.fetch_add(1, Relaxed);
        WaitingRequest(Arc::clone(self))
    }

    /// Notes what its engine says of its own life; tells whether that is another one than before.
    pub(in crate::proxy) fn is_reborn(&self, birth: ProcessAge) -> bool {
        let mut known = self.birth.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.replace(birth);
        before.is_some_and(|it| birth.is_after(&it))
    }

    /// Tells whether any request waits for it.
    pub(super) fn is_awaited(&self) -> bool {
        0 < self.awaited.load(Relaxed)
    }

    pub(in crate::proxy) fn last_byte_at(&self) -> Option<Moment> {
        let nanos = self.last_byte.load(Relaxed);
        (nanos != 0).then(|| Moment::from_nanos(nanos))
    }
}

/// A request that waits for a replica.
#[derive(Debug)]
pub(in crate::proxy) struct WaitingRequest(Arc<Member>);

impl Drop for WaitingRequest {
    fn drop(&mut self) {
        self.0.awaited.fetch_sub(1, Relaxed);
    }
}
