//! What a pod is to a pool: a replica with its address, weight, class and zone, or nothing, and why. A function of
//! the pod and the settings, so that every case is a line of a table.

use std::net::IpAddr;
use std::sync::Arc;

use cleave_core::protocol::{Pod, PodPort};

use super::settings::{EnginePort, KubernetesSettings};
use crate::discovery::found::FoundReplica;

/// The largest weight that is believed; the same as in the configuration.
const WEIGHT_MAX: f64 = 1000.0;

/// A pod that is, or may become, a replica.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct PodMember {
    pub(super) found: FoundReplica,
    /// What it says that cannot be meant.
    pub(super) doubt: Option<&'static str>,
}

/// Why a pod is no replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Absence {
    /// Its end was ordered: what runs there finishes, and nothing new is sent.
    Ending,
    /// It has ended.
    Over,
    /// It has no address yet.
    NoAddress,
    /// None of its containers has the port.
    NoPort,
    /// It serves other models than the pool.
    OtherModel,
    /// Its role takes no requests of clients.
    OtherRole,
}

/// Says what a pod is to the pool.
pub(super) fn member(pod: &Pod, settings: &KubernetesSettings) -> Result<PodMember, Absence> {
    let keys = &settings.keys;
    if pod.is_ending {
        return Err(Absence::Ending);
    }
    if pod.is_over {
        return Err(Absence::Over);
    }
    if !serves_any(pod.says(&keys.model), &settings.models) {
        return Err(Absence::OtherModel);
    }
    if pod.says(&keys.role).is_some_and(|role| settings.roles.iter().all(|it| it != role)) {
        return Err(Absence::OtherRole);
    }
    let ip = pod.ip.ok_or(Absence::NoAddress)?;
    let (number, container) = port(pod, &settings.port).ok_or(Absence::NoPort)?;
    let scheme = if settings.is_secure { "https" } else { "http" };
    let host = match ip {
        IpAddr::V4(it) => it.to_string(),
        IpAddr::V6(it) => format!("[{it}]"),
    };
    // An address and a port always are an origin.
    let origin = format!("{scheme}://{host}:{number}").parse().map_err(|_| Absence::NoAddress)?;
    let (weight, doubt) = weight(pod.says(&keys.weight));
    let owned = |it: Option<&str>| it.map(str::to_owned);
    let process = container.and_then(|it| pod.containers.get(it)).map(|it| Arc::from(it.as_str()));
    let found = FoundReplica {
        origin,
        weight,
        class: owned(pod.says(&keys.class)),
        zone: owned(pod.says(&keys.zone).or_else(|| pod.zone())),
        unit: Some(Arc::from(pod.uid.as_str())),
        name: Some(Arc::from(pod.name.as_str())),
        process,
        is_ready: pod.is_ready,
    };
    Ok(PodMember { found, doubt })
}

/// Tells whether a pod that lists models, with commas between them, has one of the pool's.
fn serves_any(listed: Option<&str>, models: &[String]) -> bool {
    let Some(listed) = listed.filter(|_| !models.is_empty()) else { return true };
    listed.split(',').any(|it| models.iter().any(|model| model == it.trim()))
}

/// Finds the port and the container that has it. A number need not be listed: then it is the first container's.
fn port<'a>(pod: &'a Pod, wanted: &EnginePort) -> Option<(u16, Option<&'a str>)> {
    let is_it = |it: &&PodPort| match wanted {
        EnginePort::Named(name) => it.name.as_ref() == Some(name),
        EnginePort::Numbered(number) => it.number == *number,
    };
    match (pod.ports.iter().find(is_it), wanted) {
        (Some(port), _) => Some((port.number, Some(&port.container))),
        (None, EnginePort::Numbered(number)) => {
            Some((*number, pod.containers.keys().next().map(String::as_str)))
        }
        (None, EnginePort::Named(_)) => None,
    }
}

