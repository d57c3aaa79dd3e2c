//! Slowness: a replica that writes several times as slowly as the others of its pool. A busy one is not slow, so
//! crowding is noted too: streams that stand still for want of memory say nothing.

use crate::cost::StepWork;
use crate::domain::{Moment, ReplicaId};
use crate::fleet::{Fleet, Reason, Replica, SlowDetector, Standing, median};

use super::{Finding, change};

/// Takes out replicas that stay slower than the others, but keeps most of the pool.
pub(super) fn look(now: Moment, fleet: &mut Fleet, ids: &[ReplicaId], found: &mut Vec<Finding>) {
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

/// Notes whether what is booked at a replica, or what its engine says, is more than fits its memory.
pub(super) fn note_crowding(now: Moment, it: &mut Replica) {
    let booked = it.ledger.load();
    let kv_tokens = booked.kv_tokens + booked.growth_tokens;
    let report = it.reported.report();
    it.watch.on_booked(now, kv_tokens, report.as_ref());
}

/// Predicts a step of a replica with the requests in flight there, each with `context_tokens`.
pub(super) fn step_ms(it: &Replica, context_tokens: u32) -> f64 {
    let batch = f64::from(it.booked().max(1));
    it.hardware.step.step_ms(&StepWork::answers(batch, batch * f64::from(context_tokens)))
}
