//! The section about subsets: which replicas a workload may use, and what is kept of that over a
//! restart.

use std::path::PathBuf;
use std::time::Duration;

use cleave_core::brain::{SubsetSettings, WorkloadSettings};
use http::HeaderName;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Slots;
use super::text::{Text, TextValue};
use crate::config::problem::Wrong;

/// Which replicas a workload, a tenant's requests for one model, may use. Each has a subset of its
/// pool that grows with its demand, so that what it breaks it breaks there.
/// A pool of fewer than 8 replicas (no more than `floor` where that is given), or with a single
/// workload, is not divided.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct SubsetsSection {
    /// The fewest replicas a workload has.
    #[schemars(
        range(min = 1, max = 100_000),
        extend("x-default" = "a sixteenth of the pool, from 2 to 4")
    )]
    pub floor: Option<u32>,
    /// The most replicas a workload has, however much it asks for.
    #[schemars(
        range(min = 1, max = 100_000),
        extend("x-default" = "half of the pool, or what it needs if that is more")
    )]
    pub cap: Option<u32>,
    /// The wait for the best replica of a subset above which others may be asked; a fiftieth of what
    /// the request's class promises for the first token where that is less. They may also be asked when
    /// the first token is expected to take more than a tenth of that promise.
    pub spill_after: Text<Duration>,
    /// How many replicas beyond its subset a workload may use then, always the same ones. With or without
    /// a limit it uses them one after the other, as each shows that it lives.
    #[schemars(range(min = 0, max = 100_000), extend("x-default" = "no limit"))]
    pub spill_max: Option<u32>,
    /// A header whose value names the workload, in place of the model. It is believed, so the proxy
    /// before the router must set it or take it away: a client that chooses its workload chooses
    /// its replicas. Tenants are kept apart all the same.
    #[schemars(extend("x-default" = "none"))]
    pub workload_header: Option<Text<HeaderName>>,
    /// Folder in which each pool's assignment is kept, so that after a restart the same sessions go
    /// to the same replicas. Without one it is planned anew, which gives the same where load is even.
    /// Orders of operators are kept there too; one that cannot be written there is refused.
    #[schemars(extend("x-default" = "the state folder of the service or the user"))]
    pub state_dir: Option<PathBuf>,
}

impl Default for SubsetsSection {
    fn default() -> Self {
        let SubsetSettings { spill_after, .. } = SubsetSettings::default();
        Self {
            floor: None,
            cap: None,
            spill_after: Text(spill_after),
            spill_max: None,
            workload_header: None,
            state_dir: None,
        }
    }
}

impl SubsetsSection {
    /// Settles the section, with the workloads that differ from it.
    pub(in crate::config) fn settings(&self, workloads: &Slots<WorkloadSection>) -> SubsetSettings {
        let usual = SubsetSettings::default();
        let own = |it: &WorkloadSection| WorkloadSettings {
            workload: it.workload.0.0,
            name: it.name.clone(),
            floor: it.floor,
            cap: it.cap,
            spill: it.spill,
            exclusive: it.isolation.0 == Isolation::Exclusive,
        };
        SubsetSettings {
            floor: self.floor,
            cap: self.cap.unwrap_or(usual.cap),
            spill_after: self.spill_after.0,
            spill_max: self.spill_max,
            workloads: workloads.iter().flatten().map(own).collect(),
        }
    }
}

/// A workload whose subset differs from the usual one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct WorkloadSection {
    /// Which one: the eight digits by which `cleave assignment` shows it.
    pub workload: Text<WorkloadId>,
    /// What to call it.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The fewest replicas it has; `subsets.floor` unless given.
    #[schemars(range(min = 1, max = 100_000), extend("x-default" = "`subsets.floor`"))]
    pub floor: Option<u32>,
    /// The most replicas it has; `subsets.cap` unless given.
    #[schemars(range(min = 1, max = 100_000), extend("x-default" = "`subsets.cap`"))]
    pub cap: Option<u32>,
    /// Whether it may use replicas beyond its subset when that is full or down.
    #[serde(default = "spill_default")]
    pub spill: bool,
    /// With `exclusive` no other workload uses its replicas, as long as enough are left for the
    /// others.
    #[serde(default = "isolation_default")]
    pub isolation: Text<Isolation>,
}

const fn spill_default() -> bool {
    true
}

const fn isolation_default() -> Text<Isolation> {
    Text(Isolation::Shared)
}

/// The workload half of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) struct WorkloadId(u32);

impl TextValue for WorkloadId {
    const FORMAT: &'static str = "workload";
    const EXAMPLE: &'static str = "1a2b3c4d";

    fn read(text: &str) -> Result<Self, Wrong> {
        // A sign would be read as part of the number.
        let is_id = text.len() == 8 && text.bytes().all(|it| it.is_ascii_hexdigit());
        let id = is_id.then(|| u32::from_str_radix(text, 16).ok()).flatten();
        id.map(Self).ok_or_else(|| {
            Wrong::new(
                "is not a workload",
                "give the eight hexadecimal digits that `cleave assignment` shows",
            )
        })
    }

    fn write(&self) -> String {
        format!("{:08x}", self.0)
    }
}

/// Which other workloads may use a workload's replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::config) enum Isolation {
    Shared,
    Exclusive,
}

impl TextValue for Isolation {
    const FORMAT: &'static str = "";
    const EXAMPLE: &'static str = "shared";

    fn read(text: &str) -> Result<Self, Wrong> {
        match text {
            "shared" => Ok(Self::Shared),
            "exclusive" => Ok(Self::Exclusive),
            _ => Err(Wrong::new("is not an isolation", "give one of shared, exclusive")),
        }
    }

    fn write(&self) -> String {
        match self {
            Self::Shared => "shared".to_owned(),
            Self::Exclusive => "exclusive".to_owned(),
        }
    }

    fn choices() -> Vec<&'static str> {
        vec!["shared", "exclusive"]
    }
}
