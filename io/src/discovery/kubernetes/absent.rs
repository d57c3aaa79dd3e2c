//! Kubernetes in a build without its client: nothing is found, kept or scaled, and the reason is told.

use std::path::Path;

use super::{KubernetesSettings, ObjectKind, ScaleCall};
use crate::discovery::found::{SourceEvent, SourceTrouble};

fn trouble() -> SourceTrouble {
    let detail = "this build has no client for Kubernetes; build cleave with its default features";
    SourceTrouble::new("not_built", detail)
}

/// Says why nothing is found, and finds nothing for ever.
pub(in crate::discovery) async fn watch(_: &KubernetesSettings, mut tell: impl FnMut(SourceEvent)) {
    tell(SourceEvent::Failed(trouble()));
    std::future::pending::<()>().await;
}

/// Says why nothing is scaled.
pub async fn scale(_: &ScaleCall<'_>) -> Result<(), SourceTrouble> {
    Err(trouble())
}

/// There are none, and the compiler knows it.
#[derive(Debug)]
pub enum KubernetesObjects {}

#[expect(clippy::unused_async, reason = "those that are there wait")]
impl KubernetesObjects {
    pub async fn open(
        _: Option<&Path>,
        _: Option<&str>,
        _: &'static str,
    ) -> Result<Self, SourceTrouble> {
        Err(trouble())
    }

    pub async fn read(&self, _: ObjectKind, _: &str) -> Result<Option<Vec<u8>>, SourceTrouble> {
        match *self {}
    }

    pub async fn create(
        &self,
        _: ObjectKind,
        _: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, SourceTrouble> {
        match *self {}
    }

    pub async fn change(
        &self,
        _: ObjectKind,
        _: &str,
        _: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, SourceTrouble> {
        match *self {}
    }
}
