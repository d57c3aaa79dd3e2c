//! Whose requests do replicas die under, or fall silent under? A workload of which nothing has finished
//! since a replica died under it stays where it is: it does not grow and is not given others for the
//! replicas it lost. That one, and one that waits for an overdue first token and has had none since it
//! began to wait, may ask one replica beyond its subset instead of several. A death is no load, and a
//! long wait behind one's own hanging requests is none. One answer clears it, so a rack that loses
//! power holds nobody for longer than it takes to serve one request at the stand-in. Whether requests
//! should be served at all is the quarantine's question, not this one's.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, Place};

/// Workloads remembered; the one that was noted first makes room.
const WORKLOADS_MAX: usize = 256;
/// How long a death is held against a workload that nobody hears of any more.
const TTL: Duration = Duration::from_secs(10 * 60);

/// Workloads whose next first token is awaited; others are not judged.
const AWAITED_MAX: usize = 4096;
/// A first token is overdue after twice the time it was predicted to take and this.
const GRACE: Duration = Duration::from_secs(1);

#[derive(Debug, Default)]
pub(super) struct Troubles {
    of: IndexMap<u32, Trouble, FxBuildHasher>,
    /// When the first token is overdue that a workload waits for longest.
    awaited: IndexMap<u32, Moment, FxBuildHasher>,
}

#[derive(Debug)]
struct Trouble {
    /// When the last replica died under it.
    at: Moment,
    /// Where it may go: what it had when the first replica died.
    places: Vec<Place>,
}

impl Troubles {
    /// Notes that a replica was lost under a request of the workload, which has `places`.
    pub(super) fn on_lost(&mut self, now: Moment, workload: u32, places: &[Place]) {
        if let Some(it) = self.of.get_mut(&workload).filter(|it| now.since(it.at) < TTL) {
            it.at = now;
            return;
        }
        if self.of.len() == WORKLOADS_MAX {
            self.of.shift_remove_index(0);
        }
        let places = places.to_vec();
        self.of.insert(workload, Trouble { at: now, places });
    }

    /// Notes that a request of the workload has finished.
    pub(super) fn on_done(&mut self, workload: u32) {
        if !self.of.is_empty() {
            self.of.swap_remove(&workload);
        }
    }

    /// Notes a request whose first token is expected after so long.
    pub(super) fn on_sent(&mut self, now: Moment, workload: u32, expected: Duration) {
        if self.awaited.len() < AWAITED_MAX {
            self.awaited.entry(workload).or_insert(now + expected * 2 + GRACE);
        }
    }

    /// Notes a first token.
    pub(super) fn on_answering(&mut self, workload: u32) {
        self.awaited.swap_remove(&workload);
    }

    /// Tells whether a workload should not go further than it must.
    pub(super) fn is_held(&self, now: Moment, workload: u32) -> bool {
        self.has(now, workload) || self.awaited.get(&workload).is_some_and(|due| *due < now)
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
        troubles.on_lost(at_s(0), 7, &places);
        troubles.on_lost(at_s(1), 7, &[Place(3)]);
        assert_eq!(troubles.confines(at_s(1), 7), Some(places.as_slice()), "what it had first");
        assert!(!troubles.has(at_s(1), 8));
        troubles.on_done(7);
        assert!(!troubles.has(at_s(1), 7));
        troubles.on_lost(at_s(9), 7, &places);
        assert!(troubles.has(at_s(9), 7));
        assert!(!troubles.has(at_s(609), 7), "and not for ever");
    }

    #[test]
    fn a_workload_that_is_not_answered_is_held_until_it_is() {
        let mut troubles = Troubles::default();
        troubles.on_sent(at_s(0), 7, Duration::from_secs(2));
        troubles.on_sent(at_s(4), 7, Duration::from_secs(2));
        assert!(!troubles.is_held(at_s(5), 7));
        assert!(troubles.is_held(at_s(6), 7), "the first one is overdue");
        assert!(!troubles.has(at_s(6), 7), "nothing died");
        troubles.on_answering(7);
        assert!(!troubles.is_held(at_s(6), 7));
    }

    #[test]
    fn only_so_many_workloads_are_remembered() {
        let mut troubles = Troubles::default();
        for workload in 0..10_000 {
            troubles.on_lost(at_s(0), workload, &[Place(1)]);
            troubles.on_sent(at_s(0), workload, Duration::ZERO);
        }
        assert_eq!((troubles.of.len(), troubles.awaited.len()), (WORKLOADS_MAX, AWAITED_MAX));
    }
}
