//! How fast a step of load is absorbed, with the measuring in the loop: a quarter of the key space
//! becomes four times as hot, and half of the excess must be gone within fifteen seconds.

use std::time::Duration;

use crate::domain::SliceKey;

use super::*;

const REQUESTS_PER_S: u64 = 400;
const PLAN_EVERY_MS: u64 = 2000;

/// The true load by replica, given the holders.
fn excess(lookup: &Lookup, fleet: &[FleetMember], hot: f64) -> f64 {
    let (mut loads, mut total) = (vec![0.0; fleet.len()], 0.0);
    for held in lookup.assignment().iter() {
        let quarter = Slice { low: 0, high: u64::MAX / 4 };
        let inside = quarter.overlap(&held.slice).map_or(0.0, |it| it.width());
        let load = inside * hot + (held.slice.width() - inside);
        total += load;
        for place in held.holders {
            let at = fleet.iter().position(|it| it.place == *place).unwrap();
            loads[at] += load / f64::from(u32::try_from(held.holders.len()).unwrap());
        }
    }
    let mean = total / f64::from(u32::try_from(fleet.len()).unwrap());
    loads.iter().map(|it| (it - mean).max(0.0)).sum::<f64>() / total
}

#[test]
fn a_step_of_load_is_half_absorbed_within_fifteen_seconds() {
    let fleet: Vec<FleetMember> = (0..8).map(|it| member(it, 120.0)).collect();
    let roster = || fleet.iter().map(|it| (it.place, it.capacity));
    let planner = Planner::new(PlannerSettings::default());
    // By ranges, as a static split of the key space would: the quarter is held by two replicas.
    let rows = (0..64_u64).map(|it| Row {
        slice: Slice { low: it << 58, high: (it << 58) + ((1 << 58) - 1) },
        holders: vec![Place(it / 8 + 1)],
        why: SliceReason::First,
        since: 0,
        settled_at: Moment::ZERO,
        previous: None,
    });
    let base = Assignment::from_rows(Generation::default(), rows.collect::<Vec<_>>()).unwrap();
    let mut lookup = Lookup::new(Arc::new(base), roster());
    let mut meter = LoadMeter::new(MeterSettings::default());
    meter.reshape(Moment::ZERO, &lookup);
    let (step_at_ms, mut before) = (30_000, 0.0);
    let mut spread = 0x1234_5678_u64;
    for ms in 0..step_at_ms + 15_000 {
        let now = Moment::ZERO + Duration::from_millis(ms);
        let hot = if ms < step_at_ms { 1 } else { 4 };
        for request in 0..REQUESTS_PER_S * (hot + 3) / 4 / 100 {
            spread = spread.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(request | 1);
            let in_quarter = spread % (hot + 3) < hot;
            let key = spread >> if in_quarter { 2 } else { 1 };
            let key = if in_quarter { key } else { (u64::MAX / 4).saturating_add(key / 2 * 3) };
            if ms % 10 == 0 {
                meter.add(now, &lookup, SliceKey(key), 1.0, 0.0);
            }
        }
        if ms == step_at_ms {
            before = excess(&lookup, &fleet, 4.0);
        }
        if ms % PLAN_EVERY_MS == 0 && 0 < ms {
            let plan = planner.plan(now, lookup.assignment(), &fleet, &[], &meter.map(now));
            lookup = Lookup::new(plan.assignment, roster());
            meter.reshape(now, &lookup);
        }
    }
    let after = excess(&lookup, &fleet, 4.0);
    println!("excess {before:.3} before, {after:.3} fifteen seconds after the step");
    assert!(0.2 < before, "the step hurts at first: {before:.3}");
    assert!(after <= before / 2.0, "{before:.3} to {after:.3}");
}
