//! How far both ends of a link have come.

use std::time::Duration;

use crate::domain::Moment;

use super::Link;

impl Link {
    /// The version that both ends read; that of this end as long as the peer has not said.
    pub(super) fn version(&self) -> u32 {
        self.peer.as_ref().map_or(self.own_version, |it| it.version.min(self.own_version))
    }

    /// How long the oldest news have been under way that the peer is not known to have heard.
    pub fn lag(&self, now: Moment) -> Duration {
        self.unheard.front().map_or(Duration::ZERO, |it| now.since(it.1))
    }

    /// How many frames of news were sent.
    pub const fn told(&self) -> u64 {
        self.told
    }

    /// Bytes that wait here or are not known to have been heard.
    pub const fn pending_bytes(&self) -> usize {
        self.outbox.bytes() + self.unheard_bytes
    }

    /// Tells whether the peer is known to have heard everything, and nothing that it told is missing here.
    pub fn is_settled(&self) -> bool {
        let all_told = !self.is_behind && self.outbox.is_empty() && self.unheard.is_empty();
        self.peer.is_some() && all_told && self.gap.is_none() && self.staged_parts == 0
    }
}
