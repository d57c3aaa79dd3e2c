//! Slowness: a replica that writes several times as slowly as the others of its pool. A busy one is not slow, so
//! crowding is noted too: streams that stand still for want of memory say nothing.

use crate::cost::StepWork;
use crate::domain::{Moment, ReplicaId, float, span_ms};
use crate::fleet::{Fleet, Gap, Reason, Replica, Standing, median, ms};

use super::super::request::Progress;
use super::{Finding, change};

/// Takes out replicas that stay slower than the others, but keeps most of the pool.
pub(super) fn look(now: Moment, fleet: &mut Fleet, ids: &[ReplicaId], found: &mut Vec<Finding>) {
    let up = |it: &&Replica| it.breaker.standing() == Standing::Up;
    let mut ratios: Vec<f64> = fleet.iter().filter(up).filter_map(|it| it.pace.lately()).collect();
    let Some(median) = median(&mut ratios) else { return };
    for replica in ids {
        let Some(it) = fleet.get_mut(*replica).filter(|it| up(&&**it)) else { continue };
        if !it.pace.is_slow(now, median) {
            continue;
        }
        // Its record starts again when it comes back.
        it.pace.forget_lately();
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

/// Holds what a stream wrote between two looks against what it should have taken, beside all that went on there.
pub(super) fn gap(it: &Replica, before: &Progress, now: &Progress) -> Gap {
    let batch = f64::midpoint(f64::from(before.answering), f64::from(now.answering)).max(1.0);
    let context = f64::midpoint(float(before.kv_tokens), float(now.kv_tokens));
    let written_ms = it.hardware.step.step_ms(&StepWork::answers(batch, context));
    let read_ms = ms(it.ledger.prefilled_since(before.prefilled_us));
    Gap {
        taken_ms: span_ms(now.at.since(before.at)),
        predicted_ms: f64::from(now.tokens - before.tokens) * written_ms + read_ms,
        waiting_ms: ms(it.ledger.load().prefill_us),
        is_crowded: it.watch.was_crowded(before.at),
    }
}

/// Predicts a step of a replica with the requests in flight there, each with `context_tokens`.
pub(super) fn step_ms(it: &Replica, context_tokens: u32) -> f64 {
    let batch = f64::from(it.booked().max(1));
    it.hardware.step.step_ms(&StepWork::answers(batch, batch * f64::from(context_tokens)))
}
