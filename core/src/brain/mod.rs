//! The whole decision for one pool: events and time in, actions out. It holds who is there, what is
//! in flight and what is remembered of sessions, and it is the only one who changes any of it. It
//! never waits, never reads a clock and never does what it decides: the driver does, under one lock
//! per pool, and the simulator does the same in virtual time.

mod budget;
mod event;
pub mod invariants;
mod notice;
mod sessions;
mod settings;
mod snapshot;

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxBuildHasher;

use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey, Usage};
use crate::fleet::{Fleet, Reason, Replica, Standing};
use crate::policy::{self, Ask, Candidate, Policy};
use crate::tokens::Lengths;

pub use event::{Action, Event, Failure, Outcome, Refusal};
pub use notice::Notice;
pub use settings::{RetrySettings, SessionSettings, Settings};
pub use snapshot::{ReplicaLoad, ReplicaSnapshot, Snapshot};

use budget::RetryBudget;
use notice::Notices;
use sessions::Sessions;

/// How often the session table is swept a little.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// What a refused client is told to wait when nothing better is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// The state machine of one pool.
#[derive(Debug)]
pub struct Brain {
    settings: Settings,
    policy: Box<dyn Policy>,
    chance: Pcg64Mcg,
    fleet: Fleet,
    requests: IndexMap<RequestId, Booking, FxBuildHasher>,
    sessions: Sessions,
    lengths: Lengths,
    budget: RetryBudget,
    swept_at: Moment,
    sessions_moved_total: u64,
    notices: Notices,
    /// Reused by every decision, so that none allocates.
    candidates: Vec<Candidate>,
}

/// One request that was sent and has not ended.
#[derive(Debug)]
struct Booking {
    key: SliceKey,
    outline: Outline,
    extent: Extent,
    replica: ReplicaId,
    /// Whether its first byte has come: from then on it cannot go elsewhere.
    answering: bool,
    /// Whether it went to a replica that was out, to see whether it is back.
    trial: bool,
    /// Where it was before, in vain.
    tried: Vec<ReplicaId>,
    /// Those of them that answered with an error. They are blamed only if somebody else does better:
    /// a request that fails everywhere is itself to blame.
    suspects: Vec<ReplicaId>,
}

impl Booking {
    fn ask(&self, now: Moment) -> Ask<'_> {
        Ask { now, key: self.key, outline: &self.outline }
    }
}

impl Brain {
    pub fn new(settings: Settings) -> Self {
        Self {
            policy: policy::make(settings.policy),
            chance: Pcg64Mcg::seed_from_u64(settings.seed),
            fleet: Fleet::default(),
            requests: IndexMap::default(),
            sessions: Sessions::new(settings.sessions),
            lengths: Lengths::default(),
            budget: RetryBudget::new(settings.retries),
            swept_at: Moment::ZERO,
            sessions_moved_total: 0,
            notices: Notices::default(),
            candidates: Vec::new(),
            settings,
        }
    }

