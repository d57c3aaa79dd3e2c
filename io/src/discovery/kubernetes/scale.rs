//! Writes how many replicas an object of Kubernetes is to have: by its `scale`, which Deployments, `StatefulSets` and
//! `LeaderWorkerSets` share. A pod that is to go is marked first, where the orchestrator chooses which goes.

use cleave_core::protocol::{read_scale, write_deletion_cost_patch, write_scale_patch};
use http::{Request, header};

use super::ScaleCall;
use super::api::{Api, ApiError};
use super::settings::KubernetesSettings;
use crate::discovery::found::SourceTrouble;

/// How often a change is tried where another writer was faster.
const TRIES_MAX: u32 = 5;
/// What scaling needs.
const RIGHTS: &str = "to scale, grant get and patch on the scale of what is scaled, and patch on pods \
                      (deploy/kubernetes/scaling/rbac.yaml)";
/// Below every pod that says nothing.
const VICTIM_COST: i32 = -1000;

/// Sets the number of replicas; an error says what to do.
pub async fn scale(call: &ScaleCall<'_>) -> Result<(), SourceTrouble> {
    scale_by(call).await.map_err(|error| match error {
        ApiError::Trouble(it) if it.word == "absent" => {
            let detail = format!(
                "there is no {}/{}: is that its name (scaling.target), and is its kind ({}) installed? {}",
                call.kind, call.name, call.api, it.detail
            );
            SourceTrouble::new("absent", detail)
        }
        ApiError::Trouble(it) => it,
        ApiError::Expired | ApiError::Conflict => {
            let detail = format!("another writer changes {}/{} all the time", call.kind, call.name);
            SourceTrouble::new("conflict", detail)
        }
    })
}

async fn scale_by(call: &ScaleCall<'_>) -> Result<(), ApiError> {
    let settings = KubernetesSettings {
        namespace: call.namespace.map(str::to_owned),
        ..KubernetesSettings::default()
    };
    let api = Api::open(&settings, call.kubeconfig, RIGHTS).await?;
    let namespace = call.namespace.unwrap_or(api.namespace());
    for pod in call.victims {
        let path = format!("/api/v1/namespaces/{namespace}/pods/{pod}");
        match api.get(patch(&path, write_deletion_cost_patch(VICTIM_COST))?).await {
            // It is gone already, as it should be.
            Err(ApiError::Trouble(it)) if it.word == "absent" => {}
            other => _ = other?,
        }
    }
    let ScaleCall { api: group, kind, name, replicas, .. } = *call;
    let path = format!("/apis/{group}/namespaces/{namespace}/{kind}/{name}/scale");
    for _ in 0..TRIES_MAX {
        let request = Request::get(&path).body(Vec::new()).map_err(|_| unaskable(&path))?;
        let now = read_scale(&api.get(request).await?)?;
        if now.replicas == replicas {
            return Ok(());
        }
        match api.get(patch(&path, write_scale_patch(&now.version, replicas))?).await {
            Err(ApiError::Conflict) => {}
            other => return other.map(drop),
        }
    }
    Err(ApiError::Conflict)
}

/// Asks to change an object by a merge patch.
pub(super) fn patch(path: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>, ApiError> {
    let kind = "application/merge-patch+json";
    let request = Request::patch(path).header(header::CONTENT_TYPE, kind).body(body);
    request.map_err(|_| unaskable(path))
}

pub(super) fn unaskable(path: &str) -> ApiError {
    ApiError::Trouble(SourceTrouble::new("refused", format!("{path} cannot be asked for")))
}
