//! Rolling restarts, one replica at a time. Every replica's load must leave it once and something
//! must come back once; beyond that nothing should move.

use super::*;

struct Sums {
    removal: f64,
    addition: f64,
    choice: f64,
}

/// Restarts every replica; a restarted replica returns as `back(number)`.
fn roll(settings: PlannerSettings, replicas: u64, back: impl Fn(u64) -> u64) -> (Sums, Balance) {
    let planner = Planner::new(settings);
    let width = u64::MAX / 128 + 1;
    let range = |it: u64| RangeLoad {
        slice: Slice { low: it * width, high: it * width + (width - 1) },
        load: 0.5 / 128.0 * f64::from(u32::try_from(1 + it * 7 % 4).unwrap()),
        state: 0.0,
    };
    let scale = f64::from(u32::try_from(replicas).unwrap());
    let ranges: Vec<RangeLoad> =
        (0..128).map(range).map(|it| RangeLoad { load: it.load * scale * 0.4, ..it }).collect();
    let load = LoadMap::new(&ranges, &[]);
    let mut fleet = fleet(replicas);
    let mut base = settle(&planner, &empty(), &fleet, &[], &load).assignment;
    let mut sums = Sums { removal: 0.0, addition: 0.0, choice: 0.0 };
    let mut balance = Balance::default();
    let mut now = Moment::ZERO;
    for number in 0..replicas {
        let at = fleet.iter().position(|it| it.place == Place(number + 1)).unwrap();
        for down in [true, false] {
            if down {
                fleet.remove(at);
            } else {
                fleet.push(member(back(number), 1.0));
            }
            for _ in 0..3 {
                now = now + std::time::Duration::from_secs(100);
                let plan = planner.plan(now, &base, &fleet, &[], &load);
                sums.removal += plan.churn.removal / plan.churn.total;
                sums.addition += plan.churn.addition / plan.churn.total;
                sums.choice += plan.churn.choice / plan.churn.total;
                balance = plan.balance;
                base = plan.assignment;
            }
        }
    }
    (sums, balance)
}

fn check(settings: PlannerSettings, back: impl Fn(u64) -> u64, name: &str) {
    let (sums, balance) = roll(settings, 12, back);
    let Sums { removal, addition, choice } = sums;
    println!("{name}: removal {removal:.3} addition {addition:.3} choice {choice:.4} {balance:?}");
    assert!(removal <= 1.05 && addition <= 1.05, "{name}: {removal} {addition}");
    assert!(choice <= 0.02, "{name}: {choice}");
    assert!(balance.max <= balance.mean * 1.1, "{name}: {balance:?}");
    assert!(balance.mean * 0.9 <= balance.min, "{name}: {balance:?}");
}

#[test]
fn a_rolling_restart_moves_everything_once_and_nothing_by_choice() {
    check(PlannerSettings::default(), |it| it, "in place");
    check(PlannerSettings::default(), |it| it + 100, "replaced");
    check(eager(), |it| it + 100, "replaced, no limit on churn");
    let bounds = Bounds { floor: 3, cap: 6 };
    check(PlannerSettings { bounds, ..PlannerSettings::default() }, |it| it + 100, "three holders");
}
