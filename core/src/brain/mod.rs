//! The whole decision for one pool: events and time in, actions out. It holds who is there, what is
//! in flight and what is remembered of sessions, and it is the only one who changes any of it. It
//! never waits, never reads a clock and never does what it decides: the driver does, under one lock
//! per pool, and the simulator does the same in virtual time.

mod accounts;
mod budget;
mod event;
mod explain;
mod foresight;
mod health;
pub mod hostile;
pub mod invariants;
mod knee;
mod line;
mod notice;
mod picking;
mod poison;
mod reading;
mod record;
mod relapse;
mod request;
mod retry;
mod sessions;
mod settings;
mod snapshot;
mod subsets;

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, ReplicaId, RequestId, Usage};
use crate::fleet::{Drift, Fleet, Replica, Standing};
use crate::policy::{Ask, Candidate, Policy, Terms};
use crate::tokens::{Lengths, Recent, TOKENS_MAX};

pub use accounts::WorkloadDrift;
pub use event::{Action, Event, Failure, HeardLoad, Outcome, Refusal, streamed_is_due};
pub use explain::{Cause, Considered, Explanation, Other, Shadows, Waited, Why};
pub use foresight::Foresight;
pub use notice::Notice;
pub use poison::{QuarantineScope, QuarantineSettings};
pub use record::{Inherit, Record};
pub use relapse::{Relapses, Remedy};
pub use request::Fingerprint;
pub use settings::{LineSettings, RetrySettings, SessionSettings, Settings, WatchSettings};
pub use snapshot::{QueueSnapshot, ReplicaLoad, ReplicaSnapshot, Snapshot, TenantSnapshot};
pub use subsets::{
    AssignmentView, Beyond, Order, SliceView, SubsetSettings, SubsetTotals, WorkloadSettings,
    WorkloadView,
};

use accounts::candidate;
use budget::RetryBudget;
use explain::Explaining;
use health::{Finding, Health};
use line::{Arrival, Hold, believed};
use notice::Notices;
use poison::{HeldBack, Poison};
use reading::Readings;
use request::{Booking, Due};
use sessions::Sessions;
use subsets::Subsets;

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
    workloads: Recent<Drift>,
    foresight: Foresight,
    accounts_opened: u64,
    accounts_closed: u64,
    budget: RetryBudget,
    subsets: Subsets,
    hold: Hold,
    swept_at: Moment,
    sessions_moved_total: u64,
    explaining: Explaining,
    notices: Notices,
    poison: Poison,
    readings: Readings,
    health: Health,
    /// Reused by every decision, so that none allocates.
    candidates: Vec<Candidate>,
    /// Reused by every decision that asks for them.
    terms: Vec<Terms>,
}

impl Brain {
    pub fn new(settings: Settings) -> Self {
        Self {
            policy: settings.policy.make(),
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
            subsets: Subsets::new(settings.subsets.clone()),
            hold: Hold::new(&settings.line),
            swept_at: Moment::ZERO,
            sessions_moved_total: 0,
            explaining: Explaining::default(),
            notices: Notices::default(),
            poison: Poison::new(settings.quarantine),
            readings: Readings::default(),
            health: Health::new(settings.watch),
            candidates: Vec::new(),
            terms: Vec::new(),
            settings,
        }
    }

