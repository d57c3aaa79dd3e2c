//! One step at a time. Beyond its subset a workload begins on one replica, and on another only when that
//! one has shown a sign of life since. Replicas that requests bring down show nothing, so however fast such
//! requests come they reach their subset and a step more before it is known what is wrong. A workload
//! that does no harm hardly notices: a replica at work is heard of many times a second.
//!
//! Sessions that live beyond the subset may go on there until the step is overdue: keeping each of them
//! from its cache whenever another has just been sent would cost more than it saves. A step that is
//! overdue counts as a replica lost (`trouble`). A bound on places alone would have to be small to
//! protect and large to be of use.

use std::time::Duration;

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

use crate::domain::{Moment, Place};

/// Workloads whose last step is remembered; the one that was noted first makes room.
const WORKLOADS_MAX: usize = 4096;
/// A sign of life sooner than this after a request was sent may have been on its way before.
const SETTLED_IN: Duration = Duration::from_millis(500);
/// A step is overdue when nothing is heard for this long beyond the expected TTFT of its request.
const GRACE: Duration = Duration::from_millis(500);

/// The last step of each workload that went beyond its subset.
#[derive(Debug, Default)]
pub(super) struct Steps {
    of: IndexMap<u32, Step, FxBuildHasher>,
}

/// The replica where a workload went beyond its subset and that has shown no sign of life since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) place: Place,
    pub(super) at: Moment,
    /// When it should have shown one.
    due: Moment,
}

impl Step {
    /// Tells whether the replica survived the step, if its last sign of life was at `heard_at`.
    pub(super) fn is_settled(&self, heard_at: Moment) -> bool {
        self.at + SETTLED_IN < heard_at
    }

    pub(super) fn is_overdue(&self, now: Moment) -> bool {
        self.due < now
    }
}

impl Steps {
    pub(super) fn get(&self, workload: u32) -> Option<Step> {
        if self.of.is_empty() { None } else { self.of.get(&workload).copied() }
    }

    /// Notes a request sent beyond the subset; its first token is expected within `expected`. Replaces the
    /// previous step of the workload.
    pub(super) fn take(&mut self, now: Moment, workload: u32, place: Place, expected: Duration) {
        if self.of.len() == WORKLOADS_MAX && !self.of.contains_key(&workload) {
            self.of.shift_remove_index(0);
        }
        let due = now + expected.max(SETTLED_IN) + GRACE;
        self.of.insert(workload, Step { place, at: now, due });
    }

    /// Notes that a request of the workload was answered there.
    pub(super) fn on_answering(&mut self, workload: u32, place: Place) {
        if self.get(workload).is_some_and(|it| it.place == place) {
            self.of.swap_remove(&workload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at_ms(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    #[test]
    fn a_step_is_settled_by_what_is_heard_after_a_while_and_not_by_what_was_on_its_way() {
        let mut steps = Steps::default();
        assert_eq!(steps.get(7), None);
        steps.take(at_ms(1000), 7, Place(3), Duration::from_secs(2));
        let step = steps.get(7).unwrap();
        assert!(!step.is_settled(at_ms(900)) && !step.is_settled(at_ms(1400)));
        assert!(step.is_settled(at_ms(1501)));
        assert!(!step.is_overdue(at_ms(3500)) && step.is_overdue(at_ms(3501)));
    }

    #[test]
    fn an_answer_ends_the_step_it_came_from_and_no_other() {
        let mut steps = Steps::default();
        steps.take(at_ms(0), 7, Place(3), Duration::ZERO);
        steps.on_answering(7, Place(4));
        steps.on_answering(8, Place(3));
        assert!(steps.get(7).is_some());
        steps.on_answering(7, Place(3));
        assert_eq!(steps.get(7), None);
    }

    #[test]
    fn only_so_many_workloads_are_remembered() {
        let mut steps = Steps::default();
        for workload in 0..10_000 {
            steps.take(at_ms(0), workload, Place(1), Duration::ZERO);
        }
        assert_eq!(steps.of.len(), WORKLOADS_MAX);
        assert!(steps.get(9_999).is_some() && steps.get(0).is_none());
    }
}
