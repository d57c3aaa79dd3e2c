//! Under which workloads do replicas die? A workload of which nothing was served since a replica died or
//! fell silent under it stays where it is: it does not grow, is not given others for the replicas it lost,
//! and may ask one replica beyond its subset instead of several. A death is no load. One answer that
//! began in time clears it, so a rack that loses power holds no workload for longer than it takes to serve one
//! request at the stand-in; an answer that came through a hang proves nothing.
//!
//! Where it happens again under a request sent since, the workload is tried one request at a time, after
//! pauses that double: the breaker that replicas have, for workloads. An answer ends it. Only replicas that
//! are known to be gone count for that: a lost connection alone would let one client stop its whole workload.
//! Which requests should never be served is the quarantine's question, not this one's.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, Place, ReplicaId};

/// Workloads remembered; the one that was noted first makes room.
const WORKLOADS_MAX: usize = 256;
/// How long a workload counts as in trouble after its last lost connection.
const TTL: Duration = Duration::from_secs(10 * 60);
/// How long a workload pauses after its second loss in a row; doubles at each further one.
const PAUSE: Duration = Duration::from_secs(10);
/// Where the doubling ends.
const PAUSE_MAX: Duration = Duration::from_secs(80);
/// A trial without a result, as when its client left, holds others up no longer than this.
const TRIAL_MAX: Duration = Duration::from_secs(30);

/// The most lost connections of a workload that are kept until it is known whether their replica is gone.
const OPEN_MAX: usize = 8;

#[derive(Debug, Default)]
pub(super) struct Troubles {
    of: IndexMap<u32, Trouble, FxBuildHasher>,
}

#[derive(Debug)]
struct Trouble {
    /// When its last connection was lost.
    at: Moment,
    /// Where it may go: what it had when the first connection was lost.
    places: Vec<Place>,
    /// When the last loss was that counts. A loss counts if its replica is gone and its request was sent
    /// after the previous loss.
    since: Option<Moment>,
    /// How many losses counted after the first.
    strikes: u32,
    /// When the one request was sent that may show it is harmless.
    trial: Option<Moment>,
    /// What was lost at replicas that may live, the oldest first.
    open: Vec<Lost>,
}

#[derive(Clone, Copy, Debug)]
struct Lost {
    replica: ReplicaId,
    sent_at: Moment,
    at: Moment,
}

impl Trouble {
    /// Counts a loss, if its request was sent after the one that counted last.
    fn count(&mut self, lost: Lost) {
        match self.since {
            None => self.since = Some(lost.at),
            Some(since) if since <= lost.sent_at => {
                (self.since, self.strikes, self.trial) = (Some(lost.at), self.strikes + 1, None);
            }
            Some(_) => {}
        }
    }
}

impl Troubles {
    /// Notes that a request of the workload, which has `places`, lost its connection; if it is known
    /// where that was and when it was sent, the replica may turn out to be gone.
    pub(super) fn on_lost(
        &mut self,
        now: Moment,
        workload: u32,
        request: Option<(ReplicaId, Moment)>,
        places: &[Place],
    ) {
        if self.of.get(&workload).is_none_or(|it| TTL <= now.since(it.at)) {
            if self.of.len() == WORKLOADS_MAX {
                self.of.shift_remove_index(0);
            }
            let (places, open) = (places.to_vec(), Vec::new());
            let fresh = Trouble { at: now, places, since: None, strikes: 0, trial: None, open };
            self.of.insert(workload, fresh);
        }
        let Some(it) = self.of.get_mut(&workload) else { return };
        it.at = now;
        if let Some((replica, sent_at)) = request {
            if it.open.len() == OPEN_MAX {
                it.open.remove(0);
            }
            it.open.push(Lost { replica, sent_at, at: now });
        }
    }

    /// Notes that a replica is gone, or hangs: what was lost there counts.
    pub(super) fn on_gone(&mut self, replica: ReplicaId) {
        for it in self.of.values_mut() {
            for lost in std::mem::take(&mut it.open) {
                if lost.replica == replica {
                    it.count(lost);
                } else {
                    it.open.push(lost);
                }
            }
        }
    }

    /// Notes that a replica lives: what was lost there does not count.
    pub(super) fn on_alive(&mut self, replica: ReplicaId) {
        self.of.values_mut().for_each(|it| it.open.retain(|lost| lost.replica != replica));
    }

    /// Notes that a request of the workload is sent.
    pub(super) fn on_sent(&mut self, now: Moment, workload: u32) {
        if let Some(it) = self.of.get_mut(&workload).filter(|it| 0 < it.strikes) {
            it.trial = Some(now);
        }
    }

