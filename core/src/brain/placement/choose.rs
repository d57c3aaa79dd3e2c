//! Which replica is chosen: which may take a request at all, inside its subset as far as that will do, which of
//! these have room and would be in time, and, last, what the policy says.

use crate::domain::{Moment, Place, ReplicaId, span_ms};
use crate::fleet::{Fleet, Replica};
use crate::policy::{Ask, Candidate};

use super::super::request::Due;
use super::subsets::Subsets;
use super::{Candidates, Placement, candidate};

/// A replica without room is worth the wait if its price is below this part of the lowest of those with room.
const CHEAPER_PART: f64 = 0.8;

/// Why no replica is chosen for a request.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::brain) enum Unpicked {
    None,
    /// Some could take it, but none in time; `first_token_ms` is the shortest TTFT that was predicted.
    TooLate {
        first_token_ms: f64,
    },
}

/// Finds the replica at a place, unless it leaves.
pub(in crate::brain) fn keeper(fleet: &Fleet, place: Place) -> Option<&Replica> {
    fleet.iter().find(|it| it.place == place && !it.leaving)
}

impl Placement {
    /// Gathers the replicas that may take a request and where it was not tried: the one that keeps what it names,
    /// the one that its session is bound to, or those inside its subset as far as that will do.
    pub(in crate::brain) fn gather(
        &mut self,
        ask: &Ask<'_>,
        fleet: &Fleet,
        tried: &[ReplicaId],
    ) -> Candidates {
        let mut candidates = std::mem::take(&mut self.spare);
        candidates.list.clear();
        candidates.terms.clear();
        candidates.selection.clear();
        candidates.is_bound = false;
        if let Some(place) = ask.outline.kept_at {
            let keeper = keeper(fleet, place).filter(|it| {
                !tried.contains(&it.id) && (it.admits_at_need(ask.now) || it.is_joining())
            });
            candidates
                .list
                .extend(keeper.map(|it| candidate(it, ask.now, fleet.strangers_usual())));
            candidates.is_bound = true;
            return candidates;
        }
        if let Some(home) = self.closed_home(ask, fleet, tried).and_then(|it| fleet.get(it)) {
            candidates.list.push(candidate(home, ask.now, fleet.strangers_usual()));
            candidates.is_bound = true;
            return candidates;
        }
        let now = ask.now;
        self.select(ask, fleet, tried, &mut candidates.selection);
        self.list(&mut candidates, now, fleet, tried, |it| it.admits(now));
        if candidates.selection.is_divided
            && self.should_spill(ask, &mut candidates)
            && self.subsets.spill(now, ask.key, &mut candidates.selection)
        {
            self.list(&mut candidates, now, fleet, tried, |it| it.admits(now));
        }
        if candidates.list.is_empty() {
            // A request that lost a replica has few tries: it waits for a token rather than be a trial.
            let is_retry = !tried.is_empty();
            let admits =
                |it: &Replica| it.admits_at_need(now) && !(is_retry && it.breaker.may_come_back());
            self.list(&mut candidates, now, fleet, tried, admits);
        }
        if candidates.list.is_empty() && !self.starts_replicas {
            // Better a replica that has not shown itself yet than none.
            self.list(&mut candidates, now, fleet, tried, Replica::is_joining);
        }
        candidates
    }

