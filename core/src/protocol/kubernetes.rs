//! Pods as the API server of Kubernetes writes them, one page of a list or one line of a watch at a time. Only
//! what discovery looks at is read; the rest of a pod, most of it, is skipped where it stands. An answer that is not
//! what it should be is refused whole: half a list would look like pods that are gone.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

/// The label by which nodes, and pods from Kubernetes 1.35 on, say where they are.
const ZONE_LABEL: &str = "topology.kubernetes.io/zone";

/// The answer is not what the API server of Kubernetes would say.
#[derive(Debug, thiserror::Error)]
pub enum BadApiAnswer {
    #[error("it is not the JSON of a pod or a list: {0}")]
    Json(#[from] serde_json::Error),
    #[error("it has no {0}")]
    Without(&'static str),
    #[error("it is a change of an unknown type")]
    UnknownChange,
}

/// One pod, as far as it matters here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Its name for ever: no other pod has had it or will have it.
    pub uid: String,
    pub name: String,
    pub version: String,
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub node: Option<String>,
    pub ip: Option<IpAddr>,
    pub ports: Vec<PodPort>,
    /// The id of each container that runs, by the name of the container.
    pub containers: BTreeMap<String, String>,
    pub is_ready: bool,
    /// Its end was ordered; it still runs.
    pub is_ending: bool,
    /// It has ended, well or not, and does not come back.
    pub is_over: bool,
}

/// A port that a container says it listens on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPort {
    pub name: Option<String>,
    pub number: u16,
    pub container: String,
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodPage {
    pub pods: Vec<Pod>,
    /// From where a watch goes on.
    pub version: String,
    /// How to ask for the next page, if there is one.
    pub rest: Option<String>,
}

/// One line of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodChange {
    /// The pod is there, new or changed.
    Put(Pod),
    /// It is gone, or is not among those watched any more.
    Gone { uid: String, version: String },
    /// Nothing changed up to this version.
    Mark { version: String },
    /// The watch cannot go on.
    Ended(ApiStatus),
}

/// How the API server says that something is wrong.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ApiStatus {
    pub code: u16,
    pub message: String,
}

/// Reads a page of a list of pods.
pub fn read_pods(bytes: &[u8]) -> Result<PodPage, BadApiAnswer> {
    let RawList { metadata, items } = serde_json::from_slice::<RawList<RawPod>>(bytes)?;
    let version = metadata.resource_version;
    if version.is_empty() {
        return Err(BadApiAnswer::Without("resourceVersion"));
    }
    let pods = items.unwrap_or_default().into_iter().map(RawPod::read).collect::<Result<_, _>>()?;
    Ok(PodPage { pods, version, rest: metadata.rest.filter(|it| !it.is_empty()) })
}

/// Reads a line of a watch of pods.
pub fn read_pod_change(line: &[u8]) -> Result<PodChange, BadApiAnswer> {
    let change: RawChange<'_> = serde_json::from_slice(line)?;
    let object = change.object.get();
    Ok(match change.kind {
        "ADDED" | "MODIFIED" => PodChange::Put(read::<RawPod>(object)?.read()?),
        "DELETED" => {
            let Pod { uid, version, .. } = read::<RawPod>(object)?.read()?;
            PodChange::Gone { uid, version }
        }
        "BOOKMARK" => {
            let version = read::<RawObject>(object)?.metadata.resource_version;
            PodChange::Mark { version }
        }
        "ERROR" => PodChange::Ended(read(object)?),
        _ => return Err(BadApiAnswer::UnknownChange),
    })
}

/// Reads how a request was refused, as far as the answer says it.
pub fn read_api_status(bytes: &[u8]) -> Option<ApiStatus> {
    serde_json::from_slice(bytes).ok()
}

/// The zone of each node that has one, by the node's name.
pub type NodeZones = BTreeMap<String, String>;

