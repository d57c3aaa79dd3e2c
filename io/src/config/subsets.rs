//! What does not go together in the sections about subsets. Single values were checked before. The
//! planner would take the lesser of two bounds that contradict each other without a word, so they
//! are refused here, where the operator still reads the answer.

use std::collections::BTreeMap;

use super::problem::{Findings, Wrong};
use super::raw::{Slots, SubsetsSection, TextValue, WorkloadSection};

/// Checks that every workload is listed once and that no subset must be larger than it may be.
pub(super) fn check(
    subsets: &SubsetsSection,
    workloads: &Slots<WorkloadSection>,
    findings: &mut Findings,
) {
    check_bounds("subsets", [(subsets.floor, "floor"), (subsets.cap, "cap")], findings);
    let mut seen = BTreeMap::new();
    for (at, workload) in workloads.iter().enumerate() {
        let Some(it) = workload else { continue };
        let path = format!("workloads[{at}]");
        let id = it.workload.0.write();
        if let Some(first) = seen.get(&id) {
            let what = format!("{id} is already workloads[{first}]");
            let wrong = Wrong::new(what, "list a workload once");
            findings.report(&format!("{path}.workload"), wrong);
        } else {
            seen.insert(id, at);
        }
        // Without any of its own it has the usual bounds, which were judged above.
        if it.floor.is_some() || it.cap.is_some() {
            let floor = it.floor.map_or((subsets.floor, "subsets.floor"), |_| (it.floor, "floor"));
            let cap = it.cap.map_or((subsets.cap, "subsets.cap"), |_| (it.cap, "cap"));
            check_bounds(&path, [floor, cap], findings);
        }
    }
}

/// Checks a floor and a cap, each with the key that gave it, as seen from the table at `path`.
fn check_bounds(path: &str, bounds: [(Option<u32>, &str); 2], findings: &mut Findings) {
    if let [(Some(floor), floor_key), (Some(cap), cap_key)] = bounds
        && cap < floor
    {
        // A table is blamed for what it says itself, not for what it takes over.
        let (key, what, remedy) = if floor_key == "floor" {
            let what = format!("is {floor}, above {cap_key}, which is {cap}");
            (floor_key, what, format!("give at most {cap}, or raise {cap_key}"))
        } else {
            let what = format!("is {cap}, below {floor_key}, which is {floor}");
            (cap_key, what, format!("give at least {floor}, or a floor of its own"))
        };
        findings.report(&format!("{path}.{key}"), Wrong::new(what, remedy));
    }
}
