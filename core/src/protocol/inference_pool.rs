//! An `InferencePool` of the Gateway API Inference Extension, as far as it says which pods are replicas.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::kubernetes::BadApiAnswer;

/// Which pods a gateway takes for the replicas of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InferencePool {
    /// A label selector as lists of pods take it.
    pub selector: String,
    /// Where engines listen in a pod; more than one where a pod has several of them.
    pub ports: Vec<u16>,
}

#[derive(Deserialize)]
struct RawInferencePool {
    spec: RawPoolSpec,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPoolSpec {
    #[serde(default)]
    selector: RawPoolSelector,
    #[serde(default)]
    target_ports: Vec<RawTargetPort>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawPoolSelector {
    match_labels: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct RawTargetPort {
    number: u16,
}

/// Reads an `InferencePool`; one without a selector or a port would mean every pod, or none, and is refused.
pub fn read_inference_pool(bytes: &[u8]) -> Result<InferencePool, BadApiAnswer> {
    let RawInferencePool { spec } = serde_json::from_slice(bytes)?;
    let labels = spec.selector.match_labels.iter();
    let selector: Vec<String> = labels.map(|(key, value)| format!("{key}={value}")).collect();
    if selector.is_empty() {
        return Err(BadApiAnswer::Without("spec.selector.matchLabels"));
    }
    if spec.target_ports.is_empty() {
        return Err(BadApiAnswer::Without("spec.targetPorts"));
    }
    let ports = spec.target_ports.into_iter().map(|it| it.number).collect();
    Ok(InferencePool { selector: selector.join(","), ports })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_says_which_pods_and_where_they_listen() {
        let text = br#"{"metadata":{"name":"chat"},"spec":{"selector":{"matchLabels":{"tier":"gpu","app":"vllm"}},
            "targetPorts":[{"number":8000},{"number":8001}],"endpointPickerRef":{"name":"cleave-epp"}}}"#;
        let pool = read_inference_pool(text).unwrap();
        assert_eq!(
            (pool.selector.as_str(), &pool.ports[..]),
            ("app=vllm,tier=gpu", &[8000, 8001][..])
        );
    }

    #[test]
    fn a_pool_of_every_pod_or_without_a_port_is_none() {
        for spec in [
            r#"{"selector":{},"targetPorts":[{"number":1}]}"#,
            r#"{"selector":{"matchLabels":{"a":"b"}}}"#,
            r#"{"selector":{"matchLabels":{"a":"b"}},"targetPorts":[{"number":70000}]}"#,
        ] {
            let text = format!(r#"{{"spec":{spec}}}"#);
            assert!(read_inference_pool(text.as_bytes()).is_err(), "{spec}");
        }
        assert!(read_inference_pool(b"404 page not found").is_err());
    }
}
