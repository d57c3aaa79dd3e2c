//! One replica of a pool, as the data plane needs it: where it is, when it was last heard, how many
//! wait for it, what it says of itself. Whether it may be used is the brain's to know.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use cleave_core::domain::{Moment, Place, ProcessAge, ReplicaId};
use cleave_core::protocol::Model;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::troubles::Troubles;
use crate::proxy::flow::ReplicaFlow;
use crate::proxy::settings::{Hosting, ReplicaSettings};
use crate::replicas::{Access, Origin, Trouble};
use crate::telemetry::ReplicaHandles;

/// What the router's key was used for at a replica.
#[derive(Clone, Copy, Debug)]
pub(in crate::proxy) enum KeyUse {
    /// To ask for its models.
    Models,
    Requests,
}

impl KeyUse {
    const fn bit(self) -> u8 {
        match self {
            Self::Models => 1,
            Self::Requests => 2,
        }
    }
}

/// A replica.
#[derive(Debug)]
pub(in crate::proxy) struct Member {
    pub id: ReplicaId,
    pub origin: Origin,
    pub(in crate::proxy) metrics: ReplicaHandles,
    /// How it does lately.
    pub(in crate::proxy) flow: ReplicaFlow,
    pub place: Place,
    /// What opens it; may change while it is there.
    access: ArcSwap<Access>,
    /// Answers by which it refused the router's key.
    denied: AtomicU64,
    /// What it refuses the router's key for, by bits.
    denying: AtomicU8,
    troubles: Mutex<Troubles>,
    was_up: AtomicBool,
    /// When a byte last came from it, in the clock's nanoseconds; 0 for never.
    last_byte: AtomicU64,
    /// How many wait for it at this moment, rather than for their client.
    awaited: AtomicU32,
    /// What it says it serves.
    pub(in crate::proxy) models: ArcSwap<Vec<Model>>,
    /// Which process answers there, where it tells.
    birth: Mutex<Option<ProcessAge>>,
    hosting: Mutex<Hosting>,
    /// Has it probed at once.
    pub(in crate::proxy) probe_now: Notify,
    /// Ends its probing.
    pub(in crate::proxy) gone: CancellationToken,
}

/// What changed of what an orchestrator says of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HostingChange {
    pub(super) is_restarted: bool,
    /// Whether it may be sent new work from now on, if that changed.
    pub(super) is_ready: Option<bool>,
}

impl Member {
    pub(super) fn new(
        id: ReplicaId,
        replica: &ReplicaSettings,
        metrics: ReplicaHandles,
    ) -> Arc<Self> {
        let (origin, hosting) = (replica.origin.clone(), Mutex::new(replica.hosting.clone()));
        let (denied, denying, troubles, was_up) = Default::default();
        let (last_byte, awaited, models, birth, gone, probe_now) = Default::default();
        let place = Place::of(origin.as_str());
        let access = ArcSwap::from_pointee(replica.access.clone());
        Arc::new(Self {
            id,
            origin,
            metrics,
            flow: ReplicaFlow::default(),
            place,
            access,
            denied,
            denying,
            troubles,
            was_up,
            last_byte,
            awaited,
            models,
            birth,
            hosting,
            probe_now,
            gone,
        })
    }

    pub(in crate::proxy) fn access(&self) -> Arc<Access> {
        self.access.load_full()
    }

    pub(super) fn set_access(&self, access: &Access) {
        if **self.access.load() != *access {
            self.access.store(Arc::new(access.clone()));
            self.denying.store(0, Relaxed);
        }
    }

    /// Tells whether something else than this runs at its address now.
    pub(super) fn is_replaced_by(&self, hosting: &Hosting) -> bool {
        let known = self.hosting.lock().unwrap_or_else(PoisonError::into_inner);
        known.unit.is_some() && hosting.unit.is_some() && known.unit != hosting.unit
    }

    /// Takes on what the orchestrator says now.
    pub(super) fn set_hosting(&self, hosting: &Hosting) -> HostingChange {
        let mut known = self.hosting.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *known, hosting.clone());
        let has_both = before.process.is_some() && hosting.process.is_some();
        let is_restarted = has_both && before.process != hosting.process;
        let is_ready = Some(hosting.is_ready).filter(|it| *it != before.is_ready);
        HostingChange { is_restarted, is_ready }
    }

    /// What its orchestrator calls it.
    pub(super) fn name(&self) -> Option<String> {
        let hosting = self.hosting.lock().unwrap_or_else(PoisonError::into_inner);
        hosting.name.as_deref().map(str::to_owned)
    }

    /// Tells whether its orchestrator lets new work go there.
    pub(in crate::proxy) fn is_ready(&self) -> bool {
        self.hosting.lock().unwrap_or_else(PoisonError::into_inner).is_ready
    }

    /// Counts an answer that refused the router's key; tells whether it is the first in a row.
    pub(in crate::proxy) fn on_denied(&self, what: KeyUse) -> bool {
        self.denied.fetch_add(1, Relaxed);
        self.denying.fetch_or(what.bit(), Relaxed) == 0
    }

    /// Notes that it takes the router's key. Many list their models without one, so that this says nothing of
    /// requests that it refused.
    pub(in crate::proxy) fn on_granted(&self, what: KeyUse) {
        if self.denying.load(Relaxed) & what.bit() != 0 {
            self.denying.fetch_and(!what.bit(), Relaxed);
        }
    }

    /// Notes what a probe found, if anything was wrong. Tells whether operators should be told of a replica that
    /// never came up: after its first probe, then after twice as many each time.
    pub(in crate::proxy) fn on_probed(&self, found: Option<&Trouble>) -> bool {
        let in_row = self.troubles().on_probed(found);
        if in_row == 0 {
            self.was_up.store(true, Relaxed);
        }
        !self.was_up.load(Relaxed) && in_row.is_power_of_two()
    }

    /// Notes why it could not be connected to for something else than a probe.
    pub(in crate::proxy) fn note_trouble(&self, found: &Trouble) {
        self.troubles().on_try_failed(found);
    }

    /// Notes that it could be connected to for something else than a probe.
    pub(in crate::proxy) fn on_connected(&self) {
        self.troubles().on_connected();
    }

    /// What was last found wrong, if it still is.
    pub(in crate::proxy) fn trouble(&self) -> Option<Trouble> {
        self.troubles().last().cloned()
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(in crate::proxy) fn denied_total(&self) -> u64 {
        self.denied.load(Relaxed)
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