    /// Notes that a request of the workload is being answered.
    pub(super) fn on_answering(&mut self, workload: u32) {
        if let Some(it) = self.of.get_mut(&workload) {
            (it.strikes, it.trial) = (0, None);
        }
    }

    /// Tells whether a workload is to send nothing now: it pauses, or is being tried.
    pub(super) fn pauses(&self, now: Moment, workload: u32) -> bool {
        let Some(it) = self.of.get(&workload).filter(|it| 0 < it.strikes) else { return false };
        let pause = (PAUSE * (1 << (it.strikes - 1).min(8))).min(PAUSE_MAX);
        it.since.is_some_and(|at| now.since(at) < pause)
            || it.trial.is_some_and(|at| now.since(at) < TRIAL_MAX)
    }

    /// Notes that a request of the workload has finished.
    pub(super) fn on_done(&mut self, workload: u32) {
        if !self.of.is_empty() {
            self.of.swap_remove(&workload);
        }
    }

    /// Tells whether replicas died under a workload, and nothing of it finished since.
    pub(super) fn has(&self, now: Moment, workload: u32) -> bool {
        self.confines(now, workload).is_some()
    }

    /// Lists the replicas that a workload in trouble is confined to.
    pub(super) fn confines(&self, now: Moment, workload: u32) -> Option<&[Place]> {
        if self.of.is_empty() {
            return None;
        }
        let it = self.of.get(&workload)?;
        (now.since(it.at) < TTL).then_some(it.places.as_slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_s(seconds: u64) -> Moment {
        Moment::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn a_death_confines_a_workload_until_something_of_it_finishes() {
        let mut troubles = Troubles::default();
        let places = [Place(1), Place(2)];
        troubles.on_lost(at_s(0), 7, None, &places);
        troubles.on_lost(at_s(1), 7, None, &[Place(3)]);
        assert_eq!(troubles.confines(at_s(1), 7), Some(places.as_slice()), "what it had first");
        assert!(!troubles.has(at_s(1), 8));
        troubles.on_done(7);
        assert!(!troubles.has(at_s(1), 7));
        troubles.on_lost(at_s(9), 7, None, &places);
        assert!(troubles.has(at_s(9), 7));
        assert!(!troubles.has(at_s(609), 7), "and not for ever");
    }

    #[test]
    fn who_loses_replicas_in_a_row_is_tried_by_one_request_after_pauses_that_double() {
        let mut troubles = Troubles::default();
        let lose = |troubles: &mut Troubles, now, sent_at| {
            troubles.on_lost(at_s(now), 7, Some((ReplicaId(1), at_s(sent_at))), &[Place(1)]);
            troubles.on_gone(ReplicaId(1));
        };
        lose(&mut troubles, 10, 5);
        lose(&mut troubles, 11, 6);
        assert!(!troubles.pauses(at_s(11), 7), "all of it was sent before anything was known");
        lose(&mut troubles, 15, 11);
        lose(&mut troubles, 15, 12);
        assert!(troubles.pauses(at_s(24), 7) && !troubles.pauses(at_s(25), 7));
        troubles.on_sent(at_s(25), 7);
        assert!(troubles.pauses(at_s(26), 7), "one at a time");
        assert!(!troubles.pauses(at_s(56), 7), "but its client may have left");
        lose(&mut troubles, 30, 25);
        assert!(troubles.pauses(at_s(49), 7) && !troubles.pauses(at_s(50), 7));
        troubles.on_sent(at_s(50), 7);
        troubles.on_answering(7);
        assert!(!troubles.pauses(at_s(51), 7) && troubles.has(at_s(51), 7));
    }

    #[test]
    fn lost_connections_alone_stop_no_workload() {
        let mut troubles = Troubles::default();
        for now in 1..100 {
            let request = Some((ReplicaId(1), at_s(now)));
            troubles.on_lost(at_s(now), 7, request, &[Place(1)]);
            assert!(!troubles.pauses(at_s(now), 7));
            if now.is_multiple_of(20) {
                troubles.on_alive(ReplicaId(1));
            }
        }
        assert!(troubles.of[&7].open.len() <= OPEN_MAX);
        troubles.on_gone(ReplicaId(2));
        assert!(!troubles.pauses(at_s(100), 7), "another one is gone");
        troubles.on_gone(ReplicaId(1));
        assert!(troubles.pauses(at_s(100), 7), "they were deaths after all");
    }

    #[test]
    fn only_so_many_workloads_are_remembered() {
        let mut troubles = Troubles::default();
        for workload in 0..10_000 {
            troubles.on_lost(at_s(0), workload, None, &[Place(1)]);
        }
        assert_eq!(troubles.of.len(), WORKLOADS_MAX);
    }
}
