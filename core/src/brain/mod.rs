//! The whole decision for one pool: events and time in, actions out. It holds who is there, what is
//! in flight and what is remembered of sessions, and it is the only one who changes any of it. It
//! never waits, never reads a clock and never does what it decides: the driver does, under one lock
//! per pool, and the simulator does the same in virtual time.

mod budget;
mod event;
pub mod invariants;
mod notice;
mod quarantine;
mod sessions;
mod settings;
mod snapshot;
mod watch;

use std::collections::VecDeque;
use std::time::Duration;

use indexmap::IndexMap;
use rand::SeedableRng as _;
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxBuildHasher;

use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey, Usage};
use crate::fleet::{Fleet, Pace, Probe, Reason, Replica, Silence, Standing};
use crate::policy::{self, Ask, Candidate, Policy};
use crate::tokens::Lengths;

pub use event::{Action, Event, Failure, Outcome, Refusal, streamed_is_due};
pub use notice::Notice;
pub use quarantine::{Circle, Fingerprint, QuarantineSettings};
pub use settings::{RetrySettings, SessionSettings, Settings, WatchSettings};
pub use snapshot::{ReplicaLoad, ReplicaSnapshot, Snapshot};

use budget::RetryBudget;
use notice::Notices;
use quarantine::Quarantine;
use sessions::Sessions;
use watch::Watched;

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
    quarantine: Quarantine,
    pace: Pace,
    looked_at: Moment,
    /// The silence that is being acted on, for the notice of it.
    silence: Option<Silence>,
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
    fingerprint: Fingerprint,
    watched: Watched,
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
            quarantine: Quarantine::new(settings.quarantine),
            pace: Pace::default(),
            looked_at: Moment::ZERO,
            silence: None,
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
            Event::Streamed { request, output_tokens } => {
                if let Some(booking) = self.requests.get_mut(&request) {
                    booking.streamed_tokens = output_tokens;
                }
                self.watch_streamed(now, request, output_tokens);
            }
            Event::Ended { request, outcome, usage } => {
                self.on_ended(now, request, outcome, usage, actions);
            }
            Event::Joined { replica, name, weight, hardware } => {
                let it = Replica::new(replica, name, weight, hardware, self.settings.breaker);
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
            Event::Probed { replica, probe } => self.on_probed(now, replica, probe),
            Event::Heard { replica, at } => self.on_sign(replica, at),
            Event::Unawaited { replica } => self.on_unawaited(now, replica),
            Event::Restarted { replica } => self.on_restarted(now, replica),
            Event::Reported { replica, report } => {
                if let Some(it) = self.fleet.get_mut(replica) {
                    let before = it.report.replace(report);
                    let works = it.watch.on_report(&report, before.as_ref(), it.in_flight);
                    if works && it.watch.has_foreign_work(now) {
                        self.on_sign(replica, report.taken_at);
                    }
                }
            }
        }
        debug_assert!(invariants::ledger_matches_requests(self));
    }

    /// Takes what operators should know and have not been told.
    pub fn take_notices(&mut self) -> VecDeque<Notice> {
        self.notices.take()
    }

    /// When to call `on_time` next if nothing else happens. Early is wasteful, late is allowed.
    pub fn next_wakeup(&self) -> Option<Moment> {
        let sweep = self.swept_at + SWEEP_INTERVAL;
        Some(self.next_look().map_or(sweep, |look| look.min(sweep)))
    }

    /// Does what only time brings, and appends what must be done.
    pub fn on_time(&mut self, now: Moment, actions: &mut Vec<Action>) {
        self.look(now, actions);
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
        let fingerprint = Fingerprint::of(key, &outline, &extent);
        let known = self.sessions.home(now, key).is_some();
        if let Some(circle) = self.quarantine.check(now, key, fingerprint, known) {
            let refusal = Refusal::Quarantined { circle };
            actions.push(Action::Refuse { request, refusal });
            return;
        }
        match self.pick(&Ask { now, key, outline: &outline }, &[]) {
            Some(replica) => {
                let booking = Booking {
                    key,
                    outline,
                    extent,
                    replica,
                    answering: false,
                    streamed_tokens: 0,
                    trial: false,
                    tried: Vec::new(),
                    suspects: Vec::new(),
                    fingerprint,
                    watched: Watched::default(),
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
        let lost = matches!(failure, Failure::Lost | Failure::Hung);
        if let (true, Some(booking)) = (lost, self.requests.get(&request)) {
            self.note_death(now, booking.replica);
        }
        let Some(mut booking) = self.take(now, request) else { return };
        let failed = booking.replica;
        match failure {
            Failure::Unreachable => {
                self.quarantine.on_confirmed(now, failed);
                self.blame(now, failed, Reason::Unreachable);
            }
            Failure::Lost => {
                self.blame(now, failed, Reason::Unreachable);
                self.ask_after_loss(now, failed, actions);
            }
            // It is out already.
            Failure::Hung => {}
            Failure::Status if booking.trial => self.blame(now, failed, Reason::Failing),
            Failure::Status => booking.suspects.push(failed),
            // An engine that says it is full is well; only this request should go elsewhere.
            Failure::Busy => self.praise(now, failed),
        }
        if matches!(failure, Failure::Status | Failure::Busy) {
            self.on_sign(failed, now);
        }
        if lost && self.quarantined(now, request, &booking, actions) {
            self.release_if_done(failed, actions);
            return;
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
            self.watch_first_token(now, request);
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
        if let (Outcome::Cut, Some(booking)) = (outcome, self.requests.get(&request)) {
            self.note_death(now, booking.replica);
        }
        let Some(booking) = self.take(now, request) else { return };
        let Booking { key, extent, outline, .. } = &booking;
        self.lengths.on_ended(*key, extent, outline, usage, outcome == Outcome::Done);
        self.learn_pace(&booking, usage);
        match outcome {
            Outcome::Cut => {
                self.blame(now, booking.replica, Reason::Unreachable);
                self.ask_after_loss(now, booking.replica, actions);
                self.judge(now, &booking);
            }
            Outcome::Done => {
                self.quarantine.clear(booking.fingerprint);
                self.on_sign(booking.replica, now);
            }
            Outcome::Cancelled if booking.trial && !booking.answering => {
                self.change(booking.replica, |it| it.breaker.on_trial_abandoned(now));
            }
            Outcome::Cancelled => {}
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

    /// Takes in what a health check, or the request for a token, found.
    fn on_probed(&mut self, now: Moment, replica: ReplicaId, probe: Probe) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        let of_token =
            matches!(probe, Probe::Generated | Probe::Unable | Probe::Mute { .. } | Probe::Refused);
        if of_token {
            it.watch.asked = None;
        }
        let back = matches!(probe, Probe::Passed | Probe::Generated);
        let joined = it.breaker.standing() != Standing::Joining;
        let restarted = back && std::mem::take(&mut it.watch.was_refused) && joined;
        // Work that explains a silence explains that of a probe too: then the vigil judges.
        let busy = 0 < it.in_flight || it.watch.has_foreign_work(now);
        let judged_by_vigil = busy && matches!(probe, Probe::Mute { .. });
        match probe {
            Probe::Refused => {
                it.watch.was_refused = true;
                self.quarantine.on_confirmed(now, replica);
            }
            Probe::Generated => self.on_sign(replica, now),
            Probe::Passed
            | Probe::Unable
            | Probe::Stranger
            | Probe::Failed
            | Probe::TimedOut { .. }
            | Probe::Mute { .. } => {}
        }
        if restarted {
            self.on_restarted(now, replica);
        }
        if !judged_by_vigil {
            self.change(replica, |it| it.breaker.on_probe(now, probe));
        }
    }

    /// Takes in that another process answers at a replica's address: what was known of its cache is
    /// void, and it is filled slowly.
    fn on_restarted(&mut self, now: Moment, replica: ReplicaId) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        it.breaker.on_restarted();
        it.watch.tempo = Default::default();
        self.policy.on_restarted(replica);
        self.quarantine.on_confirmed(now, replica);
        self.notices.push(Notice::Restarted { replica });
    }

    /// Judges a request that lost its replica, and tells operators if it is held from now on.
    fn judge(&mut self, now: Moment, booking: &Booking) -> Option<Circle> {
        let Booking { key, fingerprint, replica, .. } = *booking;
        let circle = self.quarantine.judge(now, key, fingerprint)?;
        self.notices.push(Notice::Quarantined { replica, key, fingerprint, circle });
        Some(circle)
    }

    /// Refuses a request that lost its replica if it is to blame for that.
    fn quarantined(
        &mut self,
        now: Moment,
        request: RequestId,
        booking: &Booking,
        actions: &mut Vec<Action>,
    ) -> bool {
        let circle = self.judge(now, booking);
        if let Some(circle) = circle {
            let refusal = Refusal::Quarantined { circle };
            actions.push(Action::Refuse { request, refusal });
        }
        circle.is_some()
    }

    fn pick_again(&mut self, now: Moment, booking: &Booking) -> Result<ReplicaId, Refusal> {
        let tries = u32::try_from(booking.tried.len()).unwrap_or(u32::MAX);
        if self.settings.retries.tries_max <= tries {
            return Err(Refusal::TriesSpent);
        }
        let (ask, avoid) = (booking.ask(now), self.places_to_avoid(now, booking));
        let picked = self.pick(&ask, &avoid).or_else(|| self.pick(&ask, &booking.tried));
        let Some(replica) = picked else { return Err(Refusal::TriesSpent) };
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
            it.on_sent(now);
            booking.trial = matches!(it.breaker.standing(), Standing::Trial { .. });
        });
        booking.answering = false;
        self.watch_sent(now, &mut booking);
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
        self.watch_ended(&booking);
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
            let silence = self.silence;
            self.notices.push(Notice::Changed { replica, before, now, silence });
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
