//! Lanes of the line, as the brain uses them: requests that need the same to go. One that waits for its
//! own replica, one that begins a session and one with a long prompt each need something that others
//! do not, and must not hold those up.

use crate::domain::ReplicaId;
use crate::queue::{Gate, Lane};

use super::headroom::Headroom;

const HOME_BITS: u32 = 26;

/// What a request needs to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneKey {
    pub(super) class: u8,
    /// It begins a session and was not let in yet.
    pub(super) is_fresh: bool,
    /// Its prompt takes so long to read that it must leave a door open.
    pub(super) is_long: bool,
    /// Where its cache is.
    pub(super) home: Option<ReplicaId>,
}

impl From<LaneKey> for Lane {
    fn from(key: LaneKey) -> Self {
        let home = key.home.map_or(0, |it| it.0 + 1);
        // A replica whose number does not fit has no lane of its own, which costs a little locality.
        let home = if home < 1 << HOME_BITS { home } else { 0 };
        let flags = u32::from(key.is_fresh) | u32::from(key.is_long) << 1;
        Self(home << 6 | u32::from(key.class & 15) << 2 | flags)
    }
}

impl From<Lane> for LaneKey {
    fn from(Lane(bits): Lane) -> Self {
        Self {
            class: u8::try_from(bits >> 2 & 15).unwrap_or(0),
            is_fresh: bits & 1 != 0,
            is_long: bits & 2 != 0,
            home: (bits >> 6).checked_sub(1).map(ReplicaId),
        }
    }
}

/// What decides whether a lane is open, at one moment.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) gate: &'a Gate,
    pub(super) headroom: &'a Headroom,
    /// How full those are that may take something.
    pub(super) fills: &'a [Fill],
}

/// How full a replica is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fill {
    pub(super) id: ReplicaId,
    /// From 1 on it is past its knee.
    pub(super) level: f64,
    /// How long the next prompt would wait there.
    pub(super) wait_ms: f64,
}

impl Scene<'_> {
    /// Tells whether requests of a lane may go now. Strictly, only where their cache is.
    pub(super) fn is_open(self, lane: LaneKey, strict: bool) -> bool {
        if lane.is_fresh && !self.gate.is_open() {
            return false;
        }
        if lane.is_long && !self.headroom.has_door(self.fills) {
            return false;
        }
        let limit = self.headroom.limit(lane.class.into());
        let mut fills = self.fills.iter();
        match lane.home.filter(|_| strict) {
            Some(home) => fills.find(|it| it.id == home).is_some_and(|it| limit.admits(it)),
            None => fills.any(|it| limit.admits(it)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_says_what_was_put_into_it() {
        for home in [None, Some(ReplicaId(0)), Some(ReplicaId(12_345))] {
            for (class, is_fresh, is_long) in [(0, false, true), (15, true, false), (3, true, true)]
            {
                let key = LaneKey { class, is_fresh, is_long, home };
                assert_eq!(LaneKey::from(Lane::from(key)), key);
            }
        }
        let far =
            LaneKey { class: 1, is_fresh: false, is_long: false, home: Some(ReplicaId(1 << 30)) };
        assert_eq!(LaneKey::from(Lane::from(far)).home, None);
    }
}