fn weight(said: Option<&str>) -> (f64, Option<&'static str>) {
    let Some(said) = said else { return (1.0, None) };
    match said.parse::<f64>() {
        Ok(weight) if (0.0..=WEIGHT_MAX).contains(&weight) => (weight, None),
        Ok(_) | Err(_) => {
            (1.0, Some("its weight is not a number from 0 to 1000, and is taken as 1"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ready pod with a port named `http`, then changed.
    fn pod(change: impl FnOnce(&mut Pod)) -> Pod {
        let mut pod = Pod {
            uid: "u1".to_owned(),
            name: "vllm-0".to_owned(),
            ip: "10.0.0.7".parse().ok(),
            ports: vec![PodPort {
                name: Some("http".to_owned()),
                number: 8000,
                container: "vllm".to_owned(),
            }],
            containers: [("vllm".to_owned(), "containerd://a".to_owned())].into(),
            is_ready: true,
            ..Pod::default()
        };
        change(&mut pod);
        pod
    }

    fn annotated(pairs: &[(&str, &str)]) -> Pod {
        let pairs = pairs.iter().map(|it| (it.0.to_owned(), it.1.to_owned()));
        pod(|it| it.annotations = pairs.collect())
    }

    #[test]
    fn every_pod_is_a_replica_or_nothing_and_the_table_says_which() {
        let plain = KubernetesSettings::default();
        let of_models = KubernetesSettings {
            models: vec!["org/llama".to_owned(), "qwen".to_owned()],
            ..KubernetesSettings::default()
        };
        let port = |port| KubernetesSettings { port, ..KubernetesSettings::default() };
        let numbered = port(EnginePort::Numbered(9000));
        let metrics = port(EnginePort::Named("metrics".to_owned()));
        let prefills = KubernetesSettings {
            roles: vec!["prefill".to_owned()],
            ..KubernetesSettings::default()
        };
        let secure = KubernetesSettings { is_secure: true, ..KubernetesSettings::default() };
        let http = Ok("http://10.0.0.7:8000");
        let model = |text: &str| annotated(&[("cleave/model", text)]);
        let role = |text: &str| annotated(&[("cleave/role", text)]);
        let table = [
            ("plain", pod(|_| ()), &plain, http),
            ("not ready", pod(|it| it.is_ready = false), &plain, http),
            ("ending", pod(|it| it.is_ending = true), &plain, Err(Absence::Ending)),
            ("over", pod(|it| it.is_over = true), &plain, Err(Absence::Over)),
            ("no address", pod(|it| it.ip = None), &plain, Err(Absence::NoAddress)),
            ("IPv6", pod(|it| it.ip = "fd00::7".parse().ok()), &plain, Ok("http://[fd00::7]:8000")),
            ("other port", pod(|_| ()), &metrics, Err(Absence::NoPort)),
            ("unlisted number", pod(|_| ()), &numbered, Ok("http://10.0.0.7:9000")),
            ("TLS", pod(|_| ()), &secure, Ok("https://10.0.0.7:8000")),
            ("its model", model("org/llama"), &of_models, http),
            ("one of its models", model("other, qwen"), &of_models, http),
            ("no model", pod(|_| ()), &of_models, http),
            ("another model", model("mistral"), &of_models, Err(Absence::OtherModel)),
            ("any model", model("mistral"), &plain, http),
            ("decode", role("decode"), &plain, http),
            ("prefill", role("prefill"), &plain, Err(Absence::OtherRole)),
            ("prefill, wanted", role("prefill"), &prefills, http),
        ];
        for (case, pod, settings, want) in table {
            let got = member(&pod, settings);
            let got = got.as_ref().map(|it| it.found.origin.as_str()).map_err(|it| *it);
            assert_eq!(got, want, "{case}");
        }
    }

    #[test]
    fn labels_and_annotations_say_weight_class_and_zone() {
        let settings = KubernetesSettings::default();
        let found = |pod: &Pod| member(pod, &settings).unwrap().found;
        let zone = ("topology.kubernetes.io/zone", "a");
        let it = found(&annotated(&[("cleave/weight", "0.5"), ("cleave/class", "h100"), zone]));
        assert!((it.weight - 0.5).abs() < 1e-9);
        assert_eq!((it.class.as_deref(), it.zone.as_deref()), (Some("h100"), Some("a")));
        assert_eq!(
            (it.unit.as_deref(), it.process.as_deref()),
            (Some("u1"), Some("containerd://a"))
        );
        let mut labelled = annotated(&[zone]);
        labelled.labels.insert("cleave/zone".to_owned(), "rack-7".to_owned());
        assert_eq!(found(&labelled).zone.as_deref(), Some("rack-7"));
        let keys = PodKeys { weight: "share".to_owned(), ..PodKeys::default() };
        let renamed = KubernetesSettings { keys, ..KubernetesSettings::default() };
        let it = member(&annotated(&[("share", "3")]), &renamed).unwrap().found;
        assert!((it.weight - 3.0).abs() < 1e-9);
    }

    #[test]
    fn a_weight_that_is_none_is_one_and_said() {
        for said in ["heavy", "-1", "NaN", "1e9"] {
            let it = member(&annotated(&[("cleave/weight", said)]), &KubernetesSettings::default());
            let it = it.unwrap();
            assert!((it.found.weight - 1.0).abs() < 1e-9 && it.doubt.is_some(), "{said}");
        }
    }

    use super::super::settings::PodKeys;
}
