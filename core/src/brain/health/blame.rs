//! Whose fault is it that a request was lost? A replica that is broken loses all requests; a request that
//! breaks its own connection is lost wherever it goes, and its sender could put out replica after replica
//! with it. So a lost connection is only a question. A failed one for a token makes the replica guilty; the
//! same request answered elsewhere does, but such blame never takes out the last of the pool; a token acquits
//! it.

use crate::domain::{Moment, ReplicaId};
use crate::fleet::{Fleet, Reason, Replica, Standing};

use super::super::event::Failure;
use super::super::request::{Booking, Suspect};
use super::probes::ask_after_loss;
use super::{Finding, Health, change};

impl Health {
    /// Takes in that a try failed: blames the replica where there is no doubt, and else remembers it as a
    /// suspect of the request.
    pub(in crate::brain) fn on_try_failed(
        &mut self,
        now: Moment,
        fleet: &mut Fleet,
        booking: &mut Booking,
        failure: Failure,
        found: &mut Vec<Finding>,
    ) {
        let replica = booking.replica;
        let had_begun = booking.is_answering();
        booking.past.was_lost |=
            matches!(failure, Failure::Lost | Failure::Late | Failure::Died | Failure::Hung);
        let suspect = |reason| Suspect { replica, reason, had_begun };
        match failure {
            Failure::Unreachable => found.extend(blame(now, fleet, replica, Reason::Unreachable)),
            Failure::Lost | Failure::Late => {
                on_loss(now, fleet, replica, found);
                booking.past.suspects.push(suspect(Reason::Unreachable));
            }
            Failure::Died => {
                found.extend(blame(now, fleet, replica, Reason::Unreachable));
                let condemn = |it: &mut Replica| it.breaker.condemn(now, Reason::Unreachable);
                found.extend(change(fleet, replica, condemn));
            }
            // It is out already, or not at fault.
            Failure::Hung | Failure::Ours => {}
            Failure::Status if booking.account.is_trial => {
                found.extend(blame(now, fleet, replica, Reason::Failing));
            }
            Failure::Status => booking.past.suspects.push(suspect(Reason::Failing)),
            // An engine that says it is full is well; only this request should go elsewhere.
            Failure::Busy => found.extend(praise(now, fleet, replica)),
        }
        if matches!(failure, Failure::Status | Failure::Busy) {
            self.on_sign(fleet, replica, now, found);
        }
    }

    /// Takes in that an answer broke off for good. No other replica can show whose fault it was, so where
    /// the replica cannot be asked for a token either, it counts as the replica's.
    pub(in crate::brain) fn on_cut(
        now: Moment,
        fleet: &mut Fleet,
        replica: ReplicaId,
        found: &mut Vec<Finding>,
    ) {
        on_loss(now, fleet, replica, found);
        if fleet.get(replica).is_some_and(|it| it.breaker.is_unable()) {
            found.extend(blame_by_comparison(now, fleet, replica));
        }
    }
}

/// Notes a lost connection, and has the router ask the replica for a token.
fn on_loss(now: Moment, fleet: &mut Fleet, replica: ReplicaId, found: &mut Vec<Finding>) {
    found.extend(change(fleet, replica, |it| it.on_loss(now)));
    ask_after_loss(now, fleet, replica, found);
}

/// Blames the suspects of a request for which another replica does better.
pub(in crate::brain) fn blame_suspects(
    now: Moment,
    fleet: &mut Fleet,
    suspects: &[Suspect],
    found: &mut Vec<Finding>,
) {
    for it in suspects {
        found.extend(if it.reason == Reason::Unreachable {
            blame_by_comparison(now, fleet, it.replica)
        } else {
            blame(now, fleet, it.replica, it.reason)
        });
    }
}

/// Notes an answer.
pub(in crate::brain) fn praise(
    now: Moment,
    fleet: &mut Fleet,
    replica: ReplicaId,
) -> Option<Finding> {
    change(fleet, replica, |it| it.breaker.on_success(now))
}

fn blame(now: Moment, fleet: &mut Fleet, replica: ReplicaId, reason: Reason) -> Option<Finding> {
    change(fleet, replica, |it| it.on_failure(now, reason))
}

/// Counts a lost connection as the replica's failure, on evidence that a client may have made. It
/// does not put out the last replicas of the pool.
fn blame_by_comparison(now: Moment, fleet: &mut Fleet, replica: ReplicaId) -> Option<Finding> {
    let is_up = |it: &Replica| {
        let standing = it.breaker.standing();
        it.id != replica && matches!(standing, Standing::Up | Standing::Suspect { .. })
    };
    let pool = fleet.iter().filter(|it| !it.leaving && 0.0 < it.weight);
    let (all, others) =
        pool.fold((0, 0), |(all, others), it| (all + 1, others + usize::from(is_up(it))));
    if !is_enough(others, all) {
        return None;
    }
    change(fleet, replica, |it| it.breaker.on_failure(now, Reason::Unreachable))
}

/// Takes those suspects that an answer which begins elsewhere outdoes: those that had not begun one.
pub(in crate::brain) fn take_outdone(suspects: &mut Vec<Suspect>) -> Vec<Suspect> {
    let (rest, outdone) = std::mem::take(suspects).into_iter().partition(|it| it.had_begun);
    *suspects = rest;
    outdone
}

/// Tells whether these replicas are enough of a pool to do without the rest: half of it, and one.
const fn is_enough(up: usize, all: usize) -> bool {
    0 < up && all <= 2 * up
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_pool_and_at_least_one_stays() {
        let may_go = |all: usize| (0..all).filter(|up| is_enough(*up, all)).min();
        assert_eq!(may_go(1), None);
        assert_eq!([2, 3, 4, 5, 8].map(may_go), [Some(1), Some(2), Some(2), Some(3), Some(4)]);
    }
}