/// Reads a page of nodes; returns their zones, and how to ask for the next page.
pub fn read_node_zones(bytes: &[u8]) -> Result<(NodeZones, Option<String>), BadApiAnswer> {
    let RawList { metadata, items } = serde_json::from_slice::<RawList<RawObject>>(bytes)?;
    let zone = |it: RawObject| {
        let mut labels = it.metadata.labels.unwrap_or_default();
        Some((it.metadata.name, labels.remove(ZONE_LABEL)?))
    };
    let zones = items.unwrap_or_default().into_iter().filter_map(zone).collect();
    Ok((zones, metadata.rest.filter(|it| !it.is_empty())))
}

impl Pod {
    /// Finds what a label or an annotation says; an annotation counts first, because it can hold what labels cannot.
    pub fn says(&self, key: &str) -> Option<&str> {
        let said = self.annotations.get(key).or_else(|| self.labels.get(key));
        said.map(|it| it.trim()).filter(|it| !it.is_empty())
    }

    /// The zone that newer clusters write on each pod.
    pub fn zone(&self) -> Option<&str> {
        self.says(ZONE_LABEL)
    }
}

fn read<T: DeserializeOwned>(text: &str) -> Result<T, BadApiAnswer> {
    Ok(serde_json::from_str(text)?)
}

#[derive(Deserialize)]
struct RawList<T> {
    metadata: RawMetadata,
    items: Option<Vec<T>>,
}

