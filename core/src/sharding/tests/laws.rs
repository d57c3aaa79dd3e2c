//! Laws that hold after every round, whatever fleet, rules and load do.

use proptest::prelude::*;

use super::*;

/// One round's input.
#[derive(Clone, Debug)]
struct Round {
    /// Which of twelve replicas are there; every fifth of these drains.
    there: Vec<bool>,
    ranges: Vec<f64>,
    keys: Vec<(u64, f64)>,
    rules: Vec<(u8, u32, u32, bool, bool)>,
}

fn round() -> impl Strategy<Value = Round> {
    let there = prop::collection::vec(prop::bool::weighted(0.8), 12);
    let ranges = prop::collection::vec(0.0..1.0, 1..40);
    let keys = prop::collection::vec((any::<u64>(), 0.0..3.0), 0..4);
    let rule = (any::<u8>(), 1_u32..5, 0_u32..4, any::<bool>(), prop::bool::weighted(0.2));
    let rules = prop::collection::vec(rule, 0..4);
    (there, ranges, keys, rules).prop_map(|(there, ranges, keys, rules)| Round {
        there,
        ranges,
        keys,
        rules,
    })
}

impl Round {
    fn fleet(&self) -> Vec<Member> {
        let there = (0..12).filter(|it| self.there[usize::try_from(*it).unwrap()]);
        let member = |it: u64| Member {
            zone: u32::try_from(it % 3).unwrap(),
            draining: it % 5 == 4,
            ..member(it, if it.is_multiple_of(2) { 1.0 } else { 2.0 })
        };
        there.map(member).collect()
    }

    fn load(&self) -> LoadMap {
        let width = u64::MAX / u64::try_from(self.ranges.len()).unwrap();
        let range = |(at, load): (usize, &f64)| {
            let low = u64::try_from(at).unwrap() * width;
            RangeLoad { slice: Slice { low, high: low + (width - 1) }, load: *load, state: 0.0 }
        };
        let ranges: Vec<RangeLoad> = self.ranges.iter().enumerate().map(range).collect();
        let keys: Vec<KeyLoad> =
            self.keys.iter().map(|(key, load)| KeyLoad { key: *key, load: *load }).collect();
        LoadMap::new(&ranges, &keys)
    }

    fn rules(&self) -> Vec<Rule> {
        let rule = |(prefix, floor, more, whole, exclusive): &(u8, u32, u32, bool, bool)| Rule {
            slice: Slice::of_prefix(u32::from(*prefix) << 24),
            bounds: Bounds { floor: *floor, cap: *floor + *more },
            whole: *whole,
            exclusive: *exclusive,
        };
        let mut rules: Vec<Rule> = self.rules.iter().map(rule).collect();
        rules.sort_by_key(|it| it.slice);
        rules.dedup_by_key(|it| it.slice);
        rules
    }
}

fn settings() -> impl Strategy<Value = Settings> {
    let bounds = (1_u32..4, 0_u32..4).prop_map(|(floor, more)| Bounds { floor, cap: floor + more });
    let churn_max = prop_oneof![Just(0.0), Just(0.1), Just(f64::INFINITY)];
    let grain_bits = prop_oneof![Just(0), Just(32), Just(59)];
    (bounds, churn_max, 0_u64..2, grain_bits).prop_map(
        |(bounds, churn_max, cool_down_s, grain_bits)| Settings {
            bounds,
            churn_max,
            cool_down: std::time::Duration::from_secs(cool_down_s * 30),
            slices_min: 8,
            slices_max: 16,
            grain_bits,
            ..Settings::default()
        },
    )
}

