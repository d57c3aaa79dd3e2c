//! Single objects of Kubernetes, by their names: read, made and changed, each in one call. What is in them is for the
//! room that keeps them; that another writer was faster is an answer here, and no error.

use std::path::Path;

use http::{Request, header};

use super::ObjectKind;
use super::api::{Api, ApiError, OBJECT_BYTES_MAX};
use super::scale::{patch, unaskable};
use super::settings::KubernetesSettings;
use crate::discovery::found::SourceTrouble;

/// The objects of one namespace.
pub struct KubernetesObjects {
    api: Api,
    namespace: String,
}

impl std::fmt::Debug for KubernetesObjects {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KubernetesObjects")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl KubernetesObjects {
    /// Reads how to log in; `rights` says what to grant where something is denied. Connects to nothing yet.
    pub async fn open(
        kubeconfig: Option<&Path>,
        namespace: Option<&str>,
        rights: &'static str,
    ) -> Result<Self, SourceTrouble> {
        let settings = KubernetesSettings {
            namespace: namespace.map(str::to_owned),
            ..KubernetesSettings::default()
        };
        let api = Api::open(&settings, kubeconfig, rights).await.map_err(trouble)?;
        let namespace = namespace.unwrap_or(api.namespace()).to_owned();
        Ok(Self { api, namespace })
    }

    /// Reads an object; none where it is not there.
    pub async fn read(
        &self,
        kind: ObjectKind,
        name: &str,
    ) -> Result<Option<Vec<u8>>, SourceTrouble> {
        let path = format!("{}/{name}", self.folder(kind));
        let request = Request::get(&path).body(Vec::new());
        absent_is_none(self.ask(request.map_err(|_| unaskable(&path))).await)
    }

    /// Makes an object; none where it is there already.
    pub async fn create(
        &self,
        kind: ObjectKind,
        body: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, SourceTrouble> {
        let path = self.folder(kind);
        let request =
            Request::post(&path).header(header::CONTENT_TYPE, "application/json").body(body);
        self.ask(request.map_err(|_| unaskable(&path))).await
    }

    /// Changes an object by a merge patch; none where it has changed meanwhile, or is gone.
    pub async fn change(
        &self,
        kind: ObjectKind,
        name: &str,
        body: Vec<u8>,
    ) -> Result<Option<Vec<u8>>, SourceTrouble> {
        absent_is_none(self.ask(patch(&format!("{}/{name}", self.folder(kind)), body)).await)
    }

    async fn ask(
        &self,
        request: Result<Request<Vec<u8>>, ApiError>,
    ) -> Result<Option<Vec<u8>>, SourceTrouble> {
        match self.api.get_within(request.map_err(trouble)?, OBJECT_BYTES_MAX).await {
            Ok(bytes) => Ok(Some(bytes)),
            Err(ApiError::Conflict) => Ok(None),
            Err(error) => Err(trouble(error)),
        }
    }

    fn folder(&self, kind: ObjectKind) -> String {
        let (group, kind) = match kind {
            ObjectKind::Lease => ("apis/coordination.k8s.io/v1", "leases"),
            ObjectKind::ConfigMap => ("api/v1", "configmaps"),
        };
        format!("/{group}/namespaces/{}/{kind}", self.namespace)
    }
}

/// An object that is not there is an answer, but a namespace that is not there is trouble for one that is to be made.
fn absent_is_none(
    answer: Result<Option<Vec<u8>>, SourceTrouble>,
) -> Result<Option<Vec<u8>>, SourceTrouble> {
    match answer {
        Err(it) if it.word == "absent" => Ok(None),
        other => other,
    }
}

fn trouble(error: ApiError) -> SourceTrouble {
    match error {
        ApiError::Trouble(it) => it,
        ApiError::Expired | ApiError::Conflict => {
            SourceTrouble::new("conflict", "another writer was faster")
        }
    }
}
