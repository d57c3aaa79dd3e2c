//! Kubernetes as the actuator: the number is written to the scale of an object. Only the router that leads does so.

use super::plan::ScaleOrder;
use crate::discovery::{ScaleCall, scale};
use crate::proxy::{KubernetesScale, ScaleKind};

/// Writes the number; `names` are those of the victims' pods.
pub(super) async fn run(
    object: &KubernetesScale,
    order: &ScaleOrder,
    names: &[String],
) -> Result<(), String> {
    let (api, kind) = match object.target.kind {
        ScaleKind::Deployment => ("apps/v1", "deployments"),
        ScaleKind::StatefulSet => ("apps/v1", "statefulsets"),
        ScaleKind::LeaderWorkerSet => ("leaderworkerset.x-k8s.io/v1", "leaderworkersets"),
    };
    let call = ScaleCall {
        kubeconfig: object.kubeconfig.as_deref(),
        namespace: object.namespace.as_deref(),
        api,
        kind,
        name: &object.target.name,
        replicas: u32::try_from(order.replicas).unwrap_or(u32::MAX),
        // Only a ReplicaSet lets its pods say which goes first.
        victims: if object.target.kind == ScaleKind::Deployment { names } else { &[] },
    };
    scale(&call).await.map_err(|it| format!("{}: {}", it.word, it.detail))
}
