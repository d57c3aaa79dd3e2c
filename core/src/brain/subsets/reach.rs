//! Which replicas may take the request at hand? Those of its workload's subset; beyond them a few more,
//! always the same ones, when one of the subset is out or the wait inside is too long; and the one
//! where its session is. A workload begins sessions nowhere else, whatever it does to replicas.

use std::time::Duration;

use crate::domain::{Moment, Place, ReplicaId, SliceKey};
use crate::sharding::Slice;

use super::{Subsets, workload_of};

/// Whoever waits longer inside than this part of what its class promises for the first token may ask
/// beyond: a wait that long begins to show, and most of the promise is still there to be kept.
const PATIENCE_PART: u32 = 50;

/// Why a replica beyond the subset may take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// One of the subset takes nothing.
    StandIn,
    /// Everybody in the subset has a longer line than the class should wait.
    Load,
    /// The session went there before, and its cache is there.
    Home,
}

impl Beyond {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::StandIn => "stand_in",
            Self::Load => "load",
            Self::Home => "home",
        }
    }

    /// Says it in a sentence.
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::StandIn => "a replica of the subset takes nothing",
            Self::Load => "everybody in the subset has too long a line",
            Self::Home => "the session was there before",
        }
    }
}

impl Subsets {
    /// Finds who may take a request; says whether that is less than everybody. Whoever is out has
    /// a stand-in, as far as the workload may leave its subset, and a session that left it may stay
    /// where it went.
    pub(in crate::brain) fn select(
        &mut self,
        now: Moment,
        key: SliceKey,
        home: Option<ReplicaId>,
        is_alive: impl Fn(ReplicaId) -> bool,
    ) -> bool {
        self.chosen.clear();
        self.inside = 0;
        self.beyond = None;
        let Some(clerk) = &self.clerk else { return false };
        let workload = workload_of(key);
        let pinned = self.pinned.get(&workload).map(Vec::as_slice);
        let fixed = pinned.or_else(|| self.troubles.confines(now, workload));
        self.chosen.extend_from_slice(fixed.unwrap_or_else(|| clerk.holders(key)));
        self.inside = self.chosen.len();
        let alive = |place: &&Place| self.peer(**place).is_some_and(|it| is_alive(it.id));
        let missing = self.inside - self.chosen.iter().filter(alive).count();
        if 0 < missing {
            self.beyond = Some(Beyond::StandIn);
            self.extend(now, key, missing);
        }
        let home = home.and_then(|home| self.peers.iter().find(|it| it.id == home));
        if let Some(home) = home.map(|it| it.place).filter(|it| !self.chosen.contains(it)) {
            self.stay(now, key, home);
        }
        true
    }

    /// Lets a session stay where its cache is, although its workload has left or only spilled there:
    /// the picker knows what it costs to compute it again. Not one under which replicas die.
    fn stay(&mut self, now: Moment, key: SliceKey, home: Place) {
        let workload = workload_of(key);
        let may_leave = self.own(workload).is_none_or(|it| it.spill);
        let bound = self.pinned.contains_key(&workload) || self.troubles.is_held(now, workload);
        if may_leave && !bound && !self.is_reserved(home) {
            self.chosen.push(home);
            self.beyond = self.beyond.or(Some(Beyond::Home));
        }
    }

    /// Adds those to whom the request at hand may spill; says whether there are any more.
    pub(in crate::brain) fn spill(&mut self, now: Moment, key: SliceKey) -> bool {
        let before = self.chosen.len();
        self.extend(now, key, usize::MAX);
        let more = before < self.chosen.len();
        if more {
            self.beyond = Some(Beyond::Load);
        }
        more
    }

    /// Adds replicas beyond the subset, at most `count` in all, in an order that is the workload's
    /// own and never more than it may spill to, dead or alive: what kills its replicas must not go
    /// through the whole fleet.
    fn extend(&mut self, now: Moment, key: SliceKey, count: usize) {
        let Some(clerk) = &self.clerk else { return };
        let workload = workload_of(key);
        let allowed = self.own(workload).is_none_or(|it| it.spill);
        if !allowed || self.pinned.contains_key(&workload) {
            return;
        }
        let most = usize::try_from(self.settings.spill_max).unwrap_or(0);
        // One more is enough to show that it does no harm.
        let most = if self.troubles.is_held(now, workload) { most.min(1) } else { most };
        while self.chosen.len() - self.inside < most.min(count) {
            let free = |place: Place| !self.is_reserved(place);
            let Some(next) = clerk.stand_in(key, free, &self.chosen) else { return };
            self.chosen.push(next);
        }
    }

    /// Tells whether somebody has a replica to himself.
    fn is_reserved(&self, place: Place) -> bool {
        let Some(clerk) = &self.clerk else { return false };
        let exclusive = self.settings.workloads.iter().filter(|it| it.exclusive);
        exclusive.into_iter().any(|it| {
            let low = Slice::of_prefix(it.workload).low;
            clerk.holders(SliceKey(low)).contains(&place)
        })
    }

    /// Tells whether a replica may take the request at hand, after [`Self::select`] said yes.
    pub(in crate::brain) fn allows(&self, place: Place) -> bool {
        self.chosen.contains(&place)
    }

    /// Says why a replica may take the request at hand, if it is beyond the subset.
    pub(in crate::brain) fn beyond(&self, place: Place) -> Option<Beyond> {
        let beyond = self.chosen.get(self.inside..).is_some_and(|it| it.contains(&place));
        self.beyond.filter(|_| beyond)
    }

    /// Counts who is picked beyond the subset, or might have been. Not when candidates are gathered,
    /// which may happen more than once for a request.
    pub(in crate::brain) fn on_picked(&mut self, place: Place) {
        self.totals.stood_in += u64::from(self.beyond == Some(Beyond::StandIn));
        self.totals.spilled += u64::from(self.beyond(place).is_some());
    }

    /// Tells whether a replica is to take nothing new.
    pub(in crate::brain) fn is_drained(&self, place: Place) -> bool {
        self.drained.contains(&place)
    }

    pub(in crate::brain) fn on_moved(&mut self, tokens: u32) {
        self.totals.moved_tokens += u64::from(tokens);
    }

    /// Tells how long a request may have to wait inside the subset before others are asked.
    pub(in crate::brain) fn patience(&self, promise: Option<Duration>) -> Duration {
        let longest = self.settings.spill_after;
        promise.map_or(longest, |it| longest.min(it / PATIENCE_PART))
    }

    /// Notes the first token of a request.
    pub(in crate::brain) fn on_answering(&mut self, key: SliceKey) {
        self.troubles.on_answering(workload_of(key));
    }

    /// Notes that a replica was lost under a request.
    pub(in crate::brain) fn on_lost(&mut self, now: Moment, key: SliceKey) {
        if let Some(clerk) = &self.clerk {
            self.troubles.on_lost(now, workload_of(key), clerk.holders(key));
        }
    }

    /// Notes that a request has come to its end.
    pub(in crate::brain) fn on_done(&mut self, key: SliceKey) {
        self.troubles.on_done(workload_of(key));
    }
}
