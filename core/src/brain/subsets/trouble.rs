//! Whose requests do replicas die under? A workload of which nothing was served since a replica died or
//! fell silent under it stays where it is: it does not grow, is not given others for the replicas it lost,
//! and may ask one replica beyond its subset instead of several. A death is no load. One answer that
//! began in time clears it, so a rack that loses power holds nobody for longer than it takes to serve one
//! request at the stand-in; an answer that came through a hang proves nothing.
//!
//! Where it happens again under a request sent since, the workload is tried one request at a time, after
//! pauses that double: the breaker that replicas have, for workloads. An answer ends it. Which requests
//! should never be served is the quarantine's question, not this one's.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, Place};

/// Workloads remembered; the one that was noted first makes room.
const WORKLOADS_MAX: usize = 256;
/// How long a death is held against a workload that nobody hears of any more.
const TTL: Duration = Duration::from_secs(10 * 60);
/// How long a workload pauses after its second loss in a row; doubles at each further one.
const PAUSE: Duration = Duration::from_secs(10);
/// Where the doubling ends.
const PAUSE_MAX: Duration = Duration::from_secs(80);
/// A trial of which nobody hears any more, as when its client left, holds others up no longer than this.
const TRIAL_MAX: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub(super) struct Troubles {
    of: IndexMap<u32, Trouble, FxBuildHasher>,
}

#[derive(Debug)]
struct Trouble {
    /// When the last replica died under it.
    at: Moment,
    /// Where it may go: what it had when the first replica died.
    places: Vec<Place>,
    /// When the last loss was that counts: under a request sent after the one before.
    since: Moment,
    /// How many of them there were beyond the first.
    strikes: u32,
    /// When the one request was sent that may show it is harmless.
    trial: Option<Moment>,
}

impl Troubles {
    /// Notes that a replica was lost under a request of the workload, sent then, which has `places`.
    pub(super) fn on_lost(
        &mut self,
        now: Moment,
        workload: u32,
        sent_at: Moment,
        places: &[Place],
    ) {
        if let Some(it) = self.of.get_mut(&workload).filter(|it| now.since(it.at) < TTL) {
            it.at = now;
            if it.since <= sent_at {
                (it.since, it.strikes, it.trial) = (now, it.strikes + 1, None);
            }
            return;
        }
        if self.of.len() == WORKLOADS_MAX {
            self.of.shift_remove_index(0);
        }
        let places = places.to_vec();
        let trouble = Trouble { at: now, places, since: now, strikes: 0, trial: None };
        self.of.insert(workload, trouble);
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
        now.since(it.at) < pause || it.trial.is_some_and(|at| now.since(at) < TRIAL_MAX)
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
        troubles.on_lost(at_s(0), 7, at_s(0), &places);
        troubles.on_lost(at_s(1), 7, at_s(0), &[Place(3)]);
        assert_eq!(troubles.confines(at_s(1), 7), Some(places.as_slice()), "what it had first");
        assert!(!troubles.has(at_s(1), 8));
        troubles.on_done(7);
        assert!(!troubles.has(at_s(1), 7));
        troubles.on_lost(at_s(9), 7, at_s(9), &places);
        assert!(troubles.has(at_s(9), 7));
        assert!(!troubles.has(at_s(609), 7), "and not for ever");
    }

    #[test]
    fn who_loses_replicas_in_a_row_is_tried_by_one_request_after_pauses_that_double() {
        let mut troubles = Troubles::default();
        let lose = |troubles: &mut Troubles, now, sent_at| {
            troubles.on_lost(at_s(now), 7, at_s(sent_at), &[Place(1)]);
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
    fn only_so_many_workloads_are_remembered() {
        let mut troubles = Troubles::default();
        for workload in 0..10_000 {
            troubles.on_lost(at_s(0), workload, at_s(0), &[Place(1)]);
        }
        assert_eq!(troubles.of.len(), WORKLOADS_MAX);
    }
}
