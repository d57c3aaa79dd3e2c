//! Replicas that are pods of Kubernetes. Pods are watched rather than endpoints, because a pod says more and sooner:
//! that its end was ordered, while it still serves, and which of its containers runs. The room is the only one
//! that knows Kubernetes; to the rest a pod is a replica that was found.
//!
//! All that needs the client is part of builds with the feature `kubernetes`, which is on unless it is taken out.

#[cfg(not(feature = "kubernetes"))]
mod absent;
#[cfg(feature = "kubernetes")]
mod api;
#[cfg(feature = "kubernetes")]
mod clusters;
#[cfg(feature = "kubernetes")]
mod follow;
#[cfg(feature = "kubernetes")]
mod member;
#[cfg(feature = "kubernetes")]
mod objects;
#[cfg(feature = "kubernetes")]
mod roster;
#[cfg(feature = "kubernetes")]
mod scale;
mod settings;

use std::path::Path;

#[cfg(not(feature = "kubernetes"))]
pub(super) use absent::watch;
#[cfg(not(feature = "kubernetes"))]
pub use absent::{KubernetesObjects, scale};
#[cfg(feature = "kubernetes")]
pub(super) use clusters::watch;
#[cfg(feature = "kubernetes")]
pub use objects::KubernetesObjects;
#[cfg(feature = "kubernetes")]
pub use scale::scale;
pub use settings::{EnginePort, KubernetesSettings, PodKeys, SERVING_ROLES};

/// Kinds of objects that routers keep something in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectKind {
    Lease,
    ConfigMap,
}

/// What is scaled, and to what.
#[derive(Clone, Copy, Debug)]
pub struct ScaleCall<'a> {
    pub kubeconfig: Option<&'a Path>,
    pub namespace: Option<&'a str>,
    /// Group and version of its API: `apps/v1`.
    pub api: &'static str,
    /// Its kind as paths name it: `deployments`.
    pub kind: &'static str,
    pub name: &'a str,
    pub replicas: u32,
    /// Names of pods that are to go first.
    pub victims: &'a [String],
}
