//! A replica's death, and the requests that were there.

use std::time::Duration;

use crate::brain::request::Fingerprint;
use crate::domain::{Moment, ReplicaId};

/// Suspects that are remembered of one death.
pub(super) const WITNESSES_MAX: usize = 512;

/// How long broken connections may count as a death before a probe has confirmed it.
const OPEN_FOR: Duration = Duration::from_secs(2);

/// One request that was there when a replica died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::brain) struct Witness {
    pub(in crate::brain) fingerprint: Fingerprint,
    pub(in crate::brain) workload: u32,
    /// Whether nothing of its session was ever answered, as far as is known.
    pub(in crate::brain) is_new: bool,
}

#[derive(Debug)]
pub(super) struct Death {
    pub(super) replica: ReplicaId,
    pub(super) at: Moment,
    /// Whether something else than lost requests shows it: nothing listens there, it hangs, another
    /// process came. A connection can break without that.
    pub(super) confirmed: bool,
    /// In order.
    pub(super) members: Vec<Witness>,
}

impl Death {
    /// Adds requests that were there, as far as there is room.
    pub(super) fn add(&mut self, members: impl Iterator<Item = Witness>) {
        let room = WITNESSES_MAX - self.members.len();
        self.members.extend(members.filter(|it| it.fingerprint != Fingerprint(0)).take(room));
        self.members.sort_unstable();
        self.members.dedup();
    }

    pub(super) fn has(&self, fingerprint: Fingerprint) -> bool {
        self.members.binary_search_by_key(&fingerprint, |it| it.fingerprint).is_ok()
    }

    /// Tells whether it counts: as long as it is remembered, if it is confirmed or, where that is
    /// enough, may still be.
    pub(super) fn counts(&self, now: Moment, ttl: Duration, open: bool) -> bool {
        let age = now.since(self.at);
        age < ttl && (self.confirmed || open && age < OPEN_FOR)
    }
}
