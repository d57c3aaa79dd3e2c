//! Whether the picker serves, by gRPC's own health protocol: a gateway asks for it under the names that the
//! Inference Extension's parts use.

use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use futures_util::stream::unfold;
use tokio::time::sleep;
use tonic::Status;

use super::messages::{HealthStatus, NOT_SERVING, SERVICE_UNKNOWN, SERVING};
use crate::proxy::Router;

/// How often a watch looks.
const LOOK: Duration = Duration::from_secs(1);

/// Says whether a service serves; `None` for one that is not here.
pub(super) fn check(router: &Router, service: &str) -> Option<HealthStatus> {
    let serves = match service {
        "liveness" => true,
        ""
        | "readiness"
        | "inference-extension"
        | "envoy.service.ext_proc.v3.ExternalProcessor" => router.is_ready(),
        _ => return None,
    };
    Some(HealthStatus { status: if serves { SERVING } else { NOT_SERVING } })
}

/// Tells a service's state now and whenever it changes.
pub(super) fn watch(
    router: Arc<Router>,
    service: String,
) -> impl Stream<Item = Result<HealthStatus, Status>> {
    let unknown = HealthStatus { status: SERVICE_UNKNOWN };
    unfold((router, service, None), move |(router, service, told)| async move {
        loop {
            let now = check(&router, &service).unwrap_or(unknown);
            if told != Some(now.status) {
                return Some((Ok(now), (router, service, Some(now.status))));
            }
            sleep(LOOK).await;
        }
    })
}
