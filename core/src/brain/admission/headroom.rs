//! How much of a replica each class may take while others are about. A request is held only for its
//! own good or for that of a class that matters more: prompts wait at a replica for a small part of what
//! their class is promised, those of lesser classes for a small part of that, and long prompts leave
//! enough replicas free that a request of the first class finds one. All of it is void for a class that
//! waits all the time nevertheless: then there is more of it than there is room, and weights decide.
//!
//! Which classes are about is seen from the work they bring. Where there is only one, its requests are held
//! for no other class, and yet as soon: what waits here can still go anywhere, and under overload a request that
//! is sent must find a short wait, or all requests are late and not only those that must be. A replica that costs
//! clearly less than those with room, most often because the prompt is cached there, may be waited for longer.
//! How much replicas may read while there is a line is for `reading`.

use std::time::Duration;

use crate::domain::{Moment, span_of_ms};
use crate::queue::{CLASSES_MAX, Class, ClassId, Classes, Line, Work};

use super::super::request::PromptSize;
use super::lanes::{Fill, LaneKey, Limit, RoomLimits};
use super::reading;

/// A prompt may wait at a replica for this part of its class's first-token target.
const REPLICA_WAIT_PART: f64 = 8.0;
/// The same at a replica that costs clearly less than all with room, where no other class is about.
const CHEAPER_WAIT_PART: f64 = 2.0;
/// Where a higher class is about, a prompt may wait for this part of what that class may wait.
const COURTESY_PART: f64 = 8.0;
/// How full lower classes may make a replica where a higher class is about.
const COURTESY_FILL: f64 = 0.9;
/// How full the first class makes the replicas that are kept free of long prompts. This decides how many
/// are kept.
const DOORS_FILL: f64 = 0.4;
/// The largest share of all replicas that is kept free of long prompts.
const DOORS_SHARE_MAX: f64 = 0.75;
/// The time constant with which arrived work fades.
const MEMORY_S: f64 = 30.0;
/// A class that brings less than this share of what the fleet can do is not about.
const ABSENT_SHARE: f64 = 0.001;
/// A class that waits without a break for this part of its `wait_max` is overloaded.
const OVERRUN_PART: u32 = 4;

#[derive(Debug)]
pub(super) struct Headroom {
    /// By class, as are the limits.
    demands: Vec<Demand>,
    limits: Vec<Limit>,
    /// The first class that is about, where there are several.
    first: Option<usize>,
    /// The share of the replicas that long prompts leave free.
    doors_share: f64,
}

/// What a class brings.
#[derive(Clone, Copy, Debug)]
struct Demand {
    target_ms: f64,
    wait_max: Duration,
    /// Work that came lately, in model units, fading.
    work: f64,
    at: Moment,
    /// Since when some of it waits without a break, long prompts aside.
    waits_since: Option<Moment>,
}

impl Demand {
    /// Says how long its prompts may wait at a replica.
    fn replica_wait_ms(&self) -> f64 {
        self.target_ms / REPLICA_WAIT_PART
    }

    /// Says what share of the fleet it asks for.
    fn share(&self, now: Moment, capacity_per_min: Work) -> f64 {
        if self.work <= 0.0 {
            // Most classes have none, and what is forgotten of it takes an exponential.
            return 0.0;
        }
        let per_min = self.work * self.kept(now) / MEMORY_S * 60.0;
        if capacity_per_min == Work::ZERO { 0.0 } else { per_min / capacity_per_min.as_mu() }
    }

    /// Tells whether there is more of it than there is room for.
    fn is_overrun(&self, now: Moment) -> bool {
        let limit = self.wait_max / OVERRUN_PART;
        self.waits_since.is_some_and(|since| limit < now.since(since))
    }

    /// Says what it leaves to lesser classes.
    fn leaves(&self, now: Moment) -> Limit {
        let wait_ms = self.replica_wait_ms();
        if self.is_overrun(now) {
            Limit { fill: 1.0, wait_ms, ..Limit::NONE }
        } else {
            Limit { fill: COURTESY_FILL, wait_ms: wait_ms / COURTESY_PART, ..Limit::NONE }
        }
    }

    /// Says what it may take for itself.
    fn own(&self) -> Limit {
        Limit { fill: 1.0, wait_ms: self.replica_wait_ms(), ..Limit::NONE }
    }

    /// The same when no other class is about and `waiting` of the class stands in line here.
    fn alone(&self, waiting: Work, capacity_per_min: Work) -> Limit {
        let line_ms = waiting.as_mu() / capacity_per_min.as_mu().max(f64::MIN_POSITIVE) * 60e3;
        Limit { reading: reading::limit(line_ms, self.target_ms), ..self.own() }
    }

    fn kept(&self, now: Moment) -> f64 {
        (-now.since(self.at).as_secs_f64() / MEMORY_S).exp()
    }
}

impl Headroom {
    pub(super) fn new(classes: &Classes) -> Self {
        let demand = |it: &Class| Demand {
            target_ms: it.promise.first_token_ms(),
            wait_max: it.wait_max,
            work: 0.0,
            at: Moment::ZERO,
            waits_since: None,
        };
        let demands: Vec<Demand> = classes.iter().map(|it| demand(it.1)).collect();
        let limits = demands.iter().map(Demand::own).collect();
        Self { demands, limits, first: None, doors_share: 0.0 }
    }

    /// Says how long prompts of the most urgent class may wait at a replica.
    pub(super) fn replica_wait_min(&self) -> Duration {
        let all = self.demands.iter().map(Demand::replica_wait_ms);
        span_of_ms(all.fold(f64::INFINITY, f64::min))
    }

