//! The whole decision for one pool: events and time in, actions out. It holds who is there, what is
//! in flight and what is remembered of sessions, and it is the only one who changes any of it. It
//! never waits, never reads a clock and never does what it decides: the driver does, under one lock
//! per pool, and the simulator does the same in virtual time.

mod accounts;
mod booking;
mod budget;
mod decision;
mod event;
mod foresight;
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

use crate::domain::{Moment, ReplicaId, RequestId, Usage};
use crate::fleet::{Drift, Fleet, Reason, Replica, Standing};
use crate::policy::{self, Ask, Candidate, Policy, PolicyName};
use crate::tokens::{Lengths, Recent};

pub use accounts::WorkloadDrift;
pub use decision::{Decision, Shadow};
pub use event::{Action, Event, Failure, HeardLoad, Outcome, Refusal, streamed_is_due};
pub use foresight::Foresight;
pub use settings::{LineSettings, RetrySettings, SessionSettings, Settings};
pub use snapshot::{QueueSnapshot, ReplicaLoad, ReplicaSnapshot, Snapshot, TenantSnapshot};

use accounts::candidate;
use booking::Booking;
use budget::RetryBudget;
use line::{Arrival, Hold};
use sessions::Sessions;

/// How often the session table is swept a little.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
/// What a refused client is told to wait when nothing better is known.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Whose choices are noted beside ours.
const SHADOWS: [PolicyName; 2] = [PolicyName::RoundRobin, PolicyName::PowerOfTwo];

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
    workloads: Recent<Drift>,
    foresight: Foresight,
    accounts_opened: u64,
    accounts_closed: u64,
    budget: RetryBudget,
    hold: Hold,
    swept_at: Moment,
    sessions_moved_total: u64,
    /// Reused by every decision, so that none allocates.
    candidates: Vec<Candidate>,
    /// Whether somebody wants to know why.
    is_noting: bool,
    note: Option<Decision>,
    shadows: Vec<Box<dyn Policy>>,
    /// Apart from that of decisions, which must not depend on whether anybody asks.
    shadow_chance: Pcg64Mcg,
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
            workloads: Recent::new(accounts::WORKLOADS_MAX),
            foresight: Foresight::default(),
            accounts_opened: 0,
            accounts_closed: 0,
            budget: RetryBudget::new(settings.retries),
            hold: Hold::new(&settings.line),
            swept_at: Moment::ZERO,
            sessions_moved_total: 0,
            candidates: Vec::new(),
            is_noting: false,
            note: None,
            shadows: SHADOWS.into_iter().map(policy::make).collect(),
            shadow_chance: Pcg64Mcg::seed_from_u64(settings.seed),
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
                self.hold_on_streamed(request, output_tokens);
                self.on_streamed(request, output_tokens);
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
                    it.hearsay.on_report(report);
                }
            }
            Event::Heard { router, taken_at, loads } => {
                for HeardLoad { replica, booked } in loads {
                    if let Some(it) = self.fleet.get_mut(replica) {
                        it.hearsay.on_heard(router, taken_at, booked);
                    }
                }
            }
        }
        self.pump(now, actions);
        debug_assert!(invariants::ledger_matches_requests(self));
        debug_assert!(invariants::accounts_are_closed_once(self));
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
            self.fleet.on_time(now);
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
        let Some(mut booking) = self.close_account(now, request) else { return };
        let failed = booking.replica;
        match failure {
            Failure::Unreachable => self.blame(now, failed, Reason::Unreachable),
            Failure::Status if booking.trial => self.blame(now, failed, Reason::Failing),
            Failure::Status => booking.suspects.push(failed),
            // An engine that says it is full is well; only this request should go elsewhere.
            Failure::Busy => self.praise(failed),
        }
        booking.tried.push(failed);
        match self.pick_again(now, request, &booking) {
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
        if self.begin_account(now, request) {
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
        let Some(booking) = self.close_account(now, request) else { return };
        self.hold_on_ended(now, &booking, usage);
        self.learn(now, &booking, outcome, usage);
        match outcome {
            Outcome::Cut => self.blame(now, booking.replica, Reason::Unreachable),
            Outcome::Cancelled if booking.trial && !booking.is_answering() => {
                if let Some(it) = self.fleet.get_mut(booking.replica) {
                    it.breaker.on_trial_abandoned(now);
                }
            }
            Outcome::Done | Outcome::Cancelled => {}
        }
        self.release_if_done(booking.replica, actions);
    }

    /// Chooses a replica other than those tried; the only place where policies are asked.
    fn pick(
        &mut self,
        request: RequestId,
        ask: &Ask<'_>,
        tried: &[ReplicaId],
    ) -> Option<ReplicaId> {
        self.pick_among(request, ask, tried, |_| true)
    }

    /// Tells whether anybody may be chosen for a request.
    fn could_pick(&mut self, ask: &Ask<'_>) -> bool {
        let closed = self.policy.keeps_sessions() && self.closed_home(ask, &[]).is_some();
        closed || self.gather_any(ask.now, &[])
    }

    /// Gathers those who may be chosen; tells whether there is any.
    fn gather_any(&mut self, now: Moment, tried: &[ReplicaId]) -> bool {
        self.gather(now, tried, |it| it.admits(now));
        if self.candidates.is_empty() {
            // Better a replica that has not shown itself yet than none.
            let joins = |it: &Replica| !it.leaving && it.breaker.standing() == Standing::Joining;
            self.gather(now, tried, joins);
        }
        !self.candidates.is_empty()
    }

    /// Chooses among those with room in the eyes of `has_room`, or among all where none has any.
    fn pick_among(
        &mut self,
        request: RequestId,
        ask: &Ask<'_>,
        tried: &[ReplicaId],
        has_room: impl Fn(&Candidate) -> bool,
    ) -> Option<ReplicaId> {
        if self.policy.keeps_sessions()
            && let Some(home) = self.closed_home(ask, tried)
        {
            return Some(home);
        }
        self.gather_any(ask.now, tried);
        if self.candidates.iter().any(&has_room) {
            self.candidates.retain(has_room);
        }
        if std::mem::take(&mut self.is_noting) {
            self.note_decision(request, ask, tried);
        }
        if self.candidates.is_empty() {
            return None;
        }
        let chosen = self.policy.pick(ask, &self.candidates, &mut self.chance);
        Some(self.candidates[chosen].id)
    }

    /// Asks for the next decision to be noted; [`Self::take_note`] then has it.
    pub fn note_next(&mut self) {
        self.is_noting = true;
        self.note = None;
    }

    /// Takes the note of the last decision, if one was asked for and made since.
    pub fn take_note(&mut self) -> Option<Decision> {
        self.is_noting = false;
        self.note.take()
    }

    /// Writes down who could take a request, and how everybody weighs them.
    fn note_decision(&mut self, request: RequestId, ask: &Ask<'_>, tried: &[ReplicaId]) {
        let (candidates, chance) = (&self.candidates, &mut self.shadow_chance);
        let mut terms = Vec::new();
        let mut shadows = Vec::new();
        if !candidates.is_empty() {
            self.policy.terms(ask, candidates, &mut terms);
            for (policy, rule) in SHADOWS.into_iter().zip(&mut self.shadows) {
                let replica = candidates[rule.pick(ask, candidates, chance)].id;
                shadows.push(Shadow { policy, replica });
            }
        }
        self.note = Some(Decision {
            request,
            key: ask.key,
            at: ask.now,
            policy: self.settings.policy,
            prompt_tokens: ask.outline.prompt_tokens,
            output_tokens: ask.outline.output_tokens,
            tried: tried.to_vec(),
            candidates: candidates.iter().map(|it| it.id).collect(),
            terms,
            chosen: None,
            ttft_ms: None,
            shadows,
        });
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

    fn gather(&mut self, now: Moment, tried: &[ReplicaId], admits: impl Fn(&Replica) -> bool) {
        let usual = self.fleet.strangers_usual();
        self.candidates.clear();
        self.candidates.extend(
            self.fleet
                .iter()
                .filter(|it| 0.0 < it.weight && admits(it) && !tried.contains(&it.id))
                .map(|it| candidate(it, now, usual)),
        );
    }

    fn pick_again(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: &Booking,
    ) -> Result<ReplicaId, Refusal> {
        let tries = u32::try_from(booking.tried.len()).unwrap_or(u32::MAX);
        if self.settings.retries.tries_max <= tries {
            return Err(Refusal::TriesSpent);
        }
        let Some(replica) = self.pick(request, &booking.ask(now), &booking.tried) else {
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
        let Some(it) = self.fleet.get(replica) else { return };
        let candidate = candidate(it, now, self.fleet.strangers_usual());
        let held = self.policy.on_sent(request, &booking.ask(now), &candidate);
        self.open_account(now, &mut booking, &candidate, held);
        self.hold_on_sent(now, &booking);
        let standing = self.fleet.get(replica).map(|it| it.breaker.standing());
        booking.trial = matches!(standing, Some(Standing::Trial { .. }));
        if let Some(note) = self.note.as_mut().filter(|it| it.request == request) {
            (note.chosen, note.ttft_ms) = (Some(replica), Some(booking.account.ttft_ms));
        }
        self.requests.insert(request, booking);
        let before = self.sessions.remember(now, key, replica);
        self.sessions_moved_total += u64::from(before.is_some_and(|it| it != replica));
        actions.push(Action::Send { request, replica });
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

#[cfg(test)]
mod tests;
