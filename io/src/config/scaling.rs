//! How many replicas a pool may have, from what the user said to what the router relies on.

use std::ffi::OsString;

use super::problem::{Findings, Wrong, join};
use super::raw::{PoolSection, ScalingSection};
use crate::discovery::Source;
use crate::proxy::{Actuator, KubernetesScale, ScaleCommand, ScaleMode, ScalingSettings};

/// What the variables of the router begin with.
const OWN_PREFIX: &str = "CLEAVE__";

/// Settles the number of replicas of a pool; `path` is the pool's, and `found` where its replicas are found.
pub(super) fn settle(
    path: &str,
    pool: &mut PoolSection,
    found: Option<&Source>,
    findings: &mut Findings,
) -> Option<ScalingSettings> {
    let raw = pool.scaling.take()?;
    let path = join(path, "scaling");
    let mut report = |key: &str, what: &str, remedy: &str| {
        findings.report(&join(&path, key), Wrong::new(what.to_owned(), remedy.to_owned()));
    };
    if raw.max.is_none() {
        report("max", "is missing", "say how many replicas there may be at most: max = 8");
    }
    let max = raw.max.unwrap_or(raw.min.max(1));
    if max < raw.min {
        report("min", "is more than max", "give at most max");
    }
    if raw.min == 0 && pool.models.is_empty() {
        let what = "is 0, but the pool does not list its models, and without a replica there is none to ask";
        report("min", what, "list the pool's models, or give at least 1");
    }
    let is_acting = raw.mode.0 != ScaleMode::Advise;
    if is_acting && found.is_none() {
        let what = "adds and removes replicas, but the pool has no `discover` to find them by";
        report("mode", what, "add discover to the pool, or use mode = \"advise\"");
    }
    let has_command = !raw.command.is_empty();
    if has_command != (raw.mode.0 == ScaleMode::Command) {
        let (what, remedy) = if has_command {
            ("is given, but not used", "add mode = \"command\"")
        } else {
            (
                "is missing",
                "give the program and its arguments: command = [\"/usr/local/bin/scale\"]",
            )
        };
        report("command", what, remedy);
    }
    let has_target = raw.target.is_some();
    if has_target != (raw.mode.0 == ScaleMode::Kubernetes) {
        let (what, remedy) = if has_target {
            ("is given, but not used", "add mode = \"kubernetes\"")
        } else {
            ("is missing", "say what is scaled: target = \"deployment/NAME\"")
        };
        report("target", what, remedy);
    }
    let (min, price_per_hour) = (raw.min, raw.price_per_hour);
    let start_up = raw.start_up.as_ref().map(|it| it.0);
    let actuator = settle_actuator(raw, found, &mut report);
    Some(ScalingSettings { min, max, start_up, price_per_hour, actuator })
}

fn settle_actuator(
    raw: ScalingSection,
    found: Option<&Source>,
    report: &mut impl FnMut(&str, &str, &str),
) -> Actuator {
    match raw.mode.0 {
        ScaleMode::Advise => Actuator::None,
        ScaleMode::Command => {
            let mut words = raw.command.into_iter().flatten();
            let program = words.next().unwrap_or_default();
            Actuator::Command(ScaleCommand {
                program,
                arguments: words.collect(),
                timeout: raw.command_timeout.0,
                hidden: own_variables(),
            })
        }
        ScaleMode::Kubernetes => {
            let pods = match found {
                Some(Source::Kubernetes(it)) => Some(it),
                _ => None,
            };
            if pods.is_none() && found.is_some() {
                let what = "scales pods, but the pool's replicas are found otherwise";
                report("mode", what, "use discover = \"kubernetes\"");
            }
            let configs = pods.map_or(&[][..], |it| &it.kubeconfigs[..]);
            if 1 < configs.len() {
                let what = "scales one cluster, but the pool's replicas are in several";
                report("mode", what, "make a pool of each cluster, or use mode = \"advise\"");
            }
            match raw.target {
                None => Actuator::None,
                Some(target) => Actuator::Kubernetes(KubernetesScale {
                    target: target.0,
                    namespace: pods.and_then(|it| it.namespace.clone()),
                    kubeconfig: configs.first().cloned(),
                }),
            }
        }
    }
}

/// Names the variables that are settings of the router, and those that could be.
fn own_variables() -> Vec<OsString> {
    let names = std::env::vars_os().map(|it| it.0);
    names.filter(|it| it.to_str().is_none_or(|it| it.starts_with(OWN_PREFIX))).collect()
}
