//! Pods that are replicas, from what the user said to what discovery relies on.

use super::problem::{Findings, Wrong, join};
use super::raw::{KubernetesSection, PodKeysSection, PoolSection};
use crate::discovery::{KubernetesSettings, PodKeys, Source};

/// Settles where more replicas of a pool are found; `path` is the pool's.
pub(super) fn settle_source(
    path: &str,
    pool: &mut PoolSection,
    findings: &mut Findings,
) -> Option<Source> {
    let (section, source) = (pool.kubernetes.take(), pool.discover.take().map(|it| it.0));
    if !matches!(source, Some(Source::Kubernetes(_))) {
        if section.is_some() {
            let remedy = "add discover = \"kubernetes\" to the pool";
            let wrong = Wrong::new("is given, but not used", remedy);
            findings.report(&join(path, "kubernetes"), wrong);
        }
        return source;
    }
    let models = pool.models.iter().flatten().map(|it| it.0.clone()).collect();
    let settings = settle(&join(path, "kubernetes"), section.unwrap_or_default(), models, findings);
    Some(Source::Kubernetes(Box::new(settings)))
}

fn settle(
    path: &str,
    raw: KubernetesSection,
    models: Vec<String>,
    findings: &mut Findings,
) -> KubernetesSettings {
    let KubernetesSection {
        selector,
        inference_pool,
        namespace,
        port,
        https,
        kubeconfigs,
        roles,
        node_zones,
        keys,
    } = raw;
    if let Some(pool) = &inference_pool {
        if !selector.trim().is_empty() {
            let remedy = "leave out selector or inference_pool";
            let what = "is given twice: the InferencePool has one";
            findings.report(&join(path, "selector"), Wrong::new(what, remedy));
        }
        if !pool.split('.').all(|it| !it.is_empty() && is_name(it)) {
            let remedy = "use lower-case letters, digits, hyphens and dots";
            findings.report(
                &join(path, "inference_pool"),
                Wrong::new("is no name of an object", remedy),
            );
        }
    } else if selector.trim().is_empty() {
        let what = "is missing: every pod of the namespace would be a replica, the router too";
        findings
            .report(&join(path, "selector"), Wrong::new(what, "give one: selector = \"app=vllm\""));
    }
    if namespace.as_ref().is_some_and(|it| !is_name(it)) {
        let remedy = "use lower-case letters, digits and hyphens";
        findings.report(&join(path, "namespace"), Wrong::new("is not a namespace", remedy));
    }
    let PodKeysSection { weight, class, zone, model, role } = keys;
    KubernetesSettings {
        kubeconfigs: kubeconfigs.into_iter().flatten().collect(),
        namespace,
        selector: selector.trim().to_owned(),
        port: port.0,
        inference_pool,
        is_secure: https,
        models,
        roles: roles.into_iter().flatten().collect(),
        is_early: false,
        node_zones,
        keys: PodKeys { weight, class, zone, model, role },
    }
}

/// Tells whether a text has only the letters that names of Kubernetes have.
pub(super) fn is_name(text: &str) -> bool {
    let is_part = |it: u8| it.is_ascii_lowercase() || it.is_ascii_digit() || it == b'-';
    text.bytes().all(is_part)
}
