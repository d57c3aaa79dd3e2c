//! What operators should know: every change of a replica's state with its reason, which requests are
//! quarantined. The brain writes notices beside its actions; its driver takes them and publishes them.
//! They change nothing, so a driver may leave them: what is not taken is bounded, and the oldest go
//! first.

use std::collections::VecDeque;

use crate::domain::{ReplicaId, SliceKey};
use crate::fleet::{Silence, State};

use super::poison::QuarantineScope;
use super::request::Fingerprint;

/// Notices kept for a driver that has not taken them yet.
const NOTICES_MAX: usize = 1024;

/// One thing that operators should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notice {
    /// A replica joined; changes of its state are reported from here on.
    Joined { replica: ReplicaId },
    /// A replica's state changed; for a hang, the silence that showed it.
    Changed { replica: ReplicaId, before: State, now: State, silence: Option<Silence> },
    /// Another process answers at the replica's address, with a cold cache.
    Restarted { replica: ReplicaId },
    /// A request that brought replicas down, the last of them this one, is refused from now on; so are
    /// those in its scope.
    Quarantined {
        replica: ReplicaId,
        key: SliceKey,
        fingerprint: Fingerprint,
        scope: QuarantineScope,
    },
    /// A request that was held has been served whole, the copy of it here: it is held no more.
    Acquitted { replica: ReplicaId, key: SliceKey, fingerprint: Fingerprint },
    /// A replica is gone for good.
    Left { replica: ReplicaId },
}

impl Notice {
    pub const fn replica(&self) -> ReplicaId {
        match self {
            Self::Joined { replica }
            | Self::Changed { replica, .. }
            | Self::Restarted { replica }
            | Self::Quarantined { replica, .. }
            | Self::Acquitted { replica, .. }
            | Self::Left { replica } => *replica,
        }
    }
}

/// Notices that were not taken yet.
#[derive(Debug, Default)]
pub(super) struct Notices(VecDeque<Notice>);

impl Notices {
    pub(super) fn push(&mut self, notice: Notice) {
        if self.0.len() == NOTICES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(notice);
    }

    /// Takes all of them; allocates nothing, so that asking after every event costs nothing.
    pub(super) fn take(&mut self) -> VecDeque<Notice> {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_that_never_takes_them_loses_the_oldest() {
        let mut notices = Notices::default();
        for number in 0..3000 {
            notices.push(Notice::Joined { replica: ReplicaId(number) });
        }
        let kept = notices.take();
        assert_eq!(kept.len(), NOTICES_MAX);
        assert_eq!(kept.back(), Some(&Notice::Joined { replica: ReplicaId(2999) }));
        assert!(notices.take().is_empty());
    }
}
