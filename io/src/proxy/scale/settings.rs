//! What the operator may set about the number of replicas of a pool; valid by construction.

use std::ffi::OsString;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// How many replicas a pool may have, and what is done with the number that is wanted.
#[derive(Clone, Debug, PartialEq)]
pub struct ScalingSettings {
    pub min: u32,
    pub max: u32,
    /// From being asked for to the first answer; learned where it is not given.
    pub start_up: Option<Duration>,
    /// What an hour of a replica costs.
    pub price_per_hour: Option<f64>,
    pub actuator: Actuator,
}

/// What carries out the number of replicas that are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actuator {
    /// Nothing: it is only told.
    None,
    Command(ScaleCommand),
    Kubernetes(KubernetesScale),
}

/// A program that adds and removes replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleCommand {
    pub program: String,
    pub arguments: Vec<String>,
    /// How long it may run.
    pub timeout: Duration,
    /// Variables of the environment that it is not given: settings of the router, which may be secrets.
    pub hidden: Vec<OsString>,
}

/// What Kubernetes scales, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KubernetesScale {
    pub target: ScaleTarget,
    pub namespace: Option<String>,
    pub kubeconfig: Option<std::path::PathBuf>,
}

/// Which way of acting an operator chose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScaleMode {
    #[default]
    Advise,
    Command,
    Kubernetes,
}

impl ScaleMode {
    pub const ALL: [Self; 3] = [Self::Advise, Self::Command, Self::Kubernetes];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Advise => "advise",
            Self::Command => "command",
            Self::Kubernetes => "kubernetes",
        }
    }
}

impl Actuator {
    pub const fn mode(&self) -> ScaleMode {
        match self {
            Self::None => ScaleMode::Advise,
            Self::Command(_) => ScaleMode::Command,
            Self::Kubernetes(_) => ScaleMode::Kubernetes,
        }
    }
}

/// A kind of object of Kubernetes that has a scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScaleKind {
    Deployment,
    StatefulSet,
    LeaderWorkerSet,
}

impl ScaleKind {
    const ALL: [Self; 3] = [Self::Deployment, Self::StatefulSet, Self::LeaderWorkerSet];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Deployment => "deployment",
            Self::StatefulSet => "statefulset",
            Self::LeaderWorkerSet => "leaderworkerset",
        }
    }
}

/// One object of Kubernetes that has a scale.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScaleTarget {
    pub kind: ScaleKind,
    pub name: String,
}

impl fmt::Display for ScaleTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind.as_str(), self.name)
    }
}

impl FromStr for ScaleTarget {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let remedy = "write deployment/NAME, statefulset/NAME or leaderworkerset/NAME";
        let (kind, name) = text.split_once('/').ok_or(remedy)?;
        let kind = ScaleKind::ALL.into_iter().find(|it| it.as_str() == kind).ok_or(remedy)?;
        let is_part =
            |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || b"-.".contains(&it);
        let is_name = (1..=253).contains(&name.len()) && name.bytes().all(is_part);
        is_name.then(|| Self { kind, name: name.to_owned() }).ok_or(remedy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_kind_and_a_name_that_is_no_path() {
        let target: ScaleTarget = "statefulset/vllm-70b".parse().unwrap();
        assert_eq!((target.kind, target.name.as_str()), (ScaleKind::StatefulSet, "vllm-70b"));
        assert_eq!(target.to_string(), "statefulset/vllm-70b");
        for wrong in ["vllm", "job/vllm", "deployment/", "deployment/../pods", "deployment/a/b"] {
            assert!(wrong.parse::<ScaleTarget>().is_err(), "{wrong}");
        }
    }
}
