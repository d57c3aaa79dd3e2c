//! The whole decision for one pool: events and time in, actions out. It holds who is there, what is
//! in flight and what is remembered of sessions, and it is the only one who changes any of it. It
//! never waits, never reads a clock and never does what it decides: the driver does, under one lock
//! per pool, and the simulator does the same in virtual time.

mod accounts;
mod blame;
mod booking;
mod budget;
mod event;
mod explain;
mod foresight;
pub mod hostile;
pub mod invariants;
mod knee;
mod line;
mod notice;
mod picking;
mod probes;
mod quarantine;
mod reading;
mod record;
mod relapse;
mod sessions;
mod settings;
mod snapshot;
mod subsets;
mod suspects;
mod ward;
mod watch;

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, ReplicaId, RequestId, Usage};
use crate::fleet::{Drift, Fleet, Patience, Replica, Silence, Standing, State};
use crate::policy::{Ask, Candidate, Policy, Terms};
use crate::tokens::{Lengths, Recent, TOKENS_MAX};

pub use accounts::WorkloadDrift;
pub use event::{Action, Event, Failure, HeardLoad, Outcome, Refusal, streamed_is_due};
pub use explain::{Cause, Considered, Explanation, Other, Shadows, Waited, Why};
pub use foresight::Foresight;
pub use notice::Notice;
pub use quarantine::{Circle, Fingerprint, QuarantineSettings};
pub use record::{Inherit, Record};
pub use relapse::{Relapses, Remedy};
pub use settings::{LineSettings, RetrySettings, SessionSettings, Settings, WatchSettings};
pub use snapshot::{QueueSnapshot, ReplicaLoad, ReplicaSnapshot, Snapshot, TenantSnapshot};
pub use subsets::{
    AssignmentView, Beyond, Order, SliceView, SubsetSettings, SubsetTotals, WorkloadSettings,
    WorkloadView,
};

use accounts::candidate;
use booking::Booking;
use budget::RetryBudget;
use explain::Explaining;
use line::{Arrival, Due, Hold, believed};
use notice::Notices;
use quarantine::Quarantine;
use reading::Readings;
use sessions::Sessions;
use subsets::Subsets;
use ward::Ward;

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
    quarantine: Quarantine,
    ward: Ward,
    readings: Readings,
    patience: Patience,
    looked_at: Moment,
    /// The silence that is being acted on, for the notice of it.
    silence: Option<Silence>,
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
            quarantine: Quarantine::new(settings.quarantine),
            ward: Ward::default(),
            readings: Readings::default(),
            patience: Patience::default(),
            looked_at: Moment::ZERO,
            silence: None,
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
            Event::Answering { request } => self.on_answering(now, request),
            Event::Streamed { request, output_tokens } => {
                let output_tokens = output_tokens.min(TOKENS_MAX);
                self.hold_on_streamed(request, output_tokens);
                self.on_streamed(request, output_tokens);
                self.watch_streamed(now, request, output_tokens);
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
            Event::Probed { replica, probe } => self.on_probed(now, replica, probe, actions),
            Event::Sign { replica, at } => self.on_sign(replica, at),
            Event::Unawaited { replica } => self.on_unawaited(now, replica),
            Event::Restarted { replica } => self.on_restarted(now, replica),
            Event::Ordered(order) => self.obey(now, order),
            Event::Reported { replica, report } => self.on_reported(now, replica, report),
            Event::Heard { router, taken_at, loads } => {
                for HeardLoad { replica, booked } in loads {
                    if let Some(it) = self.fleet.get_mut(replica) {
                        it.hearsay.on_heard(router, taken_at, booked);
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
        let (line, ward) = (self.hold.line.next_expiry(), self.ward.next_wakeup());
        let others = [self.next_look(), line, ward, self.readings.next_wakeup()];
        others.into_iter().flatten().chain([sweep]).min()
    }

    /// Does what only time brings, and appends what must be done.
    pub fn on_time(&mut self, now: Moment, actions: &mut Vec<Action>) {
        self.note_read(now);
        self.look(now, actions);
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
        if lost {
            self.note_death_under(now, request);
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
        self.blame_try(now, &mut booking, failure, actions);
        if matches!(failure, Failure::Status | Failure::Busy) {
            self.on_sign(failed, now);
        }
        booking.tried.push(failed);
        if let Some(booking) = self.detain(now, request, booking, actions) {
            self.place_again(now, now, request, booking, actions);
        }
        self.release_if_done(failed, actions);
    }

    /// Sends a request that was tried elsewhere, or was held back at the last moment, which has waited
    /// since then.
    fn place_again(
        &mut self,
        now: Moment,
        since: Moment,
        request: RequestId,
        mut booking: Booking,
        actions: &mut Vec<Action>,
    ) {
        match self.pick_again(now, &booking) {
            Ok(replica) => {
                booking.replica = replica;
                self.send(now, request, booking, actions);
            }
            Err(refusal)
                if refusal == Refusal::TriesSpent && self.may_await(now, since, &booking) =>
            {
                self.ward.take_in(since, request, booking);
            }
            Err(refusal) => self.dismiss(now, request, &booking, refusal, actions),
        }
    }

    fn on_answering(&mut self, now: Moment, request: RequestId) {
        let Some(booking) = self.requests.get_mut(&request) else { return };
        let replica = booking.replica;
        let suspects = blame::take_outdone(&mut booking.suspects);
        // Whatever comes of it now, its first token was in time or was not.
        booking.toll.due = Due::default();
        booking.past.has_begun = true;
        if self.begin_account(now, request) {
            self.note_answer(request);
            self.policy.on_first_token(now, request, replica);
            self.watch_first_token(now, request);
        }
        self.praise(now, replica);
        self.blame_suspects(now, &suspects);
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
        if self.on_left_line(request) || self.on_left_ward(now, request) {
            return;
        }
        if outcome == Outcome::Cut {
            self.note_death_under(now, request);
        }
        let Some(booking) = self.close_account(now, request) else { return };
        let usage = believed(now, &booking, usage);
        self.hold_on_ended(now, &booking, usage, outcome == Outcome::Done);
        self.learn(now, &booking, outcome, usage);
        self.learn_patience(&booking, usage);
        match outcome {
            Outcome::Cut => {
                self.note_lost_under(now, &booking, false);
                self.blame_cut(now, booking.replica, actions);
                self.judge(now, booking.key, booking.fingerprint);
            }
            Outcome::Done => {
                self.acquit(now, &booking);
                self.blame_suspects(now, &booking.suspects);
                if booking.began_in_time() {
                    self.subsets.on_done(booking.key);
                }
                self.on_sign(booking.replica, now);
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
        self.note_change(replica, before);
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
        self.requests.insert(request, booking);
        actions.push(Action::Send { request, replica });
    }

    /// Changes what is known of a replica, and notes it for operators if its state is another now.
    fn change(&mut self, replica: ReplicaId, change: impl FnOnce(&mut Replica)) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        let before = it.state();
        change(it);
        self.note_change(replica, before);
    }

    fn note_change(&mut self, replica: ReplicaId, before: State) {
        let Some(now) = self.fleet.get(replica).map(Replica::state) else { return };
        if before != now {
            let silence = self.silence;
            self.notices.push(Notice::Changed { replica, before, now, silence });
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
