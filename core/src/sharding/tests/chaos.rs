//! Rounds in which everything changes at once: load, its shape, hot keys, the replicas. The set-up
//! follows Dicer's chaos test as its authors describe it, with up to five hot keys instead of one,
//! and bounds of 0.10 and 0.30 where theirs are 0.35 and 0.70.

use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;

use super::*;

const ROUNDS: u64 = 1000;

fn load(chance: &mut Pcg64Mcg, replicas: usize) -> LoadMap {
    let replicas = f64::from(u32::try_from(replicas).unwrap());
    let total = chance.random_range(0.0..1.2) * replicas;
    let hot = if chance.random_bool(0.5) { chance.random_range(1..=5) } else { 0 };
    let hot_share = if hot == 0 { 0.0 } else { 0.5 };
    let densities: Vec<f64> = (0..128).map(|_| chance.random_range(1.0..4.0)).collect();
    let sum: f64 = densities.iter().sum();
    let width = u64::MAX / 128 + 1;
    let mut ranges: Vec<RangeLoad> = (0_u64..)
        .zip(&densities)
        .map(|(it, density)| RangeLoad {
            slice: Slice { low: it * width, high: it * width + (width - 1) },
            load: total * (1.0 - hot_share) * density / sum,
            state: 0.0,
        })
        .collect();
    let mut keys = Vec::new();
    for _ in 0..hot {
        let load = total * hot_share / f64::from(hot);
        let range = chance.random_range(0..128_usize);
        let key = ranges[range].slice.low + chance.random_range(0..width);
        ranges[range].load += load;
        keys.push(KeyLoad { key, load });
    }
    LoadMap::new(&ranges, &keys)
}

fn quantile(sorted: &[f64], share: f64) -> f64 {
    let last = f64::from(u32::try_from(sorted.len() - 1).unwrap());
    sorted[format!("{:.0}", last * share).parse::<usize>().unwrap()]
}

/// Returns (max - mean) / capacity and (mean - min) / capacity of every round, sorted.
fn run(seed: u64, capacities: &[f64]) -> [Vec<f64>; 2] {
    let mut chance = Pcg64Mcg::seed_from_u64(seed);
    let (mut above, mut below) = (Vec::new(), Vec::new());
    let mut base = empty();
    for round in 0..ROUNDS {
        let there: u64 = chance.random_range(6..=8);
        let mut numbers: Vec<u64> = (0..8).collect();
        while there < u64::try_from(numbers.len()).unwrap() {
            let out = chance.random_range(0..numbers.len());
            numbers.remove(out);
        }
        let capacity = |it: u64| capacities[usize::try_from(it).unwrap() % capacities.len()];
        let fleet: Vec<FleetMember> = numbers.iter().map(|it| member(*it, capacity(*it))).collect();
        let bounds = Bounds { floor: chance.random_range(1..=3), cap: u32::MAX };
        let planner = Planner::new(PlannerSettings { bounds, band: 0.025, ..eager() });
        let load = load(&mut chance, fleet.len());
        let now = Moment::ZERO + std::time::Duration::from_secs(60 * round);
        let plan = planner.plan(now, &base, &fleet, &[], &load);
        let hint = plan.balance.mean.max(1.0);
        above.push((plan.balance.max - plan.balance.mean) / hint);
        below.push((plan.balance.mean - plan.balance.min) / hint);
        base = plan.assignment;
    }
    above.sort_by(f64::total_cmp);
    below.sort_by(f64::total_cmp);
    [above, below]
}

#[test]
fn chaos_leaves_everybody_near_the_mean() {
    for (seed, capacities) in [(1, vec![1.0]), (2, vec![1.0]), (3, vec![1.0, 2.0, 0.5])] {
        let [above, below] = run(seed, &capacities);
        for (name, sorted) in [("above", &above), ("below", &below)] {
            let at = |share| quantile(sorted, share);
            let max = sorted[sorted.len() - 1];
            println!(
                "seed {seed} {name}: p10 {:.3} p50 {:.3} p90 {:.3} p95 {:.3} p99 {:.3} max {max:.3}",
                at(0.1),
                at(0.5),
                at(0.9),
                at(0.95),
                at(0.99),
            );
            assert!(at(0.99) <= 0.10, "seed {seed} {name}: {:.3}", at(0.99));
            assert!(max <= 0.30, "seed {seed} {name}: {max:.3}");
        }
    }
}
