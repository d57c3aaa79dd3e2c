//! Health: is a replica there, does it work, is it slow? This machine owns what the pool has learned of
//! silences, and changes the breakers and detectors of the replicas it is handed. It sees no other machine: what
//! it found is a list of findings, and the brain acts on them in order.

mod blame;
mod probes;
mod silence;

use std::time::Duration;

use crate::domain::{Moment, ReplicaId, Usage};
use crate::fleet::{
    Fleet, Reason, Replica, Silence, SilenceModel, SlowDetector, Standing, State, median,
};

pub(super) use blame::{blame_suspects, praise, take_outdone};
pub(super) use probes::ask_after_loss;

use super::request::Booking;
use super::settings::WatchSettings;

/// Time between two looks at the fleet while it has work.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// After this long without a look the router itself was asleep, and silences say nothing.
const ASLEEP: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Health {
    /// How long nothing may have come from an idle replica before it is asked for one token.
    idle: Duration,
    model: SilenceModel,
    looked_at: Moment,
}

/// What was found of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// Its state changed; for a hang, with the silence that showed it.
    Changed { replica: ReplicaId, before: State, now: State, silence: Option<Silence> },
    /// It hangs beyond doubt: its requests must be given up.
    Hung { replica: ReplicaId },
    /// It should be asked for one token, which may take up to `limit`.
    Ask { replica: ReplicaId, limit: Duration },
    /// Nothing listens at its address.
    Gone { replica: ReplicaId },
    /// It gave a token.
    Alive { replica: ReplicaId },
    /// Another process answers at its address.
    Restarted { replica: ReplicaId },
}

impl Health {
    pub(super) fn new(settings: WatchSettings) -> Self {
        let (model, looked_at) = (SilenceModel::default(), Moment::ZERO);
        Self { idle: settings.idle, model, looked_at }
    }

    /// Says when to look at the fleet next; it is looked at while it has work.
    pub(super) fn next_look(&self, has_work: bool) -> Option<Moment> {
        has_work.then(|| self.looked_at + LOOK_INTERVAL)
    }

    /// Looks at the fleet, if it is time: which replica is silent for too long, lags behind the others, or has
    /// shown nothing lately and should be asked for a token. `bookings` is all that is in flight.
    pub(super) fn tick<'a>(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        bookings: impl Iterator<Item = &'a Booking> + Clone,
        found: &mut Vec<Finding>,
    ) {
        if now.since(self.looked_at) < LOOK_INTERVAL {
            return;
        }
        let slept = ASLEEP < now.since(self.looked_at);
        self.looked_at = now;
        let ids: Vec<ReplicaId> = fleet.iter().map(|it| it.id).collect();
        if slept {
            for replica in &ids {
                self.on_sign(fleet, *replica, now, found);
            }
        }
        for replica in &ids {
            if let Some(it) = fleet.get_mut(*replica) {
                silence::note_crowding(now, it);
            }
            let there = bookings.clone().filter(|it| it.replica == *replica);
            self.look_for_silence(now, fleet, *replica, there, found);
            self.ask_if_due(now, fleet, *replica, found);
        }
        look_for_slowness(now, fleet, &ids, found);
    }

    /// Learns how fast prompts are read, where the engine tells how much of one was cached.
    pub(super) fn learn(&mut self, booking: &Booking, usage: Usage) {
        if let (Some(first), Some(input), Some(cached)) =
            (booking.account.first, usage.input, usage.cached)
        {
            let took = first.at.since(booking.account.sent_at);
            self.model.on_first_token(input.saturating_sub(cached), took);
        }
    }
}

/// Takes out replicas that write several times as slowly as the others of the pool for long, but keeps most of it.
fn look_for_slowness(now: Moment, fleet: &mut Fleet, ids: &[ReplicaId], found: &mut Vec<Finding>) {
    let up = |it: &&Replica| it.breaker.standing() == Standing::Up;
    let mut ratios: Vec<f64> =
        fleet.iter().filter(up).filter_map(|it| it.watch.slow.ratio()).collect();
    let Some(median) = median(&mut ratios) else { return };
    for replica in ids {
        let Some(it) = fleet.get_mut(*replica).filter(|it| up(&&**it)) else { continue };
        if !it.watch.slow.is_slow(now, median) {
            continue;
        }
        // Its record starts again when it comes back.
        it.watch.slow = SlowDetector::default();
        // Most of the pool stays, whatever the figures say.
        let out = fleet.iter().filter(|it| !it.admits_at_need(now)).count();
        if 4 * (out + 1) <= ids.len() {
            found.extend(change(fleet, *replica, |it| it.breaker.condemn(now, Reason::Slow)));
        }
    }
}

/// Tells whether any replica takes requests as a matter of course.
pub(super) fn any_is_up(fleet: &Fleet) -> bool {
    let is_up =
        |it: &Replica| matches!(it.breaker.standing(), Standing::Up | Standing::Suspect { .. });
    fleet.iter().any(|it| !it.leaving && 0.0 < it.weight && is_up(it))
}

/// Changes what is known of a replica; says so if its state is another now.
pub(super) fn change(
    fleet: &mut Fleet,
    replica: ReplicaId,
    change: impl FnOnce(&mut Replica),
) -> Option<Finding> {
    change_for(fleet, replica, None, change)
}

/// The same, for a silence.
fn change_for(
    fleet: &mut Fleet,
    replica: ReplicaId,
    silence: Option<Silence>,
    change: impl FnOnce(&mut Replica),
) -> Option<Finding> {
    let it = fleet.get_mut(replica)?;
    let before = it.state();
    change(it);
    let now = it.state();
    (before != now).then_some(Finding::Changed { replica, before, now, silence })
}
