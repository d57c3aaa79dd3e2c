//! The section about subsets: which replicas a workload may use, and what is kept of that over a
//! restart.

use std::path::PathBuf;
use std::time::Duration;

use cleave_core::brain::SubsetSettings;
use schemars::JsonSchema;
use serde::Deserialize;

use super::text::Text;

/// Which replicas a workload, a tenant's requests for one model, may use. Each has a subset of its
/// pool that grows with its demand, so that what it breaks it breaks there.
/// A pool with no more replicas than `floor`, or with a single workload, is not divided.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct Subsets {
    /// The fewest replicas a workload has.
    #[schemars(range(min = 1, max = 100_000))]
    pub floor: u32,
    /// The most replicas a workload has, however much it asks for.
    #[schemars(range(min = 1, max = 100_000), extend("x-default" = "no limit"))]
    pub cap: Option<u32>,
    /// The wait for the best replica of a subset above which others may be asked.
    pub spill_after: Text<Duration>,
    /// How many replicas beyond its subset a workload may use then; always the same ones.
    #[schemars(range(min = 0, max = 1000))]
    pub spill_max: u32,
    /// Folder in which each pool's assignment is kept, so that after a restart the same sessions go
    /// to the same replicas. Without one it is planned anew, which gives the same where load is even.
    #[schemars(extend("x-default" = "the state folder of the service or the user"))]
    pub state_dir: Option<PathBuf>,
}

impl Default for Subsets {
    fn default() -> Self {
        let SubsetSettings { floor, spill_after, spill_max, .. } = SubsetSettings::default();
        Self { floor, cap: None, spill_after: Text(spill_after), spill_max, state_dir: None }
    }
}

impl Subsets {
    pub(in crate::config) fn settings(&self) -> SubsetSettings {
        let usual = SubsetSettings::default();
        SubsetSettings {
            floor: self.floor,
            cap: self.cap.unwrap_or(usual.cap).max(self.floor),
            spill_after: self.spill_after.0,
            spill_max: self.spill_max,
            workloads: Vec::new(),
        }
    }
}
