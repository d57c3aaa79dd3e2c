//! The whole decision for one pool: events and time in, actions out. Seven machines do it, each with its
//! own state and none knowing another: `placement` says where, `admission` when, `books` what it costs,
//! `health` which replicas are well, `learning` what work takes there, `poison` what must not be sent, `peers`
//! what other routers do. The brain is the match below: it tells the machines what happened and carries what
//! they say from one to the next. It never waits, never reads a clock and never does what it decides: the
//! driver does, under one lock per pool, and the simulator does the same in virtual time.

mod admission;
mod arrival;
mod books;
mod event;
mod explain;
mod found;
mod health;
mod hearing;
pub mod hostile;
pub mod invariants;
mod learning;
mod live;
mod notice;
mod outcome;
mod peers;
mod placement;
mod poison;
mod record;
mod relapse;
mod request;
mod retry;
mod roster;
mod settings;
mod sizing;
mod snapshot;
mod telling;

use std::collections::VecDeque;
use std::time::Duration;

use crate::cluster::News;
use crate::domain::Moment;
use crate::fleet::Fleet;
use crate::prefix::PrefixIndex;
use crate::tokens::TOKENS_MAX;

pub use admission::Cause;
pub use books::{TtftError, WorkloadDrift};
pub use event::{Action, Event, Failure, Outcome, Refusal, streamed_is_due};
pub use explain::{
    BookedElsewhere, Considered, Course, End, Expected, Explanation, Other, Remark, Shadows,
    TimedPart, Waited, Why,
};
pub use live::{LiveReplica, LiveView, SessionHome, WaitingGroup};
pub use notice::Notice;
pub use peers::Telling;
pub use placement::{
    AssignmentView, Beyond, LeaveCause, Move, MoveTotals, Order, SliceView, SubsetSettings,
    SubsetTotals, WorkloadSettings, WorkloadView,
};
pub use poison::{QuarantineScope, QuarantineSettings};
pub use record::{Inherit, Record};
pub use relapse::{Relapses, Remedy};
pub use request::Fingerprint;
pub use settings::{LineSettings, RetrySettings, SessionSettings, Settings, WatchSettings};
pub use snapshot::{QueueSnapshot, ReplicaLoad, ReplicaSnapshot, Snapshot, TenantSnapshot};

use admission::{Admission, Arrival};
use books::Books;
use explain::Explaining;
use health::Health;
use learning::Learning;
use notice::Notices;
use peers::Peers;
use placement::Placement;
use poison::Poison;

/// How often the session table is swept a little.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// What a refused client is told to wait when nothing better is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// In debug builds, a brain with no more requests than this is checked after every event.
const CHECKED_ALWAYS: usize = 64;
/// A busier one is checked each time this many accounts were opened or closed.
const CHECKED_EVERY: u64 = 16;

/// The state machine of one pool.
#[derive(Debug)]
pub struct Brain {
    settings: Settings,
    fleet: Fleet,
    placement: Placement,
    admission: Admission,
    books: Books,
    health: Health,
    learning: Learning,
    poison: Poison,
    peers: Peers,
    explaining: Explaining,
    notices: Notices,
    swept_at: Moment,
}

impl Brain {
    pub fn new(settings: Settings) -> Self {
        let Settings { policy, seed, sessions, ref subsets, .. } = settings;
        let mut placement = Placement::new(policy, seed, sessions, subsets.clone());
        if let Some(own) = settings.router {
            placement.join_others(own);
            placement.index().into_iter().for_each(PrefixIndex::keep_anchors);
        }
        // Each router draws lots of its own.
        let lots = seed ^ settings.router.map_or(0, |it| it.0);
        Self {
            fleet: Fleet::default(),
            placement,
            admission: Admission::new(&settings.line, settings.retries, lots),
            books: Books::default(),
            health: Health::new(settings.watch),
            learning: Learning::new(settings.learns_costs),
            poison: Poison::new(settings.quarantine),
            peers: Peers::new(settings.router),
            explaining: Explaining::default(),
            notices: Notices::default(),
            swept_at: Moment::ZERO,
            settings,
        }
    }