/// Checks one assignment against what was asked for.
fn check(plan: &Plan, round: &Round, settings: &Settings) -> Result<(), TestCaseError> {
    let assignment = &plan.assignment;
    prop_assert!(covers_every_key_once(assignment));
    let serving: Vec<Member> = round.fleet().into_iter().filter(|it| !it.draining).collect();
    let rules = round.rules();
    for held in assignment.iter() {
        prop_assert!(held.holders.is_sorted_by(|a, b| a < b), "{held:?}");
        for place in held.holders {
            prop_assert!(serving.iter().any(|it| it.place == *place), "{place:?} is not there");
        }
        let rule = rules.iter().find(|it| it.slice.overlap(&held.slice).is_some());
        let is_under_rule = |key: u64| rules.iter().any(|it| it.slice.contains(key));
        if let Some(before) = held.slice.low.checked_sub(1).filter(|it| !is_under_rule(*it)) {
            let whole = (held.slice.low ^ before) >> settings.grain_bits != 0;
            prop_assert!(whole || rule.is_some(), "{held:?} begins inside a grain");
        }
        let bounds = rule.map_or(settings.bounds, |it| it.bounds);
        let holders = u32::try_from(held.holders.len()).unwrap();
        let all = u32::try_from(serving.len()).unwrap();
        prop_assert!(holders <= bounds.cap, "{held:?} {bounds:?}");
        // An exclusive rule leaves fewer for others, but always one.
        let exclusive = rules.iter().any(|it| it.exclusive);
        let floor = if exclusive { 1 } else { bounds.floor.min(all) };
        prop_assert!(floor <= holders, "{held:?} {bounds:?} of {all}");
        if let Some(rule) = rule {
            prop_assert!(
                rule.slice.contains(held.slice.low) && rule.slice.contains(held.slice.high)
            );
        }
    }
    for rule in &rules {
        let of_rule = assignment.iter().filter(|it| rule.slice.contains(it.slice.low));
        let mut places: Vec<Place> = of_rule.clone().flat_map(|it| it.holders.to_vec()).collect();
        places.sort_unstable();
        places.dedup();
        prop_assert!(places.len() <= usize::try_from(rule.bounds.cap).unwrap(), "{rule:?}");
        prop_assert!(!rule.whole || of_rule.count() == 1, "{rule:?}");
    }
    let balance = &plan.balance;
    prop_assert!(balance.imbalance_bound <= balance.imbalance + 1e-6, "{balance:?}");
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn every_round_keeps_the_laws(
        rounds in prop::collection::vec(round(), 1..6), settings in settings(),
    ) {
        let planner = Planner::new(settings);
        let mut base = empty();
        let mut now = Moment::ZERO;
        for round in &rounds {
            now = now + std::time::Duration::from_secs(20);
            let (fleet, rules, load) = (round.fleet(), round.rules(), round.load());
            let plan = planner.plan(now, &base, &fleet, &rules, &load);
            let again = planner.plan(now, &base, &fleet, &rules, &load);
            prop_assert_eq!(&plan, &again, "the same round gives the same plan");
            if fleet.iter().all(|it| it.draining) {
                prop_assert!(Arc::ptr_eq(&plan.assignment, &base));
                continue;
            }
            check(&plan, round, &settings)?;
            let changed = !Arc::ptr_eq(&plan.assignment, &base);
            prop_assert_eq!(changed, base.generation() < plan.assignment.generation());
            let diff = Diff::between(&base, &plan.assignment);
            prop_assert_eq!(&diff.apply(&base).unwrap(), &*plan.assignment);
            if let Some(max) = Some(settings.churn_max).filter(|it| it.is_finite()) {
                let unruled = rules.is_empty() && plan.deeds.replicated == 0;
                let same_fleet = plan.churn.removal <= 0.0 && plan.churn.addition <= 0.0;
                if unruled && same_fleet && plan.deeds.placed + plan.deeds.dereplicated == 0 {
                    let share = plan.churn.choice / plan.churn.total;
                    prop_assert!(share <= max + 1e-6, "{} {}", share, max);
                }
            }
            base = plan.assignment;
        }
    }

    #[test]
    fn a_stationary_load_comes_to_rest_and_stays(
        round in round(), bounds in (1_u32..4, 0_u32..4),
    ) {
        let bounds = Bounds { floor: bounds.0, cap: bounds.0 + bounds.1 };
        let planner = Planner::new(Settings { bounds, ..eager() });
        let mut fleet = round.fleet();
        fleet.push(member(20, 1.0));
        let plan = settle(&planner, &empty(), &fleet, &round.rules(), &round.load());
        let next = planner.plan(Moment::ZERO, &plan.assignment, &fleet, &round.rules(), &round.load());
        prop_assert!(Arc::ptr_eq(&next.assignment, &plan.assignment));
        prop_assert!(next.churn.choice <= 0.0);
    }

    #[test]
    fn two_clerks_of_one_generation_agree(round in round(), keys: Vec<u64>, dead in 0_u64..12) {
        let mut fleet = round.fleet();
        fleet.push(member(20, 1.0));
        let planner = Planner::new(Settings::default());
        let plan = planner.plan(Moment::ZERO, &empty(), &fleet, &round.rules(), &round.load());
        let roster = || fleet.iter().rev().map(|it| (it.place, it.capacity));
        let one = Clerk::new(plan.assignment.clone(), roster());
        let received = Diff::between(&Assignment::empty(), &plan.assignment);
        let copy = Arc::new(received.apply(&Assignment::empty()).unwrap());
        let other = Clerk::new(copy, fleet.iter().map(|it| (it.place, it.capacity)));
        for key in keys {
            let key = crate::domain::SliceKey(key);
            prop_assert_eq!(one.holders(key), other.holders(key));
            let alive = |it: Place| it != Place(dead + 1);
            prop_assert_eq!(one.pick(key, alive), other.pick(key, alive));
        }
    }
}

#[test]
fn noise_of_a_few_percent_moves_nothing() {
    let planner = Planner::new(Settings::default());
    let fleet = fleet(16);
    let width = u64::MAX / 64 + 1;
    let noisy = |round: u64| {
        let range = |it: u64| {
            let wobble = f64::from(u32::try_from((it * 31 + round * 17) % 13).unwrap()) / 13.0;
            let slice = Slice { low: it * width, high: it * width + (width - 1) };
            RangeLoad { slice, load: 0.12 * (0.95 + 0.1 * wobble), state: 0.0 }
        };
        LoadMap::new(&(0..64).map(range).collect::<Vec<_>>(), &[])
    };
    let mut base = settle(&planner, &empty(), &fleet, &[], &noisy(0)).assignment;
    for round in 1..200 {
        let now = Moment::ZERO + std::time::Duration::from_secs(round * 100);
        let plan = planner.plan(now, &base, &fleet, &[], &noisy(round));
        assert!(plan.churn.choice <= 0.0, "round {round}: {:?}", plan.deeds);
        base = plan.assignment;
    }
}
