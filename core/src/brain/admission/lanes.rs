//! Lanes of the line, as the brain uses them: a lane holds requests that can be sent under the same
//! conditions. A request that waits for its own replica, begins a session, has a long prompt or belongs to a
//! workload with a subset has conditions of its own, and must not hold up requests without them.

use std::cell::Cell;

use crate::domain::ReplicaId;
use crate::queue::{Gate, Lane};

use super::super::request::PromptSize;
use super::headroom::Headroom;
use super::reach::Reaches;
use super::waiting::Cause;

const HOME_BITS: u32 = 23;

/// The conditions under which a request can be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LaneKey {
    pub(super) class: u8,
    /// It begins a session and was not let in yet.
    pub(super) is_fresh: bool,
    pub(super) prompt: PromptSize,
    /// It can go to its home and nowhere else.
    pub(super) is_kept: bool,
    /// The workload whose replicas it may use; any replica if none is named.
    pub(super) workload: Option<u32>,
    /// Where its cache is.
    pub(super) home: Option<ReplicaId>,
}

impl LaneKey {
    pub(super) fn is_long(&self) -> bool {
        self.prompt == PromptSize::Long
    }
}

impl From<LaneKey> for Lane {
    fn from(key: LaneKey) -> Self {
        let home = key.home.map_or(0, |it| it.0 + 1);
        // A replica whose number does not fit has no lane of its own, which costs a little locality.
        let home = if home < 1 << HOME_BITS { home } else { 0 };
        let is_divided = key.workload.is_some();
        let prompt = match key.prompt {
            PromptSize::Usual => 0,
            PromptSize::Long => 1 << 1,
            PromptSize::Short => 1 << 4,
            PromptSize::ShortAtHome => 1 << 4 | 1 << 1,
        };
        let flags = u64::from(key.is_fresh)
            | u64::from(is_divided) << 2
            | u64::from(key.is_kept) << 3
            | prompt;
        let low = u64::from(home) << 9 | u64::from(key.class & 15) << 5 | flags;
        Self(u64::from(key.workload.unwrap_or(0)) << 32 | low)
    }
}

impl From<Lane> for LaneKey {
    fn from(Lane(bits): Lane) -> Self {
        let home = u32::try_from(bits >> 9 & ((1 << HOME_BITS) - 1)).unwrap_or(0);
        let workload = u32::try_from(bits >> 32).unwrap_or(0);
        Self {
            class: u8::try_from(bits >> 5 & 15).unwrap_or(0),
            is_fresh: bits & 1 != 0,
            prompt: match (bits & 2 != 0, bits & 16 != 0) {
                (true, true) => PromptSize::ShortAtHome,
                (true, false) => PromptSize::Long,
                (false, true) => PromptSize::Short,
                (false, false) => PromptSize::Usual,
            },
            is_kept: bits & 8 != 0,
            workload: (bits & 4 != 0).then_some(workload),
            home: home.checked_sub(1).map(ReplicaId),
        }
    }
}

/// What decides whether a lane is open, at one moment.
#[derive(Clone, Copy)]
pub(super) struct Scene<'a> {
    pub(super) gate: &'a Gate,
    pub(super) headroom: &'a Headroom,
    pub(super) reaches: &'a Reaches,
    /// How full the replicas are that may take something, in order of id.
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
    /// How much it reads, by [`reading::level`]; 0 where that limits nothing.
    pub(super) reading: f64,
}

impl Fill {
    pub(super) const fn empty(id: ReplicaId) -> Self {
        Self { id, level: 0.0, wait_ms: 0.0, reading: 0.0 }
    }
}

/// Up to where a request may fill a replica.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::brain) struct Limit {
    pub(super) fill: f64,
    pub(super) wait_ms: f64,
    /// The level of [`level`](super::reading::level).
    pub(super) reading: f64,
}

impl Limit {
    pub(super) const NONE: Self =
        Self { fill: f64::INFINITY, wait_ms: f64::INFINITY, reading: f64::INFINITY };

    pub(super) fn admits(self, at: &Fill) -> bool {
        at.level < self.fill && at.wait_ms < self.wait_ms && at.reading < self.reading
    }

    /// Moves the limit by a factor.
    pub(super) fn times(self, factor: f64) -> Self {
        self.with(self, |it, _| it * factor)
    }

    pub(super) fn with(self, other: Self, join: impl Fn(f64, f64) -> f64) -> Self {
        Self {
            fill: join(self.fill, other.fill),
            wait_ms: join(self.wait_ms, other.wait_ms),
            reading: join(self.reading, other.reading),
        }
    }
}

/// Up to where a request may fill replicas, and the one where its cache is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::brain) struct RoomLimits {
    pub(super) anywhere: Limit,
    pub(super) home: Option<ReplicaId>,
    pub(super) at_home: Limit,
}