    /// Takes in one event and appends what must be done, in order.
    pub fn on_event(&mut self, now: Moment, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Arrived { request, key, mut outline, extent } => {
                self.lengths.complete(key, &extent, &mut outline);
                self.on_arrived(now, request, key, outline, extent, actions);
            }
            Event::Failed { request, failure } => self.on_failed(now, request, failure, actions),
            Event::Answering { request } => self.on_answering(now, request),
            Event::Ended { request, outcome, usage } => {
                self.on_ended(now, request, outcome, usage, actions);
            }
            Event::Joined { replica, name, weight } => {
                let it = Replica::new(replica, name, weight, self.settings.breaker);
                self.policy.on_joined(replica, it.place);
                self.fleet.join(it);
                self.notices.push(Notice::Joined { replica });
            }
            Event::Weighed { replica, weight } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    it.weight = weight;
                }
            }
            Event::Leaving { replica } => {
                self.change(replica, |it| it.leaving = true);
                self.release_if_done(replica, actions);
            }
            Event::Probed { replica, probe } => {
                self.change(replica, |it| it.breaker.on_probe(now, probe));
            }
            Event::Reported { replica, report } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    it.report = Some(report);
                }
            }
        }
        debug_assert!(invariants::ledger_matches_requests(self));
    }

    /// Takes what operators should know and have not been told.
    pub fn take_notices(&mut self) -> VecDeque<Notice> {
        self.notices.take()
    }

    /// When to call `on_time` next if nothing else happens.
    pub fn next_wakeup(&self) -> Option<Moment> {
        Some(self.swept_at + SWEEP_INTERVAL)
    }

    pub fn on_time(&mut self, now: Moment) {
        if self.swept_at + SWEEP_INTERVAL <= now {
            self.sessions.sweep(now);
            self.swept_at = now;
        }
    }

    fn on_arrived(
        &mut self,
        now: Moment,
        request: RequestId,
        key: SliceKey,
        outline: Outline,
        extent: Extent,
        actions: &mut Vec<Action>,
    ) {
        self.budget.on_arrival(self.requests.len());
        match self.pick(&Ask { now, key, outline: &outline }, &[]) {
            Some(replica) => {
                let booking = Booking {
                    key,
                    outline,
                    extent,
                    replica,
                    answering: false,
                    trial: false,
                    tried: Vec::new(),
                    suspects: Vec::new(),
                };
                self.send(now, request, booking, actions);
            }
            None => actions.push(Action::Refuse { request, refusal: self.nobody(now) }),
        }
    }

    fn on_failed(
        &mut self,
        now: Moment,
        request: RequestId,
        failure: Failure,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut booking) = self.take(now, request) else { return };
        let failed = booking.replica;
        match failure {
            Failure::Unreachable => self.blame(now, failed, Reason::Unreachable),
            Failure::Status if booking.trial => self.blame(now, failed, Reason::Failing),
            Failure::Status => booking.suspects.push(failed),
            // An engine that says it is full is well; only this request should go elsewhere.
            Failure::Busy => self.praise(now, failed),
        }
        booking.tried.push(failed);
        match self.pick_again(now, &booking) {
            Ok(replica) => {
                booking.replica = replica;
                self.send(now, request, booking, actions);
            }
            Err(refusal) => actions.push(Action::Refuse { request, refusal }),
        }
        self.release_if_done(failed, actions);
    }

    fn on_answering(&mut self, now: Moment, request: RequestId) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let replica = booking.replica;
        let suspects = std::mem::take(&mut booking.suspects);
        if !std::mem::replace(&mut booking.answering, true) {
            self.policy.on_first_token(now, request, replica);
        }
        self.praise(now, replica);
        for suspect in suspects {
            self.blame(now, suspect, Reason::Failing);
        }
    }

    fn on_ended(
        &mut self,
        now: Moment,
        request: RequestId,
        outcome: Outcome,
        usage: Usage,
        actions: &mut Vec<Action>,
    ) {
        let Some(booking) = self.take(now, request) else { return };
        let Booking { key, extent, outline, .. } = &booking;
        self.lengths.on_ended(*key, extent, outline, usage, outcome == Outcome::Done);
        match outcome {
            Outcome::Cut => self.blame(now, booking.replica, Reason::Unreachable),
            Outcome::Cancelled if booking.trial && !booking.answering => {
                self.change(booking.replica, |it| it.breaker.on_trial_abandoned(now));
            }
            Outcome::Done | Outcome::Cancelled => {}
        }
        self.release_if_done(booking.replica, actions);
    }

    /// Chooses a replica other than those tried; the only place where policies are asked.
    fn pick(&mut self, ask: &Ask<'_>, tried: &[ReplicaId]) -> Option<ReplicaId> {
        if self.policy.keeps_sessions()
            && let Some(home) = self.closed_home(ask, tried)
        {
            return Some(home);
        }
        self.gather(tried, |it| it.admits(ask.now));
        if self.candidates.is_empty() {
            self.gather(tried, |it| it.admits_at_need(ask.now));
        }
        if self.candidates.is_empty() {
            // Better a replica that has not shown itself yet than none.
            self.gather(tried, |it| !it.leaving && it.breaker.standing() == Standing::Joining);
        }
        if self.candidates.is_empty() {
            return None;
        }
        let chosen = self.policy.pick(ask, &self.candidates, &mut self.chance);
        Some(self.candidates[chosen].id)
    }

    /// Finds the session's replica if that takes no new sessions but may keep this one.
    fn closed_home(&self, ask: &Ask<'_>, tried: &[ReplicaId]) -> Option<ReplicaId> {
        if self.fleet.iter().all(|it| 0.0 < it.weight) {
            return None;
        }
        let home = self.sessions.home(ask.now, ask.key)?;
        let replica = self.fleet.get(home)?;
        (replica.weight <= 0.0 && replica.admits(ask.now) && !tried.contains(&home)).then_some(home)
    }

    fn gather(&mut self, tried: &[ReplicaId], admits: impl Fn(&Replica) -> bool) {
        self.candidates.clear();
        self.candidates.extend(
            self.fleet
                .iter()
                .filter(|it| 0.0 < it.weight && admits(it) && !tried.contains(&it.id))
                .map(candidate),
        );
    }

    fn pick_again(&mut self, now: Moment, booking: &Booking) -> Result<ReplicaId, Refusal> {
        let tries = u32::try_from(booking.tried.len()).unwrap_or(u32::MAX);
        if self.settings.retries.tries_max <= tries {
            return Err(Refusal::TriesSpent);
        }
        let Some(replica) = self.pick(&booking.ask(now), &booking.tried) else {
            return Err(Refusal::TriesSpent);
        };
        if self.budget.pay() { Ok(replica) } else { Err(Refusal::BudgetSpent) }
    }

    fn send(
        &mut self,
        now: Moment,
        request: RequestId,
        mut booking: Booking,
        actions: &mut Vec<Action>,
    ) {
        let (key, replica) = (booking.key, booking.replica);
        let Some(it) = self.fleet.get_mut(replica) else { return };
        self.policy.on_sent(request, &booking.ask(now), &candidate(it));
        self.change(replica, |it| {
            it.on_sent();
            booking.trial = matches!(it.breaker.standing(), Standing::Trial { .. });
        });
        self.requests.insert(request, booking);
        let before = self.sessions.remember(now, key, replica);
        self.sessions_moved_total += u64::from(before.is_some_and(|it| it != replica));
        actions.push(Action::Send { request, replica });
    }

    /// Takes a request off the books. `None` when it is not on them: it ends once, whatever comes.
    fn take(&mut self, now: Moment, request: RequestId) -> Option<Booking> {
        let booking = self.requests.swap_remove(&request)?;
        self.policy.on_ended(now, request, booking.replica);
        if let Some(it) = self.fleet.get_mut(booking.replica) {
            it.on_ended();
        }
        Some(booking)
    }

    /// Changes what is known of a replica, and notes it for operators if its state is another now.
    /// There is no other way to change a state, so none changes untold.
    fn change(&mut self, replica: ReplicaId, change: impl FnOnce(&mut Replica)) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        let before = it.state();
        change(it);
        let now = it.state();
        if before != now {
            self.notices.push(Notice::Changed { replica, before, now });
        }
    }

    fn blame(&mut self, now: Moment, replica: ReplicaId, reason: Reason) {
        self.change(replica, |it| it.on_failure(now, reason));
    }

    fn praise(&mut self, now: Moment, replica: ReplicaId) {
        self.change(replica, |it| it.breaker.on_success(now));
    }

    fn release_if_done(&mut self, replica: ReplicaId, actions: &mut Vec<Action>) {
        if self.fleet.get(replica).is_some_and(|it| it.leaving && it.in_flight == 0) {
            self.fleet.leave(replica);
            self.policy.on_left(replica);
            self.notices.push(Notice::Left { replica });
            actions.push(Action::Release { replica });
        }
    }

    /// Says when somebody may be there again.
    fn nobody(&self, now: Moment) -> Refusal {
        let soonest = self.fleet.iter().filter(|it| !it.leaving).filter_map(|it| {
            match it.breaker.standing() {
                Standing::Out { until, .. } => Some(until.since(now)),
                Standing::Joining
                | Standing::Up
                | Standing::Suspect { .. }
                | Standing::Trial { .. } => None,
            }
        });
        Refusal::NoReplica { retry_after: soonest.min().unwrap_or(RETRY_AFTER).max(RETRY_AFTER) }
    }
}

/// Shows a policy what it may know of a replica.
fn candidate(replica: &Replica) -> Candidate {
    Candidate {
        id: replica.id,
        place: replica.place,
        weight: replica.weight,
        in_flight: replica.in_flight,
        report: replica.report,
    }
}

#[cfg(test)]
mod tests;
