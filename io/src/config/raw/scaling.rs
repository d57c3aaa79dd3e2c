//! How many replicas a pool may have, and what adds them, as users write it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::text::TextValue;
use super::{Slots, Text, slots};
use crate::config::problem::Wrong;
use crate::proxy::{ScaleMode, ScaleTarget};

/// How many replicas the pool's work needs, and what is done about it. Without the section nothing of it runs.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ScalingSection {
    /// What is done with the number of replicas that are wanted. With `advise` it is only told: by `GET /scale`, as
    /// metrics and to KEDA. With `command` a program is run that adds and removes replicas. With `kubernetes` the
    /// router that leads writes it to the scale of `target`.
    pub mode: Text<ScaleMode>,
    /// The fewest replicas. At 0 a pool without work has none, and the first request waits for one; the pool must
    /// list its `models` then.
    #[schemars(range(min = 0, max = 100_000))]
    pub min: u32,
    /// The most replicas. Needed.
    #[schemars(range(min = 1, max = 100_000), extend("x-default" = "none"))]
    pub max: Option<u32>,
    /// How long a replica takes from being asked for to its first answer. Without it, it is learned.
    #[schemars(extend("x-default" = "learned"))]
    pub start_up: Option<Text<Duration>>,
    /// What an hour of a replica costs, in any currency; only for the report.
    #[schemars(range(min = 0.0, max = 1_000_000.0), extend("x-default" = "none"))]
    pub price_per_hour: Option<f64>,
    /// The program of `mode = "command"` and its arguments. It is run as it is, never through a shell, each time that
    /// the number changes, with `CLEAVE_POOL`, `CLEAVE_WANTED`, `CLEAVE_READY` and `CLEAVE_VICTIMS` in its environment.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<String>")]
    pub command: Slots<String>,
    /// How long the program may take; then it is ended, and run again later.
    pub command_timeout: Text<Duration>,
    /// What `mode = "kubernetes"` scales: `deployment/NAME`, `statefulset/NAME` or `leaderworkerset/NAME`, in the
    /// namespace and the cluster of the pool's `kubernetes` section.
    #[schemars(extend("x-default" = "none"))]
    pub target: Option<Text<ScaleTarget>>,
}

impl Default for ScalingSection {
    fn default() -> Self {
        Self {
            mode: Text(ScaleMode::Advise),
            min: 1,
            max: None,
            start_up: None,
            price_per_hour: None,
            command: Vec::new(),
            command_timeout: Text(Duration::from_secs(60)),
            target: None,
        }
    }
}

impl TextValue for ScaleMode {
    const FORMAT: &'static str = "";
    const EXAMPLE: &'static str = "advise";

    fn read(text: &str) -> Result<Self, Wrong> {
        let found = Self::ALL.into_iter().find(|it| it.as_str() == text);
        found.ok_or_else(|| {
            let remedy = format!("give one of {}", Self::choices().join(", "));
            Wrong::new("is not a way to scale", remedy)
        })
    }

    fn write(&self) -> String {
        self.as_str().to_owned()
    }

    fn choices() -> Vec<&'static str> {
        Self::ALL.iter().map(|it| it.as_str()).collect()
    }
}

impl TextValue for ScaleTarget {
    const FORMAT: &'static str = "scale-target";
    const EXAMPLE: &'static str = "deployment/vllm";

    fn read(text: &str) -> Result<Self, Wrong> {
        text.parse().map_err(|remedy: &str| Wrong::new("is nothing that can be scaled", remedy))
    }

    fn write(&self) -> String {
        self.to_string()
    }
}
