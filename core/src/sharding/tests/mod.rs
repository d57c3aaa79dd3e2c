//! What the planner promises as a whole; each file one kind of promise.

mod chaos;
mod deeds;
mod laws;
mod restart;
mod step;

use std::sync::Arc;

use super::*;
use crate::domain::{Moment, Place};

/// A replica with a name that sorts by number.
fn member(number: u64, capacity: f64) -> FleetMember {
    FleetMember::new(Place(number + 1), capacity)
}

fn fleet(replicas: u64) -> Vec<FleetMember> {
    (0..replicas).map(|it| member(it, 1.0)).collect()
}

fn empty() -> Arc<Assignment> {
    Arc::new(Assignment::empty())
}

fn uniform(load: f64) -> LoadMap {
    LoadMap::new(&[RangeLoad { slice: Slice::ALL, load, state: 0.0 }], &[])
}

/// Settings without limits on churn, for tests of balance alone.
fn eager() -> PlannerSettings {
    let cool_down = std::time::Duration::ZERO;
    PlannerSettings { churn_max: f64::INFINITY, cool_down, ..PlannerSettings::default() }
}

/// Plans until nothing changes; returns the last plan.
fn settle(
    planner: &Planner,
    base: &Arc<Assignment>,
    fleet: &[FleetMember],
    rules: &[Rule],
    load: &LoadMap,
) -> Plan {
    let mut plan = planner.plan(Moment::ZERO, base, fleet, rules, load);
    for _ in 0..20 {
        let next = planner.plan(Moment::ZERO, &plan.assignment, fleet, rules, load);
        if Arc::ptr_eq(&next.assignment, &plan.assignment) {
            return plan;
        }
        plan = next;
    }
    panic!("the planner does not come to rest");
}
