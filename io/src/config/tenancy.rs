//! The line, classes and tenants, from what the user said to what the other rooms rely on.

use std::collections::BTreeMap;
use std::time::Duration;

use cleave_core::brain::LineSettings;
use cleave_core::queue::{self, Classes, GateSettings, Limits, Weight, Work};

use super::problem::{Findings, Wrong, join, plain};
use super::raw::{Class, Contract, Keys, Line, Slots, Tenant};
use crate::proxy::{TenantSettings, Tenants};

const MIB: usize = 1 << 20;

/// Settles who waits where; the default classes stand where none is listed.
pub(super) fn settle_line(
    raw: Line,
    classes: Slots<Class>,
    findings: &mut Findings,
) -> LineSettings {
    let listed: Vec<queue::Class> =
        classes.into_iter().flatten().filter_map(settle_class).collect();
    let listed = if listed.is_empty() { usual_classes() } else { listed };
    let classes = Classes::new(listed, &raw.default_class).unwrap_or_else(|error| {
        findings
            .report("classes", Wrong::new(error.to_string(), "compare with the reference page"));
        Classes::default()
    });
    let bytes_max = raw.waiting_mib_max.saturating_mul(MIB);
    LineSettings {
        holds: raw.hold,
        gates: raw.gate,
        limits: queue::LineSettings { count_max: raw.length_max, bytes_max },
        gate: GateSettings { kv_share: raw.kv_share, ..GateSettings::default() },
        classes,
    }
}

fn usual_classes() -> Vec<queue::Class> {
    Classes::default().iter().map(|it| it.1.clone()).collect()
}

/// Settles one class; a weight out of its range was reported before.
fn settle_class(raw: Class) -> Option<queue::Class> {
    Some(queue::Class {
        name: raw.name,
        weight: Weight::new(raw.weight)?,
        first_token: raw.first_token.map(|it| it.0),
        per_token: raw.per_token.map(|it| it.0),
        wait_max: raw.wait_max.0,
    })
}

/// Settles who is who, and reports names, keys, classes and pools that do not go together.
pub(super) fn settle_tenants<'a, P: Iterator<Item = &'a str>>(
    raw: Slots<Tenant>,
    keys: Keys,
    classes: &Classes,
    pools: impl Fn() -> P,
    findings: &mut Findings,
) -> Tenants {
    let mut names = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    let mut settled = Vec::with_capacity(raw.len());
    for (at, tenant) in raw.into_iter().enumerate() {
        let Some(tenant) = tenant else { continue };
        if let Some(first) = names.insert(tenant.name.clone(), at) {
            let what = format!("{} is also the name of tenants[{first}]", plain(&tenant.name));
            let wrong = Wrong::new(what, "give every tenant a name of its own");
            findings.report(&format!("tenants[{at}].name"), wrong);
        }
        for (index, key) in tenant.key_sha256.iter().enumerate() {
            let Some(key) = key else { continue };
            if let Some(first) = hashes.insert(key.0.0, at) {
                let wrong = Wrong::new(
                    format!("is already a key of tenants[{first}]"),
                    "give every tenant keys of its own",
                );
                findings.report(&format!("tenants[{at}].key_sha256[{index}]"), wrong);
            }
        }
        for name in tenant.pools.keys().filter(|name| pools().all(|it| it != name.as_str())) {
            let wrong = Wrong::new("is not the name of a pool", "name one of the pools");
            findings.report(&join(&format!("tenants[{at}].pools"), name), wrong);
        }
        settled.push(settle_tenant(tenant, at, classes, findings));
    }
    Tenants::new(settled, keys.unknown.0.0)
}

fn settle_tenant(
    raw: Tenant,
    at: usize,
    classes: &Classes,
    findings: &mut Findings,
) -> TenantSettings {
    let mut allowed = Vec::with_capacity(raw.classes.len());
    for (index, name) in raw.classes.iter().enumerate() {
        if let Some(class) = classes.find(name) {
            allowed.push(class);
            continue;
        }
        let known: Vec<&str> = classes.iter().map(|it| it.1.name.as_str()).collect();
        let remedy = format!("give one of {}", known.join(", "));
        let path = format!("tenants[{at}].classes[{index}]");
        findings.report(&path, Wrong::new("is not a class", remedy));
    }
    TenantSettings {
        name: raw.name,
        keys: raw.key_sha256.into_iter().flatten().map(|it| it.0.0).collect(),
        classes: allowed,
        weight: Weight::new(raw.weight).unwrap_or(Weight::ONE),
        limits: settle_contract(&raw.contract),
        pool_limits: raw
            .pools
            .iter()
            .map(|(name, it)| (name.clone(), settle_contract(it)))
            .collect(),
    }
}

fn settle_contract(raw: &Contract) -> Limits {
    Limits {
        work_per_min: raw.mu_per_min.map(Work::from_mu),
        tokens_per_min: raw.tokens_per_min,
        requests_per_min: raw.requests_per_min,
        burst: raw.burst.as_ref().map_or(Duration::ZERO, |it| it.0),
    }
}
