//! The line, classes and tenants, from what the user said to what the other rooms rely on.

use std::collections::BTreeMap;
use std::time::Duration;

use cleave_core::brain::LineSettings;
use cleave_core::domain::Promise;
use cleave_core::queue::{self, CLASSES_MAX, Classes, GateSettings, Limits, Weight, Work};

use super::problem::{Findings, Wrong, join, plain};
use super::raw::{ClassSection, ContractSection, Keys, LineSection, Slots, TenantSection};
use crate::proxy::{TenantSettings, Tenants, UnknownKeys};

const MIB: usize = 1 << 20;

/// Settles the line and its classes; the default classes stand where none is listed.
pub(super) fn settle_line(
    raw: LineSection,
    classes: Slots<ClassSection>,
    findings: &mut Findings,
) -> LineSettings {
    let classes = settle_classes(classes, &raw.default_class, findings);
    let bytes_max = raw.waiting_mib_max.saturating_mul(MIB);
    LineSettings {
        holds: raw.hold,
        gates: raw.gate,
        limits: queue::QueueLimits { count_max: raw.length_max, bytes_max },
        gate: GateSettings { kv_share: raw.kv_share, ..GateSettings::default() },
        classes,
    }
}

/// Settles the classes that have a name of their own, and reports the others.
fn settle_classes(raw: Slots<ClassSection>, default: &str, findings: &mut Findings) -> Classes {
    let given = raw.len();
    let mut names = BTreeMap::new();
    let mut listed = Vec::with_capacity(given);
    for (at, class) in raw.into_iter().enumerate() {
        let Some(class) = class.and_then(settle_class) else { continue };
        let path = format!("classes[{at}].name");
        // Requests may write a name as they like, so names differ by more than their case.
        let name = class.name.to_ascii_lowercase();
        if let Err(error) = Classes::new(vec![class.clone()], &class.name) {
            findings.report(&path, Wrong::new(error, "rename it, for example to \"my-class\""));
        } else if let Some(first) = names.get(&name) {
            let what = format!("{} is also the name of classes[{first}]", plain(&class.name));
            findings.report(&path, Wrong::new(what, "give every class a name of its own"));
        } else {
            names.insert(name, at);
            listed.push(class);
        }
    }
    if CLASSES_MAX < given {
        let remedy = format!("keep at most {CLASSES_MAX}");
        findings.report("classes", Wrong::new(format!("there are {given} classes"), remedy));
    }
    let is_whole = listed.len() == given;
    if listed.is_empty() {
        listed = Classes::default().iter().map(|it| it.1.clone()).collect();
    }
    listed.truncate(CLASSES_MAX);
    Classes::new(listed.clone(), default).unwrap_or_else(|_| {
        // A class that was refused may well be the one that is meant.
        if is_whole && !findings.is_refused("line.default_class") {
            let names: Vec<&str> = listed.iter().map(|it| it.name.as_str()).collect();
            let what = format!("there is no class {}", plain(default));
            let remedy = format!("give one of {}", names.join(", "));
            findings.report("line.default_class", Wrong::new(what, remedy));
        }
        let first = listed.first().map(|it| it.name.clone()).unwrap_or_default();
        Classes::new(listed, &first).unwrap_or_default()
    })
}

/// Settles one class; a weight out of its range was reported before.
fn settle_class(raw: ClassSection) -> Option<queue::Class> {
    Some(queue::Class {
        name: raw.name,
        weight: Weight::new(raw.weight)?,
        promise: Promise {
            first_token: raw.first_token.map(|it| it.0),
            token_gap: raw.token_gap.map(|it| it.0),
        },
        wait_max: raw.wait_max.0,
    })
}

/// Settles the tenants, and reports names, keys, classes and pools that do not go together.
pub(super) fn settle_tenants<'a, P: Iterator<Item = &'a str>>(
    raw: Slots<TenantSection>,
    keys: Keys,
    classes: &Classes,
    pools: impl Fn() -> P,
    findings: &mut Findings,
) -> Tenants {
    let mut names = BTreeMap::new();
    let mut hashes = BTreeMap::new();
    let mut settled = Vec::with_capacity(raw.len());
    check_unknown(&raw, &keys, findings);
    for (at, tenant) in raw.into_iter().enumerate() {
        let Some(tenant) = tenant else { continue };
        if let Some(first) = names.insert(tenant.name.clone(), at) {
            let what = format!("{} is also the name of tenants[{first}]", plain(&tenant.name));
            let wrong = Wrong::new(what, "give every tenant a name of its own");
            findings.report(&format!("tenants[{at}].name"), wrong);
        }
        check_tenant(&tenant, at, findings);
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
    Tenants::new(settled, keys.unknown.map_or(UnknownKeys::Refuse, |it| it.0))
}

/// Checks that a file which refuses unknown keys lists some known ones.
fn check_unknown(tenants: &Slots<TenantSection>, keys: &Keys, findings: &mut Findings) {
    let refuses = keys.unknown.as_ref().is_some_and(|it| it.0 == UnknownKeys::Refuse);
    if refuses && tenants.is_empty() && !findings.is_refused("tenants") {
        let what = "refuses nothing, because without tenants every key is served";
        let remedy = "add [[tenants]] with the keys that may pass, or remove it";
        findings.report("keys.unknown", Wrong::new(what, remedy));
    }
}

/// Checks one tenant's entry: that a client can be it, and that metrics can tell it.
fn check_tenant(tenant: &TenantSection, at: usize, findings: &mut Findings) {
    let reserved = match tenant.name.as_str() {
        "default" => Some("requests without a tenant"),
        "other" => Some("the tenants beyond the first hundred"),
        _ => None,
    };
    if let Some(other) = reserved {
        let what = format!("is what metrics call {other}");
        findings.report(&format!("tenants[{at}].name"), Wrong::new(what, "choose another name"));
    }
    let path = format!("tenants[{at}].key_sha256");
    if tenant.key_sha256.is_empty() && !findings.is_refused(&path) {
        let remedy = "give the SHA-256 of at least one: printf %s KEY | sha256sum";
        findings.report(&path, Wrong::new("has no key, so no request is of this tenant", remedy));
    }
}

fn settle_tenant(
    raw: TenantSection,
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

fn settle_contract(raw: &ContractSection) -> Limits {
    Limits {
        work_per_min: raw.mu_per_min.map(Work::from_mu),
        tokens_per_min: raw.tokens_per_min,
        requests_per_min: raw.requests_per_min,
        burst: raw.burst.as_ref().map_or(Duration::ZERO, |it| it.0),
        is_hard: raw.hard,
    }
}
