//! The whole decision for one pool: events and time in, actions out. It holds who is there, what is
//! in flight and what is remembered of sessions, and it is the only one who changes any of it. It
//! never waits, never reads a clock and never does what it decides: the driver does, under one lock
//! per pool, and the simulator does the same in virtual time.

mod budget;
mod event;
pub mod invariants;
mod knee;
mod line;
mod sessions;
mod settings;
mod snapshot;

use std::time::Duration;

use indexmap::IndexMap;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxBuildHasher;

use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey, Usage};
use crate::fleet::{Fleet, Reason, Replica, Standing};
use crate::policy::{self, Ask, Candidate, Policy};
use crate::tokens::Lengths;

pub use event::{Action, Event, Failure, Outcome, Refusal, streamed_is_due};
pub use settings::{LineSettings, RetrySettings, SessionSettings, Settings};
pub use snapshot::{QueueSnapshot, ReplicaLoad, ReplicaSnapshot, Snapshot, TenantSnapshot};

use budget::RetryBudget;
use line::{Arrival, Hold, Toll};
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
    hold: Hold,
    swept_at: Moment,
    sessions_moved_total: u64,
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
    /// Tokens of its answer that have come so far.
    streamed_tokens: u32,
    /// Whether it went to a replica that was out, to see whether it is back.
    trial: bool,
    /// Where it was before, in vain.
    tried: Vec<ReplicaId>,
    /// Those of them that answered with an error. They are blamed only if somebody else does better:
    /// a request that fails everywhere is itself to blame.
    suspects: Vec<ReplicaId>,
    /// What it was expected to cost, and what it holds of its contract.
    toll: Toll,
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
            hold: Hold::new(&settings.line),
            swept_at: Moment::ZERO,
            sessions_moved_total: 0,
            candidates: Vec::new(),
            settings,
        }
    }

    /// Takes in one event and appends what must be done, in order.
    pub fn on_event(&mut self, now: Moment, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Arrived { request, key, mut outline, extent, claim } => {
                self.lengths.complete(key, &extent, &mut outline);
                self.budget.on_arrival(self.requests.len());
                self.admit(now, Arrival { request, key, outline, extent, claim }, actions);
            }
            Event::Failed { request, failure } => self.on_failed(now, request, failure, actions),
            Event::Answering { request } => self.on_answering(now, request),
            Event::Streamed { request, output_tokens } => {
                if let Some(booking) = self.requests.get_mut(&request) {
                    booking.streamed_tokens = output_tokens;
                }
                self.hold_on_streamed(request);
            }
            Event::Ended { request, outcome, usage } => {
                self.on_ended(now, request, outcome, usage, actions);
            }
            Event::Joined { replica, name, weight, hardware } => {
                let it = Replica::new(replica, name, weight, hardware, self.settings.breaker);
                self.policy.on_joined(replica, it.place);
                self.hold.knees.on_joined(replica, &it.hardware);
                self.fleet.join(it);
                self.measure_fleet();
            }
            Event::Weighed { replica, weight } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    it.weight = weight;
                }
            }
            Event::Leaving { replica } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    it.leaving = true;
                }
                self.release_if_done(replica, actions);
            }
            Event::Contracted { limits } => self.hold.contracts.reset(now, limits),
            Event::Probed { replica, probe } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    it.breaker.on_probe(now, probe);
                }
            }
            Event::Reported { replica, report } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    it.report = Some(report);
                }
                self.hold.knees.on_report(replica, report);
            }
        }
        self.pump(now, actions);
        debug_assert!(invariants::ledger_matches_requests(self));
    }

    /// When to call `on_time` next if nothing else happens. Early is wasteful, late is allowed.
    pub fn next_wakeup(&self) -> Option<Moment> {
        let sweep = self.swept_at + SWEEP_INTERVAL;
        Some(self.hold.line.next_expiry().map_or(sweep, |it| it.min(sweep)))
    }

    /// Does what only time brings, and appends what must be done.
    pub fn on_time(&mut self, now: Moment, actions: &mut Vec<Action>) {
        if self.swept_at + SWEEP_INTERVAL <= now {
            self.sessions.sweep(now);
            self.measure_fleet();
            self.hold.gate.on_time(now);
            self.swept_at = now;
        }
        self.pump(now, actions);
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
            Failure::Busy => self.praise(failed),
        }
        booking.tried.push(failed);
        match self.pick_again(now, &booking) {
            Ok(replica) => {
                booking.replica = replica;
                self.send(now, request, booking, actions);
            }
            Err(refusal) => {
                self.hold_on_unserved(now, &booking);
                actions.push(Action::Refuse { request, refusal });
            }
        }
        self.release_if_done(failed, actions);
    }

    fn on_answering(&mut self, now: Moment, request: RequestId) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let replica = booking.replica;
        let suspects = std::mem::take(&mut booking.suspects);
        if !std::mem::replace(&mut booking.answering, true) {
            self.hold.knees.on_read(now, replica, &mut booking.toll.burden);
            self.policy.on_first_token(now, request, replica);
        }
        self.praise(replica);
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
        if self.on_left_line(request) {
            return;
        }
        let Some(booking) = self.take(now, request) else { return };
        self.hold_on_ended(now, &booking, usage);
        let Booking { key, extent, outline, .. } = &booking;
        self.lengths.on_ended(*key, extent, outline, usage, outcome == Outcome::Done);
        match outcome {
            Outcome::Cut => self.blame(now, booking.replica, Reason::Unreachable),
            Outcome::Cancelled if booking.trial && !booking.answering => {
                if let Some(it) = self.fleet.get_mut(booking.replica) {
                    it.breaker.on_trial_abandoned(now);
                }
            }
            Outcome::Done | Outcome::Cancelled => {}
        }
        self.release_if_done(booking.replica, actions);
    }

    /// Chooses a replica other than those tried; the only place where policies are asked.
    fn pick(&mut self, ask: &Ask<'_>, tried: &[ReplicaId]) -> Option<ReplicaId> {
        self.pick_among(ask, tried, |_| true)
    }

    /// Tells whether anybody may be chosen for a request.
    fn could_pick(&mut self, ask: &Ask<'_>) -> bool {
        let closed = self.policy.keeps_sessions() && self.closed_home(ask, &[]).is_some();
        closed || self.gather_any(ask.now, &[])
    }

    /// Chooses among those with room in the eyes of `has_room`, or among all where none has any.
    fn pick_among(
        &mut self,
        ask: &Ask<'_>,
        tried: &[ReplicaId],
        has_room: impl Fn(&Candidate) -> bool,
    ) -> Option<ReplicaId> {
        if self.policy.keeps_sessions()
            && let Some(home) = self.closed_home(ask, tried)
        {
            return Some(home);
        }
        if !self.gather_any(ask.now, tried) {
            return None;
        }
        if self.candidates.iter().any(&has_room) {
            self.candidates.retain(has_room);
        }
        let chosen = self.policy.pick(ask, &self.candidates, &mut self.chance);
        Some(self.candidates[chosen].id)
    }

    /// Gathers those who may be chosen; tells whether there is any.
    fn gather_any(&mut self, now: Moment, tried: &[ReplicaId]) -> bool {
        self.gather(tried, |it| it.admits(now));
        if self.candidates.is_empty() {
            // Better a replica that has not shown itself yet than none.
            self.gather(tried, |it| !it.leaving && it.breaker.standing() == Standing::Joining);
        }
        !self.candidates.is_empty()
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
        it.on_sent();
        booking.trial = matches!(it.breaker.standing(), Standing::Trial { .. });
        self.hold_on_sent(now, &mut booking);
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
        self.hold.knees.on_ended(booking.replica, booking.toll.burden);
        Some(booking)
    }

    fn blame(&mut self, now: Moment, replica: ReplicaId, reason: Reason) {
        if let Some(it) = self.fleet.get_mut(replica) {
            it.on_failure(now, reason);
        }
    }

    fn praise(&mut self, replica: ReplicaId) {
        if let Some(it) = self.fleet.get_mut(replica) {
            it.breaker.on_success();
        }
    }

    fn release_if_done(&mut self, replica: ReplicaId, actions: &mut Vec<Action>) {
        if self.fleet.get(replica).is_some_and(|it| it.leaving && it.in_flight == 0) {
            self.fleet.leave(replica);
            self.policy.on_left(replica);
            self.hold.knees.on_left(replica);
            self.measure_fleet();
            actions.push(Action::Release { replica });
        }
    }

    /// Says when somebody may be there again.
    fn nobody(&self, now: Moment) -> Refusal {
        let soonest = self.fleet.iter().filter(|it| !it.leaving).filter_map(|it| {
            match it.breaker.standing() {
                Standing::Out { until, .. } => Some(until.since(now)),
                Standing::Joining | Standing::Up | Standing::Trial { .. } => None,
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