impl RoomLimits {
    pub(super) fn admit(&self, at: &Fill) -> bool {
        let limit = if self.home == Some(at.id) { self.at_home } else { self.anywhere };
        limit.admits(at)
    }

    /// Moves all of them by a factor.
    pub(super) fn times(self, factor: f64) -> Self {
        let Self { anywhere, home, at_home } = self;
        Self { anywhere: anywhere.times(factor), home, at_home: at_home.times(factor) }
    }
}

/// How full replicas are, at one look; in order of id.
#[derive(Debug)]
pub(in crate::brain) struct Fills(pub(super) Vec<Fill>);

impl Fills {
    pub(in crate::brain) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns a predicate: is a replica among these, and has it room within its limit?
    pub(in crate::brain) fn rooms(&self, limits: RoomLimits) -> impl Fn(ReplicaId) -> bool {
        // Replicas are asked for in order of id, so it is most often the next one.
        let next = Cell::new(0);
        move |replica| {
            let is_next = self.0.get(next.get()).is_some_and(|it| it.id == replica);
            let at = if is_next {
                Ok(next.get())
            } else {
                self.0.binary_search_by_key(&replica, |it| it.id)
            };
            at.is_ok_and(|at| {
                next.set(at + 1);
                limits.admit(&self.0[at])
            })
        }
    }
}

/// Finds a replica among those that may take something.
pub(super) fn fill_of(fills: &[Fill], replica: ReplicaId) -> Option<&Fill> {
    fills.binary_search_by_key(&replica, |it| it.id).ok().map(|at| &fills[at])
}

impl<'a> Scene<'a> {
    /// Tells whether requests of a lane may go now.
    pub(super) fn is_open(self, lane: LaneKey) -> bool {
        let home = lane.home.and_then(|it| fill_of(self.fills, it));
        let class = usize::from(lane.class);
        if lane.is_kept {
            // Where its replica takes nothing, it goes as soon as any request can, and is told so.
            let limits = self.headroom.limits_in(lane);
            return home.map_or_else(|| self.has_room(), |it| limits.admit(it));
        }
        match lane.workload.and_then(|it| self.reaches.get(it)) {
            Some(reach) => {
                let reached = reach.fills(self.fills, self.reaches.spill_wait_ms(class));
                self.admits(lane, reached.chain(home))
            }
            None => self.admits(lane, self.fills.iter()),
        }
    }

    /// Tells whether a request may go now to one of these.
    pub(super) fn admits(
        self,
        lane: LaneKey,
        mut fills: impl Iterator<Item = &'a Fill> + Clone,
    ) -> bool {
        let limits = self.headroom.limits_in(lane);
        self.lets_in(lane, fills.clone()) && fills.any(|it| limits.admit(it))
    }

    /// Tells whether any request at all could go, as far as room goes.
    pub(super) fn has_room(self) -> bool {
        let limit = self.headroom.widest();
        self.fills.iter().any(|it| limit.admits(it))
    }

    /// Says why a request cannot go at once to one of these.
    pub(super) fn cause(
        self,
        lane: LaneKey,
        mut fills: impl Iterator<Item = &'a Fill> + Clone,
    ) -> Cause {
        let limits = self.headroom.limits_in(lane);
        let mut all = self.fills.iter();
        if lane.is_fresh && !self.gate.is_open() {
            Cause::Sessions
        } else if !fills.clone().any(|it| limits.admit(it)) {
            if all.any(|it| limits.admit(it)) { Cause::Subset } else { Cause::Knee }
        } else if lane.is_long() && !self.headroom.has_door(fills.by_ref()) {
            Cause::Door
        } else {
            Cause::Turn
        }
    }

    /// Tells whether memory and classes that matter more let a request in.
    fn lets_in(self, lane: LaneKey, fills: impl Iterator<Item = &'a Fill>) -> bool {
        (!lane.is_fresh || self.gate.is_open())
            && (!lane.is_long() || self.headroom.has_door(fills))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lane_says_what_was_put_into_it() {
        for home in [None, Some(ReplicaId(0)), Some(ReplicaId(12_345))] {
            for workload in [None, Some(0), Some(u32::MAX)] {
                for (class, is_fresh, prompt) in [
                    (0, false, PromptSize::Long),
                    (15, true, PromptSize::Usual),
                    (3, true, PromptSize::Short),
                    (0, false, PromptSize::ShortAtHome),
                ] {
                    let is_kept = is_fresh && prompt == PromptSize::Short;
                    let key = LaneKey { class, is_fresh, prompt, is_kept, workload, home };
                    assert_eq!(LaneKey::from(Lane::from(key)), key);
                }
            }
        }
        let home = Some(ReplicaId(1 << 30));
        let (is_fresh, prompt, is_kept) = Default::default();
        let far = LaneKey { class: 1, is_fresh, prompt, is_kept, workload: None, home };
        assert_eq!(LaneKey::from(Lane::from(far)).home, None);
    }
}
