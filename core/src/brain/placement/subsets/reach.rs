//! Which replicas may take the request at hand? Those of its workload's subset; beyond them a few more,
//! always the same ones, when one of the subset is out or the wait inside is too long; and the one
//! where its session is. A workload begins sessions nowhere else, whatever it does to replicas, and
//! beyond its subset it goes one step at a time.

use std::time::Duration;

use crate::domain::{Moment, Place, ReplicaId, SliceKey};
use crate::sharding::Slice;

use super::Subsets;
use super::steps::Step;

/// A request that waits longer inside than this part of what its class promises for the first token may ask
/// beyond: a wait that long begins to show, and most of the promise is still there to be kept.
const SPILL_WAIT_PART: u32 = 50;

/// A request that is expected to wait for the first token inside for longer than this part of that promise may
/// ask beyond, however short the lines are: a long prompt that no replica has, or no room for it.
const PROMISE_PART: u32 = 10;

/// Why a replica beyond the subset may take a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Beyond {
    /// One of the subset takes nothing.
    StandIn,
    /// Every replica of the subset has too long a line, or would be late with the first token.
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
            Self::Load => "no replica of the subset would begin to answer soon",
            Self::Home => "the session was there before",
        }
    }
}

/// What a choice must know of a replica.
#[derive(Clone, Copy, Debug)]
pub(in crate::brain) struct Sight {
    /// Whether it takes the request at hand.
    pub(in crate::brain) takes: bool,
    /// Whether it was put out.
    pub(in crate::brain) out: bool,
    /// When it last gave a sign of life.
    pub(in crate::brain) heard_at: Moment,
}

/// Which replicas may take one request.
#[derive(Debug, Default)]
pub(in crate::brain) struct Selection {
    /// Whether that is less than all.
    pub(in crate::brain) is_divided: bool,
    pub(super) chosen: Vec<Place>,
    /// How many of them are its subset; the others are beyond it.
    inside: usize,
    /// Why the others are there.
    beyond: Option<Beyond>,
    /// The only one of them that it may be, if its workload has a step open.
    step: Option<Step>,
    /// Whether any replica beyond the subset may take it.
    anywhere: bool,
}

impl Selection {
    /// Tells whether a replica is of the workload's subset.
    pub(in crate::brain) fn is_inside(&self, place: Place) -> bool {
        self.chosen.get(..self.inside).is_some_and(|it| it.contains(&place))
    }

    pub(in crate::brain) fn clear(&mut self) {
        self.chosen.clear();
        (self.is_divided, self.inside, self.anywhere) = (false, 0, false);
        (self.beyond, self.step) = (None, None);
    }
}

impl Subsets {
    /// Counts a replica as lost if it showed no sign of life in time after a workload went there, beyond its
    /// subset.
    pub(in crate::brain) fn note_overdue(
        &mut self,
        now: Moment,
        key: SliceKey,
        look: impl Fn(ReplicaId) -> Option<Sight>,
    ) {
        let step = self.lookup.as_ref().and_then(|_| self.step_of(now, key.workload(), &look));
        if step.is_some_and(|it| it.is_overdue(now)) && !self.troubles.has(now, key.workload()) {
            self.on_lost(now, key, None);
        }
    }

    /// Finds which replicas may take a request. One that is out has a stand-in, as far as the workload may leave
    /// its subset, and a session that left it may stay where it went.
    pub(in crate::brain) fn select(
        &self,
        now: Moment,
        key: SliceKey,
        home: Option<ReplicaId>,
        look: impl Fn(ReplicaId) -> Option<Sight>,
        into: &mut Selection,
    ) {
        into.clear();
        let Some(held) = self.held(now, key) else { return };
        into.chosen.extend_from_slice(held);
        (into.is_divided, into.inside) = (true, held.len());
        into.step = self.step_of(now, key.workload(), &look);
        let takes = |place: &&Place| {
            let sight = self.planned.at(**place).and_then(|it| look(it.id));
            sight.is_some_and(|it| it.takes)
        };
        let missing = into.inside - into.chosen.iter().filter(takes).count();
        if 0 < missing {
            into.beyond = Some(Beyond::StandIn);
            self.extend(now, key, missing, into);
        }
        let home = home.and_then(|home| self.planned.iter().find(|it| it.id == home));
        if let Some(home) = home.map(|it| it.place).filter(|it| !into.chosen.contains(it)) {
            self.stay(now, key, home, into);
        }
    }

