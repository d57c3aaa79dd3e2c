//! Asking replicas, and what their answers mean: the health checks that drivers make by themselves, the
//! token that the brain asks for when a replica is suspect, idle for long, has lost a request or should be
//! tried again, and the news that another process answers at an old address.

use std::time::Duration;

use crate::domain::{Moment, ReplicaId, Report};
use crate::fleet::{Fleet, Probe, Replica, Standing};

use super::{Finding, Health, any_is_up, change};

/// Time between two questions to one replica.
const ASK_PAUSE: Duration = Duration::from_secs(1);
/// The same for one that is out: most often nothing listens there, and asking costs nothing.
const ASK_PAUSE_OUT: Duration = Duration::from_millis(250);
/// How long a replica may take for one token that has nothing else to do.
const IDLE_LIMIT: Duration = Duration::from_secs(5);

impl Health {
    /// Takes in what a health check, or the request for a token, found.
    pub(in crate::brain) fn on_probed(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        replica: ReplicaId,
        probe: Probe,
        found: &mut Vec<Finding>,
    ) {
        let Some(it) = fleet.get_mut(replica) else { return };
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
        // Work that explains a silence explains that of a probe too: then the hang detector judges.
        let is_busy = 0 < it.sent.in_flight() || it.has_foreign_work(now);
        if probe == Probe::Refused {
            it.watch.was_refused = true;
            found.push(Finding::Gone { replica });
        }
        if probe == Probe::Generated {
            self.on_sign(fleet, replica, now, found);
            found.push(Finding::Alive { replica });
        }
        if restarted {
            Self::on_restarted(fleet, replica, found);
        }
        if let (Probe::Mute { asked_at, last_byte_at }, true) = (probe, is_busy) {
            let is_mute = last_byte_at.is_none_or(|at| at < asked_at);
            fleet.get_mut(replica).into_iter().for_each(|it| note_mute(it, asked_at, is_mute));
        } else if probe == Probe::Generated {
            let is_needed = !any_is_up(fleet);
            let generated = |it: &mut Replica| it.breaker.on_generated(now, asked_at, is_needed);
            found.extend(change(fleet, replica, generated));
        } else {
            found.extend(change(fleet, replica, |it| it.breaker.on_probe(now, probe)));
        }
        // One that was lost and passes its health check need not wait for the next look.
        if probe == Probe::Passed {
            self.ask_if_due(now, fleet, replica, found);
        }
    }

    /// Takes in what an engine says of itself. That it is at work for others is a sign of life, and so
    /// is that it is at work at all where a question for a token was not answered.
    pub(in crate::brain) fn on_reported(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        replica: ReplicaId,
        report: Report,
        found: &mut Vec<Finding>,
    ) {
        let Some(it) = fleet.get_mut(replica) else { return };
        let report = report.bounded();
        let worked = it.watch.on_report(&report, it.reported.report().as_ref());
        it.reported.on_report(report);
        if worked && (it.has_foreign_work(now) || it.watch.mute_since.is_some()) {
            self.on_sign(fleet, replica, report.taken_at, found);
        }
    }

    /// Takes in that another process answers at a replica's address: it is filled slowly.
    pub(in crate::brain) fn on_restarted(
        fleet: &mut Fleet,
        replica: ReplicaId,
        found: &mut Vec<Finding>,
    ) {
        let Some(it) = fleet.get_mut(replica) else { return };
        it.breaker.on_restarted();
        it.watch.on_restarted();
        found.push(Finding::Restarted { replica });
    }

    /// Asks a replica for a token whose pause is over, that lost connections, or that has been idle and
    /// given no sign for long.
    pub(super) fn ask_if_due(
        &self,
        now: Moment,
        fleet: &mut Fleet,
        replica: ReplicaId,
        found: &mut Vec<Finding>,
    ) {
        let Some(it) = fleet.get(replica) else { return };
        let quiet = now.since(it.watch.hang.quiet_since().max(it.watch.last_asked));
        let is_idle = it.breaker.standing() == Standing::Up && it.sent.in_flight() == 0;
        let is_stale = is_idle && self.idle <= quiet;
        // A pause makes sense only while other replicas can serve.
        let is_out = it.breaker.may_come_back();
        let is_needed = is_out && !any_is_up(fleet);
        if it.breaker.wants_proof(now) || is_stale || is_needed {
            let pause = if is_out { ASK_PAUSE_OUT } else { ASK_PAUSE };
            ask_after(now, fleet, replica, (IDLE_LIMIT, pause), found);
        }
    }
}

/// Asks a replica that lost a request whether it is gone, or only hung up on one client; and one that another router
/// finds out.
pub(in crate::brain) fn ask_after_loss(
    now: Moment,
    fleet: &mut Fleet,
    replica: ReplicaId,
    found: &mut Vec<Finding>,
) {
    let standing = fleet.get(replica).map(|it| it.breaker.standing());
    if let Some(Standing::Up | Standing::Suspect { .. }) = standing {
        ask(now, fleet, replica, IDLE_LIMIT, found);
    }
}

/// Asks a replica for a token, unless it leaves, is being asked or was just asked.
pub(super) fn ask(
    now: Moment,
    fleet: &mut Fleet,
    replica: ReplicaId,
    limit: Duration,
    found: &mut Vec<Finding>,
) {
    ask_after(now, fleet, replica, (limit, ASK_PAUSE), found);
}

/// Notes that a replica with work gave no token when it was asked. A line of its own explains that.
fn note_mute(it: &mut Replica, asked_at: Moment, is_mute: bool) {
    let has_line = it.reported.report().is_some_and(|it| 0 < it.waiting);
    if is_mute && !has_line && it.watch.hang.quiet_since() <= asked_at {
        it.watch.mute_since = Some(asked_at);
    }
}

fn ask_after(
    now: Moment,
    fleet: &mut Fleet,
    replica: ReplicaId,
    (limit, pause): (Duration, Duration),
    found: &mut Vec<Finding>,
) {
    let Some(it) = fleet.get_mut(replica).filter(|it| !it.leaving) else { return };
    // If the driver never reports a result, the replica must still be asked again.
    let is_asked = it.watch.asked.is_some_and(|(at, limit)| now.since(at) < 2 * limit);
    let was_just_asked = now.since(it.watch.last_asked) < pause;
    if !is_asked && !was_just_asked {
        it.watch.asked = Some((now, limit));
        it.watch.last_asked = now;
        found.push(Finding::Ask { replica, limit });
    }
}
