//! What the operator may set about subsets.

use std::time::Duration;

/// How many replicas a workload may use, and when it may use others.
#[derive(Clone, Debug, PartialEq)]
pub struct SubsetSettings {
    /// The fewest replicas a workload has. A pool that has no more is not divided.
    pub floor: u32,
    /// The most it has, however much it asks for.
    pub cap: u32,
    /// How long the shortest wait inside a subset must be before others may be asked.
    pub spill_after: Duration,
    /// How many replicas beyond its subset a workload may spill to; always the same ones.
    pub spill_max: u32,
    /// Workloads that differ from that.
    pub workloads: Vec<WorkloadSettings>,
}

/// What holds for one workload instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkloadSettings {
    /// The workload half of its keys.
    pub workload: u32,
    /// What people call it.
    pub name: String,
    pub floor: u32,
    pub cap: u32,
    pub spill: bool,
    /// Nobody else uses its replicas.
    pub exclusive: bool,
}

impl Default for SubsetSettings {
    fn default() -> Self {
        Self {
            floor: 4,
            cap: u32::MAX,
            spill_after: Duration::from_secs(1),
            spill_max: 2,
            workloads: Vec::new(),
        }
    }
}
