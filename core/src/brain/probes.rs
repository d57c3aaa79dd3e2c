//! Asking replicas, and what their answers mean: the health checks that drivers make by themselves, the
//! token that the brain asks for when a replica is suspect, idle for long, has lost a request or should be
//! tried again, and the news that another process answers at an old address.

use std::time::Duration;

use crate::domain::{Moment, ReplicaId, Report};
use crate::fleet::{Probe, Standing, Tempo};

use super::event::Action;
use super::{Brain, Notice};

/// Time between two questions to one replica.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// How long a replica may take for one token that has nothing else to do.
const IDLE_LIMIT: Duration = Duration::from_secs(5);

impl Brain {
    /// Takes in what a health check, or the request for a token, found.
    pub(super) fn on_probed(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        probe: Probe,
        actions: &mut Vec<Action>,
    ) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        let asked_at = it.watch.asked.map_or(now, |(at, _)| at);
        let is_of_token = matches!(
            probe,
            Probe::Generated | Probe::Unable | Probe::Mute { .. } | Probe::Failed | Probe::Refused
        );
        if is_of_token {
            it.watch.asked = None;
        }
        let is_back = matches!(probe, Probe::Passed | Probe::Generated);
        let has_joined = it.breaker.standing() != Standing::Joining;
        let restarted = is_back && std::mem::take(&mut it.watch.was_refused) && has_joined;
        // Work that explains a silence explains that of a probe too: then the vigil judges.
        let is_busy = 0 < it.in_flight || it.has_foreign_work(now);
        if probe == Probe::Refused {
            it.watch.was_refused = true;
            self.quarantine.on_confirmed(now, replica);
            self.subsets.on_gone(replica);
        }
        if probe == Probe::Generated {
            self.on_sign(replica, now);
            self.subsets.on_alive(replica);
        }
        if restarted {
            self.on_restarted(now, replica);
        }
        if let (Probe::Mute { asked_at, last_byte_at }, true) = (probe, is_busy) {
            let is_mute = last_byte_at.is_none_or(|at| at < asked_at);
            self.note_mute(replica, asked_at, is_mute);
        } else if probe == Probe::Generated {
            self.change(replica, |it| it.breaker.on_generated(now, asked_at));
        } else {
            self.change(replica, |it| it.breaker.on_probe(now, probe));
        }
        // One that was lost and passes its health check need not wait for the next look.
        if probe == Probe::Passed {
            self.ask_if_due(now, replica, actions);
        }
    }

    /// Notes that a replica with work gave no token when it was asked. A line of its own explains that.
    fn note_mute(&mut self, replica: ReplicaId, asked_at: Moment, is_mute: bool) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        let has_line = it.hearsay.report().is_some_and(|it| 0 < it.waiting);
        if is_mute && !has_line && it.watch.vigil.quiet_since() <= asked_at {
            it.watch.mute_since = Some(asked_at);
        }
    }

    /// Takes in what an engine says of itself. That it is at work for others is a sign of life, and so
    /// is that it is at work at all where a question for a token was not answered.
    pub(super) fn on_reported(&mut self, now: Moment, replica: ReplicaId, report: Report) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        let report = report.bounded();
        let worked = it.watch.on_report(&report, it.hearsay.report().as_ref());
        it.hearsay.on_report(report);
        if worked && (it.has_foreign_work(now) || it.watch.mute_since.is_some()) {
            self.on_sign(replica, report.taken_at);
        }
    }

    /// Takes in that another process answers at a replica's address: what was known of its cache is
    /// void, and it is filled slowly.
    pub(super) fn on_restarted(&mut self, now: Moment, replica: ReplicaId) {
        let Some(it) = self.fleet.get_mut(replica) else { return };
        it.breaker.on_restarted();
        it.watch.tempo = Tempo::default();
        self.policy.on_restarted(replica);
        self.quarantine.on_confirmed(now, replica);
        self.subsets.on_gone(replica);
        self.notices.push(Notice::Restarted { replica });
    }

    /// Asks a replica for a token whose pause is over, that lost connections, or that has been idle and
    /// given no sign for long.
    pub(super) fn ask_if_due(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        actions: &mut Vec<Action>,
    ) {
        let Some(it) = self.fleet.get(replica) else { return };
        let quiet = now.since(it.watch.vigil.quiet_since().max(it.watch.last_asked));
        let is_idle = it.breaker.standing() == Standing::Up && it.in_flight == 0;
        let is_stale = is_idle && self.settings.watch.idle <= quiet;
        if it.breaker.wants_proof(now) || is_stale {
            self.ask(now, replica, IDLE_LIMIT, actions);
        }
    }

    /// Asks a replica that lost a request whether it is gone, or only hung up on somebody.
    pub(super) fn ask_after_loss(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        actions: &mut Vec<Action>,
    ) {
        let standing = self.fleet.get(replica).map(|it| it.breaker.standing());
        if let Some(Standing::Up | Standing::Suspect { .. }) = standing {
            self.ask(now, replica, IDLE_LIMIT, actions);
        }
    }

    /// Asks a replica for a token, unless it leaves or is being asked already.
    pub(super) fn ask(
        &mut self,
        now: Moment,
        replica: ReplicaId,
        limit: Duration,
        actions: &mut Vec<Action>,
    ) {
        let Some(it) = self.fleet.get_mut(replica).filter(|it| !it.leaving) else { return };
        // A driver that never tells would leave it unasked for ever.
        let is_asked = it.watch.asked.is_some_and(|(at, limit)| now.since(at) < 2 * limit);
        let was_just_asked = now.since(it.watch.last_asked) < ASK_PAUSE;
        if !is_asked && !was_just_asked {
            it.watch.asked = Some((now, limit));
            it.watch.last_asked = now;
            actions.push(Action::Ask { replica, limit });
        }
    }
}
