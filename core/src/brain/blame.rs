//! Whose fault is it that a request was lost? A replica that is broken loses everybody's; a request that
//! breaks its own connection is lost wherever it goes, and its sender could put out replica after replica
//! with it. So a lost connection is only a question. A failed one for a token makes the replica guilty; the
//! same request answered elsewhere does, but such blame never takes out the last of the pool; a token acquits
//! it.

use crate::domain::{Moment, ReplicaId};
use crate::fleet::{Reason, Replica, Standing};

use super::Brain;
use super::booking::Booking;
use super::event::{Action, Failure};

/// A replica where a try failed, perhaps by its own fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    replica: ReplicaId,
    reason: Reason,
    /// Whether the answer had begun there. Then only a whole answer elsewhere is a better one.
    had_begun: bool,
}

impl Brain {
    /// Takes in that a try failed: blames the replica where there is no doubt, and else remembers it as a
    /// suspect of the request.
    pub(super) fn blame_try(
        &mut self,
        now: Moment,
        booking: &mut Booking,
        failure: Failure,
        actions: &mut Vec<Action>,
    ) {
        let replica = booking.replica;
        let had_begun = booking.is_answering();
        let suspect = |reason| Suspect { replica, reason, had_begun };
        match failure {
            Failure::Unreachable => {
                self.quarantine.on_confirmed(now, replica);
                self.blame(now, replica, Reason::Unreachable);
            }
            Failure::Lost | Failure::Late => {
                self.note_loss(now, replica, actions);
                booking.suspects.push(suspect(Reason::Unreachable));
            }
            Failure::Died => {
                self.quarantine.on_confirmed(now, replica);
                self.blame(now, replica, Reason::Unreachable);
                self.change(replica, |it| it.breaker.condemn(now, Reason::Unreachable));
            }
            // It is out already, or not at fault.
            Failure::Hung | Failure::Ours => {}
            Failure::Status if booking.trial => self.blame(now, replica, Reason::Failing),
            Failure::Status => booking.suspects.push(suspect(Reason::Failing)),
            // An engine that says it is full is well; only this request should go elsewhere.
            Failure::Busy => self.praise(now, replica),
        }
    }

    /// Takes in that an answer broke off for good. No other replica can show whose fault it was, so where
    /// the replica cannot be asked for a token either, it counts as the replica's.
    pub(super) fn blame_cut(&mut self, now: Moment, replica: ReplicaId, actions: &mut Vec<Action>) {
        self.note_loss(now, replica, actions);
        if self.fleet.get(replica).is_some_and(|it| it.breaker.is_unable()) {
            self.blame_by_comparison(now, replica);
        }
    }

    /// Blames the suspects of a request for which another replica does better.
    pub(super) fn blame_suspects(&mut self, now: Moment, suspects: &[Suspect]) {
        for it in suspects {
            if it.reason == Reason::Unreachable {
                self.blame_by_comparison(now, it.replica);
            } else {
                self.blame(now, it.replica, it.reason);
            }
        }
    }

    /// Notes a lost connection, and has the router ask the replica for a token.
    fn note_loss(&mut self, now: Moment, replica: ReplicaId, actions: &mut Vec<Action>) {
        self.change(replica, |it| it.on_loss(now));
        self.ask_after_loss(now, replica, actions);
    }

    /// Counts a lost connection as the replica's failure, on evidence that a client may have made. It
    /// does not put out the last replicas of the pool.
    fn blame_by_comparison(&mut self, now: Moment, replica: ReplicaId) {
        let is_up = |it: &Replica| {
            let standing = it.breaker.standing();
            it.id != replica && matches!(standing, Standing::Up | Standing::Suspect { .. })
        };
        let pool = self.fleet.iter().filter(|it| !it.leaving && 0.0 < it.weight);
        let (all, others) =
            pool.fold((0, 0), |(all, others), it| (all + 1, others + usize::from(is_up(it))));
        if is_enough(others, all) {
            self.change(replica, |it| it.breaker.on_failure(now, Reason::Unreachable));
        }
    }

    pub(super) fn blame(&mut self, now: Moment, replica: ReplicaId, reason: Reason) {
        self.change(replica, |it| it.on_failure(now, reason));
    }

    pub(super) fn praise(&mut self, now: Moment, replica: ReplicaId) {
        self.change(replica, |it| it.breaker.on_success(now));
    }
}

/// Takes those suspects that an answer which begins elsewhere outdoes: those that had not begun one.
pub(super) fn take_outdone(suspects: &mut Vec<Suspect>) -> Vec<Suspect> {
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