    /// Lists the replicas of a workload: those it is pinned or confined to, or those that were planned.
    /// No workload is confined to replicas that are gone for good.
    fn held(&self, now: Moment, key: SliceKey) -> Option<&[Place]> {
        let lookup = self.lookup.as_ref()?;
        let workload = key.workload();
        let pinned = self.orders.pinned.get(&workload).map(Vec::as_slice);
        let confined = || self.troubles.confines(now, workload);
        let is_there = |places: &&[Place]| places.iter().any(|it| !self.planned.is_lost(now, *it));
        Some(pinned.or_else(|| confined().filter(is_there)).unwrap_or_else(|| lookup.holders(key)))
    }

    /// Finds the only replica beyond its subset that a workload may use, if there is but one: the one it
    /// went to last, which has shown no sign of life since. Once that replica is known to be down, the step
    /// stays open only if replicas died under the workload and none of its requests was served since.
    fn step_of(
        &self,
        now: Moment,
        workload: u32,
        look: impl Fn(ReplicaId) -> Option<Sight>,
    ) -> Option<Step> {
        let step = self.steps.get(workload)?;
        let sight = self.planned.at(step.place).and_then(|it| look(it.id));
        let is_open = sight.is_some_and(|it| !it.out && !step.is_settled(it.heard_at));
        let is_bound = is_open || self.troubles.has(now, workload);
        (is_bound && !self.planned.is_lost(now, step.place)).then_some(step)
    }

    /// Lets a session stay where its cache is, although its workload has left or only spilled there: the
    /// policy knows what it costs to compute the prompt again. Not if replicas die under the workload, or
    /// its last step is overdue.
    fn stay(&self, now: Moment, key: SliceKey, home: Place, into: &mut Selection) {
        let workload = key.workload();
        let overdue = into.step.is_some_and(|it| it.place != home && it.is_overdue(now));
        let is_bound = overdue || self.troubles.has(now, workload);
        if !is_bound && self.may_leave(workload) && !self.is_reserved(home) {
            into.chosen.push(home);
            into.beyond = into.beyond.or(Some(Beyond::Home));
        }
    }

    /// Lets a request spill; says whether there is any replica more. Where no bound is set that is
    /// any, since harm goes one step at a time.
    pub(in crate::brain) fn spill(
        &self,
        now: Moment,
        key: SliceKey,
        selection: &mut Selection,
    ) -> bool {
        let before = selection.chosen.len();
        let workload = key.workload();
        let is_bound = selection.step.is_some() || self.troubles.has(now, workload);
        if self.settings.spill_max.is_none() && !is_bound && self.may_leave(workload) {
            selection.anywhere = true;
        } else {
            self.extend(now, key, usize::MAX, selection);
        }
        let more = selection.anywhere || before < selection.chosen.len();
        if more {
            selection.beyond = Some(Beyond::Load);
        }
        more
    }

    /// Tells whether a workload may leave its subset at all.
    fn may_leave(&self, workload: u32) -> bool {
        self.settings.own(workload).is_none_or(|it| it.spill)
            && !self.orders.pinned.contains_key(&workload)
    }

    /// Adds replicas beyond the subset, at most `count` in all, in an order that is the workload's
    /// own and never more than it may spill to, dead or alive: what kills its replicas must not go
    /// through the whole fleet. A workload that has a step open has that one only.
    fn extend(&self, now: Moment, key: SliceKey, count: usize, into: &mut Selection) {
        let Some(lookup) = &self.lookup else { return };
        let workload = key.workload();
        if !self.may_leave(workload) {
            return;
        }
        let most =
            self.settings.spill_max.map_or(usize::MAX, |it| usize::try_from(it).unwrap_or(0));
        // One more is enough to show that it does no harm.
        let most = if self.troubles.has(now, workload) { most.min(1) } else { most };
        while into.chosen.len() - into.inside < most.min(count) {
            let free = |place: Place| !self.is_reserved(place);
            let next = match into.step {
                Some(step) => Some(step.place).filter(|it| free(*it) && !into.chosen.contains(it)),
                None => lookup.stand_in(key, free, &into.chosen),
            };
            let Some(next) = next else { return };
            into.chosen.push(next);
        }
    }

