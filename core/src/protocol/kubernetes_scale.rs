//! The scale of an object of Kubernetes, and what is written to change it. A change names the version that it was
//! decided on, so that the API server refuses it where another writer was faster.

use serde::{Deserialize, Serialize};

use super::kubernetes::BadApiAnswer;

/// How many replicas an object is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObjectScale {
    pub version: String,
    pub replicas: u32,
}

#[derive(Deserialize)]
struct RawScale {
    metadata: RawScaleMetadata,
    #[serde(default)]
    spec: RawScaleSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawScaleMetadata {
    #[serde(default)]
    resource_version: String,
}

/// Zero replicas are left out of the JSON.
#[derive(Default, Deserialize)]
struct RawScaleSpec {
    #[serde(default)]
    replicas: u32,
}

/// Reads a scale.
pub fn read_scale(bytes: &[u8]) -> Result<ObjectScale, BadApiAnswer> {
    let RawScale { metadata, spec } = serde_json::from_slice(bytes)?;
    let version = metadata.resource_version;
    if version.is_empty() {
        return Err(BadApiAnswer::Without("resourceVersion"));
    }
    Ok(ObjectScale { version, replicas: spec.replicas })
}

#[derive(Serialize)]
struct ScalePatch<'a> {
    metadata: VersionPatch<'a>,
    spec: SpecPatch,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct VersionPatch<'a> {
    resource_version: &'a str,
}

#[derive(Serialize)]
struct SpecPatch {
    replicas: u32,
}

/// Writes a merge patch that sets the number of replicas, unless the object has changed since `version`.
pub fn write_scale_patch(version: &str, replicas: u32) -> Vec<u8> {
    let metadata = VersionPatch { resource_version: version };
    let patch = ScalePatch { metadata, spec: SpecPatch { replicas } };
    serde_json::to_vec(&patch).unwrap_or_default()
}

/// Writes a merge patch by which a pod is the first to go when its `ReplicaSet` shrinks.
pub fn write_deletion_cost_patch(cost: i32) -> Vec<u8> {
    let key = "controller.kubernetes.io/pod-deletion-cost";
    format!(r#"{{"metadata":{{"annotations":{{"{key}":"{cost}"}}}}}}"#).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scale_is_read_and_changed_by_its_version() {
        let text = br#"{"kind":"Scale","metadata":{"name":"vllm","resourceVersion":"41"},"spec":{"replicas":3},"status":{"replicas":2}}"#;
        let scale = read_scale(text).unwrap();
        assert_eq!(scale, ObjectScale { version: "41".to_owned(), replicas: 3 });
        let none = read_scale(br#"{"metadata":{"resourceVersion":"7"},"spec":{}}"#).unwrap();
        assert_eq!(none.replicas, 0);
        assert!(read_scale(br#"{"metadata":{}}"#).is_err() && read_scale(b"<html>").is_err());
        let patch = String::from_utf8(write_scale_patch(&scale.version, 5)).unwrap();
        assert_eq!(patch, r#"{"metadata":{"resourceVersion":"41"},"spec":{"replicas":5}}"#);
        let cost = String::from_utf8(write_deletion_cost_patch(-100)).unwrap();
        assert!(cost.contains(r#""controller.kubernetes.io/pod-deletion-cost":"-100""#), "{cost}");
    }
}