#[derive(Deserialize)]
struct RawChange<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct RawObject {
    metadata: RawMetadata,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawMetadata {
    uid: String,
    name: String,
    resource_version: String,
    #[serde(rename = "continue")]
    rest: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    annotations: Option<BTreeMap<String, String>>,
    deletion_timestamp: Option<String>,
}

#[derive(Deserialize)]
struct RawPod {
    metadata: RawMetadata,
    #[serde(default)]
    spec: RawSpec,
    #[serde(default)]
    status: RawPodStatus,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawSpec {
    node_name: Option<String>,
    containers: Option<Vec<RawContainer>>,
    // A side-car is one of these that goes on running.
    init_containers: Option<Vec<RawContainer>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawContainer {
    name: String,
    ports: Option<Vec<RawPort>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPort {
    name: Option<String>,
    container_port: u16,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct RawPodStatus {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    conditions: Option<Vec<RawCondition>>,
    container_statuses: Option<Vec<RawContainerStatus>>,
    init_container_statuses: Option<Vec<RawContainerStatus>>,
}

#[derive(Deserialize)]
struct RawCondition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RawContainerStatus {
    name: String,
    #[serde(rename = "containerID")]
    id: Option<String>,
}

impl RawPod {
    fn read(self) -> Result<Pod, BadApiAnswer> {
        let Self { metadata, spec, status } = self;
        if metadata.uid.is_empty() {
            return Err(BadApiAnswer::Without("uid"));
        }
        let containers = spec.containers.into_iter().chain(spec.init_containers).flatten();
        let ports =
            containers.flat_map(|it| {
                let container = it.name;
                it.ports.into_iter().flatten().map(move |RawPort { name, container_port }| {
                    PodPort { name, number: container_port, container: container.clone() }
                })
            });
        let running = status.container_statuses.into_iter().chain(status.init_container_statuses);
        let running = running.flatten().filter_map(|it| Some((it.name, it.id?)));
        let is_true = |it: &RawCondition| it.kind == "Ready" && it.status == "True";
        Ok(Pod {
            uid: metadata.uid,
            name: metadata.name,
            version: metadata.resource_version,
            labels: metadata.labels.unwrap_or_default(),
            annotations: metadata.annotations.unwrap_or_default(),
            node: spec.node_name,
            ip: status.pod_ip.and_then(|it| it.parse().ok()),
            ports: ports.collect(),
            containers: running.collect(),
            is_ready: status.conditions.iter().flatten().any(is_true),
            is_ending: metadata.deletion_timestamp.is_some(),
            is_over: matches!(status.phase.as_str(), "Succeeded" | "Failed"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const POD: &str = r#"{"metadata":{"uid":"u1","name":"vllm-0","resourceVersion":"7","labels":{"app":"vllm"},
        "annotations":{"cleave/weight":" 2 "},"managedFields":[{"x":[1,2]}]},
        "spec":{"nodeName":"n1","containers":[{"name":"vllm","ports":[{"name":"http","containerPort":8000}]}],
                "initContainers":[{"name":"proxy","restartPolicy":"Always","ports":[{"containerPort":9000}]}]},
        "status":{"phase":"Running","podIP":"10.0.0.7","conditions":[{"type":"Ready","status":"True"}],
                  "containerStatuses":[{"name":"vllm","containerID":"containerd://a"}]}}"#;

    #[test]
    fn a_page_is_read_with_what_matters_of_each_pod() {
        let page =
            format!(r#"{{"metadata":{{"resourceVersion":"9","continue":"c"}},"items":[{POD}]}}"#);
        let page = read_pods(page.as_bytes()).unwrap();
        assert_eq!((page.version.as_str(), page.rest.as_deref()), ("9", Some("c")));
        let pod = &page.pods[0];
        assert_eq!((pod.uid.as_str(), pod.name.as_str()), ("u1", "vllm-0"));
        assert_eq!((pod.ip, pod.is_ready), ("10.0.0.7".parse().ok(), true));
        assert!(!pod.is_ending && !pod.is_over);
        assert_eq!(pod.ports[0].name.as_deref(), Some("http"));
        assert_eq!((pod.ports[1].number, pod.ports[1].container.as_str()), (9000, "proxy"));
        assert_eq!(pod.containers["vllm"], "containerd://a");
        assert_eq!((pod.says("cleave/weight"), pod.says("app")), (Some("2"), Some("vllm")));
    }

    #[test]
    fn every_line_of_a_watch_is_a_change() {
        let change = |kind: &str, object: &str| {
            read_pod_change(format!(r#"{{"type":"{kind}","object":{object}}}"#).as_bytes())
        };
        assert!(matches!(change("ADDED", POD), Ok(PodChange::Put(it)) if it.uid == "u1"));
        assert!(matches!(change("MODIFIED", POD), Ok(PodChange::Put(_))));
        let gone = PodChange::Gone { uid: "u1".to_owned(), version: "7".to_owned() };
        assert_eq!(change("DELETED", POD).unwrap(), gone);
        let mark = change("BOOKMARK", r#"{"kind":"Pod","metadata":{"resourceVersion":"12"}}"#);
        assert_eq!(mark.unwrap(), PodChange::Mark { version: "12".to_owned() });
        let ended = change("ERROR", r#"{"kind":"Status","code":410,"message":"too old"}"#).unwrap();
        assert!(matches!(ended, PodChange::Ended(it) if it.code == 410 && it.message == "too old"));
    }

    #[test]
    fn what_is_no_answer_is_refused_whole() {
        for text in ["", "{}", "[]", "<html>", r#"{"metadata":{},"items":[]}"#] {
            assert!(read_pods(text.as_bytes()).is_err(), "{text}");
        }
        let nameless = r#"{"metadata":{"resourceVersion":"1"},"items":[{"metadata":{}}]}"#;
        assert!(matches!(read_pods(nameless.as_bytes()), Err(BadApiAnswer::Without("uid"))));
        assert!(read_pod_change(br#"{"type":"MOVED","object":{}}"#).is_err());
        assert!(read_pods(br#"{"metadata":{"resourceVersion":"1"},"items":null}"#).is_ok());
    }

    #[test]
    fn nodes_are_read_by_their_zone() {
        let page = r#"{"metadata":{"resourceVersion":"1"},"items":[
            {"metadata":{"name":"n1","labels":{"topology.kubernetes.io/zone":"a"}}},
            {"metadata":{"name":"n2"}}]}"#;
        let (zones, rest) = read_node_zones(page.as_bytes()).unwrap();
        assert_eq!((zones, rest), ([("n1".to_owned(), "a".to_owned())].into(), None));
    }
}