    /// Tells whether a workload has a replica to itself.
    fn is_reserved(&self, place: Place) -> bool {
        let Some(lookup) = &self.lookup else { return false };
        let exclusive = self.settings.workloads.iter().filter(|it| it.exclusive);
        exclusive.into_iter().any(|it| {
            let low = Slice::of_prefix(it.workload).low;
            lookup.holders(SliceKey(low)).contains(&place)
        })
    }

    /// Tells whether a replica may take a request for which this was selected, as far as subsets go.
    pub(in crate::brain) fn admits(&self, selection: &Selection, place: Place) -> bool {
        (!selection.is_divided || self.allows(selection, place)) && !self.is_drained(place)
    }

    /// Tells whether a replica is among those selected.
    pub(in crate::brain) fn allows(&self, selection: &Selection, place: Place) -> bool {
        selection.chosen.contains(&place) || selection.anywhere && !self.is_reserved(place)
    }

    /// Says why a replica may take a request, if it is beyond the subset.
    pub(in crate::brain) fn beyond(&self, selection: &Selection, place: Place) -> Option<Beyond> {
        let is_inside = selection.is_inside(place);
        selection.beyond.filter(|_| !is_inside && self.allows(selection, place))
    }

    /// Counts a request for which a replica beyond the subset was picked, or might have been.
    pub(in crate::brain) fn on_picked(&mut self, selection: &Selection, place: Place) {
        self.totals.stood_in += u64::from(selection.beyond == Some(Beyond::StandIn));
        self.totals.spilled += u64::from(self.beyond(selection, place).is_some());
    }

    /// Tells whether a replica is to take nothing new.
    pub(in crate::brain) fn is_drained(&self, place: Place) -> bool {
        self.orders.drained.contains(&place)
    }

    pub(in crate::brain) fn on_moved(&mut self, tokens: u32) {
        self.totals.moved_tokens += u64::from(tokens);
    }

    /// Tells how long a request may have to wait inside the subset before it may spill.
    pub(in crate::brain) fn spill_wait(&self, promise: Option<Duration>) -> Duration {
        let longest = self.settings.spill_after;
        promise.map_or(longest, |it| longest.min(it / SPILL_WAIT_PART))
    }

    /// Tells the longest TTFT that may be predicted inside the subset before the request may spill.
    pub(in crate::brain) fn first_token_max(promise: Duration) -> Duration {
        promise / PROMISE_PART
    }

    /// Notes that a request is sent and its first token is expected within `expected`. Beyond its subset
    /// that is a step, unless one is open.
    pub(in crate::brain) fn on_placed(
        &mut self,
        now: Moment,
        key: SliceKey,
        place: Place,
        expected: Duration,
        look: impl Fn(ReplicaId) -> Option<Sight>,
    ) {
        let workload = key.workload();
        self.troubles.on_sent(now, workload);
        let beyond = self.held(now, key).is_some_and(|it| !it.contains(&place));
        if beyond && self.step_of(now, workload, look).is_none() {
            self.steps.take(now, workload, place, expected);
        }
    }

    /// Notes the first token of a request.
    pub(in crate::brain) fn on_answering(&mut self, key: SliceKey, place: Place) {
        self.steps.on_answering(key.workload(), place);
        self.troubles.on_answering(key.workload());
    }

    /// Notes that a request lost its connection, and where, and when it was sent.
    pub(in crate::brain) fn on_lost(
        &mut self,
        now: Moment,
        key: SliceKey,
        request: Option<(ReplicaId, Moment)>,
    ) {
        if let Some(lookup) = &self.lookup {
            self.troubles.on_lost(now, key.workload(), request, lookup.holders(key));
        }
    }

    /// Notes that a replica under which requests were lost is gone, or hangs.
    pub(in crate::brain) fn on_gone(&mut self, replica: ReplicaId) {
        self.troubles.on_gone(replica);
    }

    /// Notes that a replica lives: connections to it broke for another reason.
    pub(in crate::brain) fn on_alive(&mut self, replica: ReplicaId) {
        self.troubles.on_alive(replica);
    }

    /// Tells whether a workload is to send nothing now.
    pub(in crate::brain) fn pauses(&self, now: Moment, key: SliceKey) -> bool {
        self.troubles.pauses(now, key.workload())
    }

    /// Notes that a request has come to its end.
    pub(in crate::brain) fn on_done(&mut self, key: SliceKey) {
        self.troubles.on_done(key.workload());
    }
}
