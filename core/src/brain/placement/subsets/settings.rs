//! What the operator may set about subsets.

use std::time::Duration;

use crate::sharding::Bounds;

/// How many replicas a workload may use, and when it may use others.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsetSettings {
    /// The fewest replicas a workload has; by the size of the pool where nothing is said.
    pub floor: Option<u32>,
    /// The most it has, however much it asks for.
    pub cap: u32,
    /// How long the shortest wait inside a subset may be before others are asked; less for classes
    /// that are promised an early first token.
    pub spill_after: Duration,
    /// How many replicas beyond its subset a workload may spill to, always the same ones; any, one step
    /// at a time, where nothing is said.
    pub spill_max: Option<u32>,
    /// Workloads that differ from that.
    pub workloads: Vec<WorkloadSettings>,
}

/// What holds for one workload instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadSettings {
    /// The workload half of its keys.
    pub workload: u32,
    /// Its name for operators.
    pub name: String,
    /// As for all where nothing is said.
    pub floor: Option<u32>,
    pub cap: Option<u32>,
    pub spill: bool,
    /// No other workload uses its replicas.
    pub exclusive: bool,
}

/// A pool smaller than this is not divided unless a floor is set: a subset with its spill would be most
/// of it.
const DIVIDED_MIN: usize = 8;

impl SubsetSettings {
    /// Lets every workload use every replica.
    pub fn undivided() -> Self {
        Self { floor: Some(u32::MAX), ..Self::default() }
    }

    /// What is set for one workload instead.
    pub(super) fn own(&self, workload: u32) -> Option<&WorkloadSettings> {
        self.workloads.iter().find(|it| it.workload == workload)
    }

    /// How many replicas a workload has at least and at most; `floor` is what holds for most.
    pub(super) fn bounds_of(&self, workload: u32, floor: u32) -> Bounds {
        let common = Bounds { floor, cap: self.cap };
        self.own(workload).map_or(common, |it| Bounds {
            floor: it.floor.map_or(common.floor, |it| it.max(1)),
            cap: it.cap.unwrap_or(common.cap),
        })
    }

    /// Tells the fewest replicas a workload has in a pool of `replicas`: a sixteenth of them, since the
    /// workload can take that many down, but at least two and at most four.
    pub(super) fn floor_in(&self, replicas: usize) -> u32 {
        let part = || u32::try_from(replicas.div_ceil(16)).unwrap_or(u32::MAX).clamp(2, 4);
        self.floor.map_or_else(part, |it| it.max(1))
    }

    /// Tells whether a pool of `replicas` is divided at all. Replicas that are out for a while count: a
    /// restart does not undo the division.
    pub(super) fn divides(&self, replicas: usize) -> bool {
        let floor = usize::try_from(self.floor_in(replicas)).unwrap_or(usize::MAX);
        floor < replicas && (self.floor.is_some() || DIVIDED_MIN <= replicas)
    }
}

impl Default for SubsetSettings {
    fn default() -> Self {
        Self {
            floor: None,
            cap: u32::MAX,
            spill_after: Duration::from_secs(1),
            spill_max: None,
            workloads: Vec::new(),
        }
    }
}