    /// Takes in one event and appends what must be done, in order.
    pub fn on_event(&mut self, now: Moment, event: Event, actions: &mut Vec<Action>) {
        match event {
            Event::Arrived { request, key, mut outline, extent, claim } => {
                self.lengths.complete(key, &extent, &mut outline);
                self.budget.on_arrival(key.workload(), self.requests.len());
                self.admit(now, Arrival { request, key, outline, extent, claim }, actions);
            }
            Event::Failed { request, failure } => self.on_failed(now, request, failure, actions),
            Event::Answering { request } => self.on_answering(now, request, actions),
            Event::Streamed { request, output_tokens } => {
                let output_tokens = output_tokens.min(TOKENS_MAX);
                self.hold_on_streamed(request, output_tokens);
                self.on_streamed(request, output_tokens);
                self.watch_streamed(now, request, output_tokens, actions);
            }
            Event::Ended { request, outcome, usage } => {
                self.on_ended(now, request, outcome, usage, actions);
            }
            Event::Joined { replica, name, weight, hardware } => {
                self.join(replica, name, weight, hardware);
                self.measure_fleet();
                self.notices.push(Notice::Joined { replica });
            }
            Event::Weighed { replica, weight } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    it.weigh(weight);
                }
                self.subsets.touch();
            }
            Event::Classed { replica, hardware } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    self.hold.knees.on_joined(replica, &hardware);
                    it.hardware = hardware;
                }
                self.measure_fleet();
            }
            Event::Leaving { replica } => {
                self.change(replica, |it| it.leaving = true);
                self.subsets.touch();
                self.release_if_done(replica, actions);
            }
            Event::Contracted { limits } => self.hold.contracts.reset(now, limits),
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
            Event::Ordered(order) => self.obey(now, order),
            Event::Reported { replica, report } => self.check(now, actions, |it, fleet, found| {
                it.on_reported(now, fleet, replica, report, found);
            }),
            Event::Heard { router, taken_at, loads } => {
                for HeardLoad { replica, booked } in loads {
                    if let Some(it) = self.fleet.get_mut(replica) {
                        it.reported.on_heard(router, taken_at, booked);
                    }
                }
            }
        }
        self.discharge(now, actions);
        self.pump(now, actions);
        debug_assert!(invariants::ledger_matches_requests(self));
        debug_assert!(invariants::accounts_are_closed_once(self));
    }

    /// Takes what operators should know and have not been told.
    pub fn take_notices(&mut self) -> VecDeque<Notice> {
        self.notices.take()
    }

    /// When to call `on_time` next if nothing else happens. Early is wasteful, late is allowed.
    pub fn next_wakeup(&self) -> Option<Moment> {
        let sweep = self.swept_at + SWEEP_INTERVAL;
        let (line, held) = (self.hold.line.next_expiry(), self.poison.hold.next_wakeup());
        let others = [
            self.health.next_look(!self.requests.is_empty()),
            line,
            held,
            self.readings.next_wakeup(),
        ];
        others.into_iter().flatten().chain([sweep]).min()
    }

    /// Does what only time brings, and appends what must be done.
    pub fn on_time(&mut self, now: Moment, actions: &mut Vec<Action>) {
        self.note_read(now);
        let mut found = Vec::new();
        self.health.tick(now, &mut self.fleet, self.requests.values(), &mut found);
        self.act_on(now, found, actions);
        if self.swept_at + SWEEP_INTERVAL <= now {
            self.sessions.sweep(now);
            self.fleet.on_time(now);
            self.plan_if_due(now);
            self.measure_fleet();
            self.refresh_reaches(now);
            self.hold.gate.on_time(now);
            self.swept_at = now;
        }
        self.discharge(now, actions);
        self.pump(now, actions);
    }

    fn on_failed(
        &mut self,
        now: Moment,
        request: RequestId,
        failure: Failure,
        actions: &mut Vec<Action>,
    ) {
        let lost = matches!(failure, Failure::Lost | Failure::Died | Failure::Hung);
        if lost && let Some(booking) = self.requests.get(&request) {
            self.poison.on_death(now, booking.replica);
        }
        let Some(mut booking) = self.close_account(now, request) else {
            // It was sent by an earlier brain, and waits for a verdict.
            let refusal = Refusal::Restarted { retry_after: RETRY_AFTER };
            return actions.push(Action::Refuse { request, refusal });
        };
        let failed = booking.replica;
        if lost {
            self.note_lost_under(now, &booking, failure != Failure::Lost);
        }
        if matches!(failure, Failure::Unreachable | Failure::Died) {
            self.poison.on_confirmed(now, failed);
        }
        self.check(now, actions, |it, fleet, found| {
            it.on_try_failed(now, fleet, &mut booking, failure, found);
        });
        booking.tried.push(failed);
        if let Some(booking) = self.detain(now, request, booking, actions) {
            self.place_again(now, HeldBack { request, booking, since: now }, actions);
        }
        self.release_if_done(failed, actions);
    }

    fn on_answering(&mut self, now: Moment, request: RequestId, actions: &mut Vec<Action>) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let (replica, sent_at) = (booking.replica, booking.account.sent_at);
        let suspects = health::take_outdone(&mut booking.suspects);
        // Whatever comes of it now, its first token was in time or was not.
        booking.estimate.due = Due::default();
        booking.past.has_begun = true;
        if self.begin_account(now, request) {
            self.poison.on_answering(request);
            self.note_answer(request);
            self.policy.on_first_token(now, request, replica);
            self.poison.on_survivor(now, replica, sent_at);
            let (mut found, requests) = (Vec::new(), &mut self.requests);
            if let Some(booking) = requests.get_mut(&request) {
                self.health.on_first_token(now, &mut self.fleet, booking, &mut found);
            }
            self.act_on(now, found, actions);
        }
        self.check(now, actions, |_, fleet, found| {
            found.extend(health::praise(now, fleet, replica));
            health::blame_suspects(now, fleet, &suspects, found);
        });
    }

    /// Notes how far a stream has come, as a sign of life and for its speed.
    fn watch_streamed(
        &mut self,
        now: Moment,
        request: RequestId,
        tokens: u32,
        actions: &mut Vec<Action>,
    ) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        self.poison.on_survivor(now, booking.replica, booking.account.sent_at);
        let mut found = Vec::new();
        self.health.on_streamed(now, &mut self.fleet, booking, tokens, &mut found);
        self.act_on(now, found, actions);
    }

    fn on_ended(
        &mut self,
        now: Moment,
        request: RequestId,
        outcome: Outcome,
        usage: Usage,
        actions: &mut Vec<Action>,
    ) {
        self.explaining.forget(request);
        if self.on_left_line(request) || self.on_left_hold(now, request) {
            return;
        }
        if outcome == Outcome::Cut
            && let Some(booking) = self.requests.get(&request)
        {
            self.poison.on_death(now, booking.replica);
        }
        let Some(booking) = self.close_account(now, request) else { return };
        let usage = believed(now, &booking, usage);
        self.hold_on_ended(now, &booking, usage, outcome == Outcome::Done);
        self.learn(now, &booking, outcome, usage);
        self.health.learn(&booking, usage);
        match outcome {
            Outcome::Cut => {
                self.note_lost_under(now, &booking, false);
                self.check(now, actions, |it, fleet, found| {
                    it.on_cut(now, fleet, booking.replica, found);
                });
                self.convict(now, booking.key, booking.fingerprint);
            }
            Outcome::Done => {
                self.acquit(now, &booking);
                self.check(now, actions, |_, fleet, found| {
                    health::blame_suspects(now, fleet, &booking.suspects, found);
                });
                if booking.began_in_time() {
                    self.subsets.on_done(booking.key);
                }
                self.check(now, actions, |it, fleet, found| {
                    it.on_sign(fleet, booking.replica, now, found);
                });
            }
            Outcome::Cancelled if booking.trial && !booking.is_answering() => {
                self.change(booking.replica, |it| it.breaker.on_trial_abandoned(now));
            }
            Outcome::Cancelled => {}
        }
        self.release_if_done(booking.replica, actions);
    }

    fn send(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: Booking,
        actions: &mut Vec<Action>,
    ) {
        let Some(mut booking) = self.detain(now, request, booking, actions) else { return };
        self.explain_choice(now, request, &booking);
        let (key, replica) = (booking.key, booking.replica);
        let Some(it) = self.fleet.get(replica) else { return };
        let candidate = candidate(it, now, self.fleet.strangers_usual());
        let held = self.policy.on_sent(request, &booking.ask(now), &candidate);
        let before = it.state();
        self.open_account(now, &mut booking, &candidate, held);
        self.explain_booking(request, booking.account.ttft_ms);
        let state = self.fleet.get(replica).map(Replica::state);
        if let Some(now) = state.filter(|it| *it != before) {
            self.notices.push(Notice::Changed { replica, before, now, silence: None });
        }
        self.hold_on_sent(now, &booking);
        booking.mark = None;
        let standing = self.fleet.get(replica).map(|it| it.breaker.standing());
        booking.trial = matches!(standing, Some(Standing::Trial { .. }));
        self.note_demand(now, &booking);
        let before = self.sessions.remember(now, key, replica);
        booking.moved_from = before.filter(|it| *it != replica);
        booking.past.is_first |= before.is_none();
        self.note_move(&booking);
        self.readings.on_sent(request, &booking);
        self.poison.on_sent(request, &booking);
        self.requests.insert(request, booking);
        actions.push(Action::Send { request, replica });
    }

    /// Has health look at something, and acts on what it found.
    fn check(
        &mut self,
        now: Moment,
        actions: &mut Vec<Action>,
        look: impl FnOnce(&mut Health, &mut Fleet, &mut Vec<Finding>),
    ) {
        let mut found = Vec::new();
        look(&mut self.health, &mut self.fleet, &mut found);
        self.act_on(now, found, actions);
    }

    /// Carries what health found to those whom it concerns, in order.
    fn act_on(&mut self, now: Moment, found: Vec<Finding>, actions: &mut Vec<Action>) {
        for finding in found {
            match finding {
                Finding::Changed { replica, before, now, silence } => {
                    self.notices.push(Notice::Changed { replica, before, now, silence });
                }
                Finding::Hung { replica } => {
                    self.poison.on_death(now, replica);
                    self.poison.on_confirmed(now, replica);
                    self.subsets.on_gone(replica);
                    let there = self.requests.iter().filter(|it| it.1.replica == replica);
                    actions.extend(there.map(|it| Action::GiveUp { request: *it.0, replica }));
                }
                Finding::Ask { replica, limit } => actions.push(Action::Ask { replica, limit }),
                Finding::Gone { replica } => {
                    self.poison.on_confirmed(now, replica);
                    self.subsets.on_gone(replica);
                }
                Finding::Alive { replica } => self.subsets.on_alive(replica),
                Finding::Restarted { replica } => {
                    self.policy.on_restarted(replica);
                    self.poison.on_confirmed(now, replica);
                    self.subsets.on_gone(replica);
                    self.notices.push(Notice::Restarted { replica });
                }
            }
        }
    }

    /// Changes what is known of a replica, and notes it for operators if its state is another now.
    fn change(&mut self, replica: ReplicaId, change: impl FnOnce(&mut Replica)) {
        let found = health::change(&mut self.fleet, replica, change);
        if let Some(Finding::Changed { replica, before, now, silence }) = found {
            self.notices.push(Notice::Changed { replica, before, now, silence });
        }
    }

    /// Notes for its workload that a request lost its replica. `is_death` says that the replica is gone;
    /// else it is open, unless the replica is known to be out.
    fn note_lost_under(&mut self, now: Moment, booking: &Booking, is_death: bool) {
        let (key, replica, sent_at) = (booking.key, booking.replica, booking.account.sent_at);
        let standing = self.fleet.get(replica).map(|it| it.breaker.standing());
        let is_out = matches!(standing, Some(Standing::Out { .. }));
        self.subsets.on_lost(now, key, Some((replica, sent_at)));
        if is_death || is_out {
            self.subsets.on_gone(replica);
        }
    }

    fn release_if_done(&mut self, replica: ReplicaId, actions: &mut Vec<Action>) {
        if self.fleet.get(replica).is_some_and(|it| it.leaving && it.in_flight == 0) {
            self.fleet.leave(replica);
            self.subsets.touch();
            self.policy.on_left(replica);
            self.hold.knees.on_left(replica);
            self.measure_fleet();
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

#[cfg(test)]
mod tests;