    /// Lists the replicas that may take something, with how long the next prompt would wait at each for what is
    /// booked: the healthy ones; if there are none, suspects and those whose time out is over; at last those that
    /// have not shown themselves.
    pub(in crate::brain) fn open<'a>(
        &'a self,
        now: Moment,
        fleet: &'a Fleet,
    ) -> impl Iterator<Item = (&'a Replica, f64)> {
        let is_open = |it: &&Replica| 0.0 < it.weight && !self.subsets.is_drained(it.place);
        let open = fleet.iter().filter(is_open);
        let admits: fn(&Replica, Moment) -> bool = if open.clone().any(|it| it.admits(now)) {
            Replica::admits
        } else if open.clone().any(|it| it.admits_at_need(now)) {
            Replica::admits_at_need
        } else if self.starts_replicas {
            |_, _| false
        } else {
            |it, _| it.is_joining()
        };
        open.filter(move |it| admits(it, now)).map(move |it| (it, it.booked_wait_ms(now)))
    }

    /// Chooses among the candidates with room in the eyes of `has_room`, or among all where none has any, and of
    /// these among those that would be in time. Where only some have room, one that `is_near` to having it may be
    /// worth the wait. The only place where policies are asked.
    pub(in crate::brain) fn choose(
        &mut self,
        ask: &Ask<'_>,
        candidates: &mut Candidates,
        due: Due,
        has_room: impl Fn(ReplicaId) -> bool,
        is_near: impl Fn(ReplicaId) -> bool,
    ) -> Result<ReplicaId, Unpicked> {
        if candidates.list.is_empty() {
            return Err(Unpicked::None);
        }
        if let Some(it) = self.worth_the_wait(ask, candidates, due, &has_room, &is_near) {
            candidates.list.retain(|it| has_room(it.id) || is_near(it.id));
            self.subsets.on_picked(&candidates.selection, it.place);
            return Ok(it.id);
        }
        if candidates.list.iter().any(|it| has_room(it.id)) {
            candidates.list.retain(|it| has_room(it.id));
        }
        let first_token_ms = self.retain_timely(ask, candidates, due);
        let Some(first) = candidates.list.first() else {
            return Err(Unpicked::TooLate { first_token_ms });
        };
        if candidates.is_bound {
            return Ok(first.id);
        }
        let ask = Ask { home: self.sessions.home(ask.now, ask.key), ..*ask };
        let chosen = self.policy.pick(&ask, &candidates.list, &mut self.chance);
        self.subsets.on_picked(&candidates.selection, candidates.list[chosen].place);
        Ok(candidates.list[chosen].id)
    }

    /// Finds the candidate without room that costs clearly less than all with room; under a policy that prices nothing
    /// and keeps sessions, the session's own. A prompt that lies in its cache may cost ten times as much
    /// elsewhere; sent there, it and what it pushes out of that cache would make the overload that it was to
    /// escape.
    fn worth_the_wait(
        &mut self,
        ask: &Ask<'_>,
        candidates: &mut Candidates,
        due: Due,
        has_room: impl Fn(ReplicaId) -> bool,
        is_near: impl Fn(ReplicaId) -> bool,
    ) -> Option<Candidate> {
        let all = || candidates.list.iter().map(|it| it.id);
        if !all().any(&has_room) || !all().any(|it| !has_room(it) && is_near(it)) {
            return None;
        }
        self.weigh(ask, candidates);
        let is_near = |it: &Candidate| {
            let first_token_ms = candidates.ttft_ms(it.id);
            is_near(it.id) && due.can_be_met(ask.now, it.load.wait_ms, first_token_ms)
        };
        if candidates.terms.is_empty() {
            let home = self.sessions.home(ask.now, ask.key);
            let home = home.filter(|it| self.policy.keeps_sessions() && !has_room(*it))?;
            return candidates.list.iter().copied().find(|it| it.id == home && is_near(it));
        }
        let (mut with_room_ms, mut near_ms, mut nearest) = (f64::INFINITY, f64::INFINITY, None);
        for it in &candidates.list {
            let Some(price_ms) = candidates.price_ms(it.id) else { continue };
            if has_room(it.id) {
                with_room_ms = with_room_ms.min(price_ms);
            } else if price_ms < near_ms && is_near(it) {
                (near_ms, nearest) = (price_ms, Some(*it));
            }
        }
        nearest.filter(|_| near_ms < CHEAPER_PART * with_room_ms)
    }

    /// Leaves out candidates that are predicted to be late; returns the shortest predicted TTFT.
    fn retain_timely(&mut self, ask: &Ask<'_>, candidates: &mut Candidates, due: Due) -> f64 {
        if due == Due::default() {
            return 0.0;
        }
        self.weigh(ask, candidates);
        let mut list = std::mem::take(&mut candidates.list);
        let mut soonest_ms = f64::INFINITY;
        list.retain(|it| {
            let weighed = candidates.ttft_ms(it.id);
            soonest_ms = soonest_ms.min(weighed.unwrap_or(it.load.wait_ms));
            due.can_be_met(ask.now, it.load.wait_ms, weighed)
        });
        candidates.list = list;
        soonest_ms
    }

    /// Asks the policy once how it weighs the candidates.
    fn weigh(&mut self, ask: &Ask<'_>, candidates: &mut Candidates) {
        let is_weighed = candidates.list.iter().all(|it| candidates.ttft_ms(it.id).is_some());
        if !is_weighed {
            candidates.terms.clear();
            self.policy.terms(ask, &candidates.list, &mut candidates.terms);
        }
    }

    /// Tells whether a subset cannot do: nothing in it takes the request, every replica has a long line, or, where
    /// the policy predicts it, none would begin to answer soon.
    fn should_spill(&mut self, ask: &Ask<'_>, candidates: &mut Candidates) -> bool {
        let spill_wait_ms = span_ms(self.subsets.spill_wait(ask.promise.first_token));
        if candidates.list.iter().all(|it| spill_wait_ms < it.load.wait_ms) {
            return true;
        }
        let Some(promise) = ask.promise.first_token else { return false };
        let longest_ms = span_ms(Subsets::first_token_max(promise));
        self.weigh(ask, candidates);
        !candidates.terms.is_empty() && candidates.terms.iter().all(|it| longest_ms < it.ttft_ms)
    }

    /// Finds the session's replica if that takes no new sessions but may keep this one.
    fn closed_home(&self, ask: &Ask<'_>, fleet: &Fleet, tried: &[ReplicaId]) -> Option<ReplicaId> {
        if !self.policy.keeps_sessions() || fleet.iter().all(|it| 0.0 < it.weight) {
            return None;
        }
        let home = self.sessions.home(ask.now, ask.key)?;
        let replica = fleet.get(home)?;
        (replica.weight <= 0.0 && replica.admits(ask.now) && !tried.contains(&home)).then_some(home)
    }

    fn list(
        &self,
        candidates: &mut Candidates,
        now: Moment,
        fleet: &Fleet,
        tried: &[ReplicaId],
        admits: impl Fn(&Replica) -> bool,
    ) {
        let Candidates { list, selection, .. } = candidates;
        let usual = fleet.strangers_usual();
        list.clear();
        list.extend(
            fleet
                .iter()
                .filter(|it| 0.0 < it.weight && admits(it) && !tried.contains(&it.id))
                .filter(|it| self.subsets.admits(selection, it.place))
                .map(|it| candidate(it, now, usual)),
        );
    }
}