    pub(super) fn on_arrival(&mut self, now: Moment, class: usize, work: Work) {
        let class = self.known(class);
        let it = &mut self.demands[class];
        it.work = it.work * it.kept(now) + work.as_mu();
        it.at = now;
    }

    /// Takes in what waits and what the fleet can do.
    /// `elsewhere` says what waits of a class at other routers.
    pub(super) fn look(
        &mut self,
        now: Moment,
        line: &Line,
        elsewhere: impl Fn(ClassId) -> Work,
        capacity_per_min: Work,
    ) {
        let mut waiting = [false; CLASSES_MAX];
        for lane in line.lanes().map(LaneKey::from).filter(|it| !it.is_long()) {
            waiting[usize::from(lane.class)] = true;
        }
        for ((it, waits), id) in self.demands.iter_mut().zip(waiting).zip(0..) {
            let waits = waits || elsewhere(ClassId(id)) != Work::ZERO;
            it.waits_since = waits.then(|| it.waits_since.unwrap_or(now));
        }
        self.first = None;
        self.doors_share = 0.0;
        let shares = || self.demands.iter().map(|it| it.share(now, capacity_per_min));
        let is_alone = shares().filter(|it| ABSENT_SHARE <= *it).count() < 2;
        let mut left = Limit::NONE;
        for ((class, it), id) in self.demands.iter().enumerate().zip(0..) {
            let own = if is_alone {
                let waiting = line.class(ClassId(id)).work + elsewhere(ClassId(id));
                it.alone(waiting, capacity_per_min)
            } else {
                it.own()
            };
            self.limits[class] = left.with(own, f64::min);
            if it.waits_since.is_some() {
                // Lower classes may not go where this one may not, or they would overtake it.
                left = self.limits[class];
            }
            if is_alone {
                continue;
            }
            let share = it.share(now, capacity_per_min);
            if share < ABSENT_SHARE {
                continue;
            }
            left = left.with(it.leaves(now), f64::min);
            if self.first.is_none() {
                self.first = Some(class);
                self.doors_share = if it.is_overrun(now) { 0.0 } else { share / DOORS_FILL };
            }
        }
    }

    /// Says how far the class with the widest limits may fill a replica.
    pub(super) fn widest(&self) -> Limit {
        let none = Limit { fill: 0.0, wait_ms: 0.0, reading: 0.0 };
        self.limits.iter().fold(none, |all, it| all.with(*it, f64::max))
    }

    /// Tells whether the line is long enough that it matters how much replicas read.
    pub(super) fn limits_reading(&self) -> bool {
        self.limits.iter().any(|it| it.reading.is_finite())
    }

    /// Tells whether no more than one class is about, so that there is no other to leave room for.
    pub(super) fn is_alone(&self) -> bool {
        self.first.is_none()
    }

    pub(super) fn limit(&self, class: usize) -> Limit {
        self.limits[self.known(class)]
    }

    /// The same for the requests of a lane.
    pub(super) fn limits_in(&self, lane: LaneKey) -> RoomLimits {
        let limit = self.limit(lane.class.into());
        let free = Limit { reading: f64::INFINITY, ..limit };
        let (anywhere, at_home) = match lane.prompt {
            PromptSize::Short => (free, free),
            PromptSize::ShortAtHome => (limit, free),
            PromptSize::Usual | PromptSize::Long => (limit, limit),
        };
        RoomLimits { anywhere, home: lane.home, at_home }
    }

    /// The same at a replica that costs clearly less than all with room: beyond `limits` where no other class is
    /// about.
    pub(super) fn limits_if_cheaper(&self, lane: LaneKey, limits: RoomLimits) -> RoomLimits {
        if !self.is_alone() {
            return limits;
        }
        let wait_ms = self.demands[self.known(lane.class.into())].target_ms / CHEAPER_WAIT_PART;
        let widened = |it: Limit| Limit { wait_ms: it.wait_ms.max(wait_ms), ..it };
        let RoomLimits { anywhere, home, at_home } = limits;
        RoomLimits { anywhere: widened(anywhere), home, at_home: widened(at_home) }
    }

    /// Tells whether a prompt is long, so that it must leave some replicas free: its prefill takes longer
    /// than the first class may wait at a replica, or than its own target.
    pub(super) fn is_long(&self, class: usize, prefill_ms: f64) -> bool {
        let class = self.known(class);
        let first = self.first.unwrap_or(class).min(class);
        let own_ms = self.demands[class].target_ms;
        let bearable_ms =
            if first < class { self.demands[first].replica_wait_ms() } else { own_ms };
        bearable_ms < prefill_ms
    }

    /// Tells whether enough of these replicas would be free if one more read a long prompt.
    pub(super) fn has_door<'a>(&self, fills: impl IntoIterator<Item = &'a Fill>) -> bool {
        let first = self.first.map_or(f64::INFINITY, |it| self.demands[it].replica_wait_ms());
        let (mut all, mut free) = (0.0, 0.0);
        for fill in fills {
            all += 1.0;
            free += if fill.wait_ms < first { 1.0 } else { 0.0 };
        }
        // Of a few replicas one is kept whole; a single replica is not kept.
        let doors = (self.doors_share * all).ceil().min((DOORS_SHARE_MAX * all).floor());
        doors < free || doors < 1.0
    }

    fn known(&self, class: usize) -> usize {
        class.min(self.demands.len() - 1)
    }
}

#[cfg(test)]
mod tests;