    /// Takes in one event and appends what must be done, in order.
    pub fn on_event(&mut self, now: Moment, event: Event, actions: &mut Vec<Action>) {
        let before = actions.len();
        match event {
            Event::Arrived { request, key, mut outline, extent, claim } => {
                self.books.complete(key, &extent, &mut outline);
                self.admission.retries.on_arrival(key.workload(), self.books.len());
                let fingerprint = Fingerprint::of(key, &outline, &extent);
                let arrival = Arrival { request, key, outline, extent, claim, fingerprint };
                self.on_arrived(now, arrival, actions);
            }
            Event::Failed { request, failure } => self.on_failed(now, request, failure, actions),
            Event::Answering { request } => self.on_answering(now, request, actions),
            Event::Streamed { request, output_tokens } => {
                self.on_streamed(now, request, output_tokens.min(TOKENS_MAX), actions);
            }
            Event::Ended { request, outcome, usage } => {
                self.on_ended(now, request, outcome, usage, actions);
            }
            Event::Joined { replica, name, weight, hardware } => {
                self.join(replica, name, weight, hardware);
                self.measure();
                self.notices.push(Notice::Joined { replica });
            }
            Event::Weighed { replica, weight } => {
                self.fleet.get_mut(replica).into_iter().for_each(|it| it.weigh(weight));
                self.placement.on_weighed();
            }
            Event::Classed { replica, hardware } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    it.hardware = self.learning.on_joined(replica, hardware);
                    self.admission.on_joined(it);
                }
                self.measure();
            }
            Event::Leaving { replica } => {
                self.change(replica, |it| it.leaving = true);
                self.placement.on_weighed();
                self.release_if_done(replica, actions);
            }
            Event::Contracted { limits } => self.admission.on_contracted(now, limits),
            Event::Recalled { costs } => self.recall(costs),
            Event::Ordered(order) => {
                self.tell_order(&order);
                self.placement.obey(now, order, &self.fleet);
            }
            Event::Probed { replica, probe } => self.check(now, actions, |it, fleet, found| {
                it.on_probed(now, fleet, replica, probe, found);
            }),
            Event::Sign { replica, at } => self.check(now, actions, |it, fleet, found| {
                it.on_sign(fleet, replica, at, found);
            }),
            Event::Unawaited { replica } => self.check(now, actions, |it, fleet, found| {
                it.on_unawaited(now, fleet, replica, found);
            }),
            Event::Restarted { replica } => self.check(now, actions, |_, fleet, found| {
                Health::on_restarted(fleet, replica, found);
            }),
            Event::Reported { replica, report } => self.check(now, actions, |it, fleet, found| {
                it.on_reported(now, fleet, replica, report, found);
            }),
            Event::Heard { router, news, is_whole } => {
                self.on_heard(now, router, (news, is_whole), actions);
            }
            Event::Parted { router, is_lost } => self.on_parted(now, router, is_lost),
            Event::Elected { leads } => self.placement.lead(leads),
            Event::Scaling { ready_in, hardware } => {
                self.placement.set_starts_replicas(ready_in.is_some());
                self.admission.capacity.expect_start(ready_in, hardware);
            }
        }
        self.finish(now, before, actions);
    }

    /// Takes what operators should know and have not been told.
    pub fn take_notices(&mut self) -> VecDeque<Notice> {
        self.notices.take()
    }

    /// When to call `on_time` next if nothing else happens. Early is wasteful, late is allowed.
    pub fn next_wakeup(&self) -> Option<Moment> {
        let sweep = self.swept_at + SWEEP_INTERVAL;
        let others = [
            self.health.next_look(self.books.len() != 0),
            self.admission.next_wakeup(),
            self.poison.hold.next_wakeup(),
            self.books.next_wakeup(),
        ];
        others.into_iter().flatten().chain([sweep]).min()
    }

    /// Does what only time brings, and appends what must be done.
    pub fn on_time(&mut self, now: Moment, actions: &mut Vec<Action>) {
        let before = actions.len();
        let peers = &mut self.peers;
        self.books.on_time(now, &mut self.fleet, |it| peers.tell(News::Begun { request: it }));
        let mut found = Vec::new();
        let bookings = self.books.iter().map(|it| it.1);
        self.health.tick(now, &mut self.fleet, bookings, &mut found);
        self.act_on(now, found, actions);
        if self.swept_at + SWEEP_INTERVAL <= now {
            self.placement.sweep(now);
            self.fleet.on_time(now);
            self.reprice();
            self.placement.plan_if_due(now, &self.fleet);
            self.measure();
            self.refresh_reaches(now);
            self.admission.on_time(now);
            self.peers.on_time(now, &mut self.fleet);
            self.tell_sample();
            self.tell_plan();
            self.tell_learned(now);
            self.tell_demand();
            self.swept_at = now;
        }
        self.finish(now, before, actions);
    }

    /// Sends what may go now that something has happened.
    fn finish(&mut self, now: Moment, before: usize, actions: &mut Vec<Action>) {
        self.discharge(now, actions);
        self.pump(now, actions);
        self.tell_waiting(now);
        debug_assert_eq!(self.broken(now, &actions[before..]), None);
    }

    /// Finds a broken invariant, for debug builds. A check goes through all requests in flight and in the
    /// line, so a busy brain is not checked at every event; the swarm and the property of a hostile driver do.
    fn broken(&self, now: Moment, actions: &[Action]) -> Option<&'static str> {
        let is_busy = CHECKED_ALWAYS < self.books.len() + self.admission.waiting.line().len();
        if is_busy && !self.books.changes().is_multiple_of(CHECKED_EVERY) {
            return None;
        }
        invariants::broken(self, now, actions)
    }
}

#[cfg(test)]
mod tests;
