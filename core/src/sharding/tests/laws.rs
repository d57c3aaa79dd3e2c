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
    fn fleet(&self) -> Vec<FleetMember> {
        let there = (0..12).filter(|it| self.there[usize::try_from(*it).unwrap()]);
        let member = |it: u64| FleetMember {
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

fn settings() -> impl Strategy<Value = PlannerSettings> {
    let bounds = (1_u32..4, 0_u32..4).prop_map(|(floor, more)| Bounds { floor, cap: floor + more });
    let churn_max = prop_oneof![Just(0.0), Just(0.1), Just(f64::INFINITY)];
    let grain_bits = prop_oneof![Just(0), Just(32), Just(59)];
    (bounds, churn_max, 0_u64..2, grain_bits).prop_map(
        |(bounds, churn_max, cool_down_s, grain_bits)| PlannerSettings {
            bounds,
            churn_max,
            cool_down: std::time::Duration::from_secs(cool_down_s * 30),
            slices_min: 8,
            slices_max: 16,
            grain_bits,
            ..PlannerSettings::default()
        },
    )
}

/// One round that was planned.
struct Planned<'a> {
    planner: &'a Planner,
    now: Moment,
    round: &'a Round,
    /// The round before it.
    last: Option<&'a Round>,
    base: &'a Arc<Assignment>,
    plan: Plan,
}

impl Planned<'_> {
    fn serving(&self) -> Vec<FleetMember> {
        self.round.fleet().into_iter().filter(|it| !it.draining).collect()
    }

    /// Lists the slices with the rule that each is under.
    fn held(&self) -> impl Iterator<Item = (Held<'_>, Option<Rule>)> {
        let rules = self.round.rules();
        let rule_of =
            move |it: &Slice| rules.iter().find(|rule| rule.slice.overlap(it).is_some()).copied();
        self.plan.assignment.iter().map(move |it| (it, rule_of(&it.slice)))
    }
}

/// Plans rounds one after the other, each on what the last one left, and holds each to a law.
/// Rounds without any replica change nothing, which is a law of its own.
fn hold(
    rounds: &[Round],
    settings: PlannerSettings,
    law: impl Fn(&Planned<'_>) -> Result<(), TestCaseError>,
) -> Result<(), TestCaseError> {
    let planner = Planner::new(settings);
    let mut base = empty();
    let (mut now, mut last) = (Moment::ZERO, None);
    for round in rounds {
        now = now + std::time::Duration::from_secs(20);
        let plan = planner.plan(now, &base, &round.fleet(), &round.rules(), &round.load());
        let it = Planned { planner: &planner, now, round, last, base: &base, plan };
        if it.serving().is_empty() {
            prop_assert!(Arc::ptr_eq(&it.plan.assignment, &base));
        } else {
            law(&it)?;
        }
        (base, last) = (it.plan.assignment, Some(round));
    }
    Ok(())
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    prop::collection::vec(round(), 1..6)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn every_key_is_covered_exactly_once(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            prop_assert!(covers_every_key_once(&it.plan.assignment));
            Ok(())
        })?;
    }

    #[test]
    fn generations_only_grow_and_only_with_a_change(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            let changed = !Arc::ptr_eq(&it.plan.assignment, it.base);
            let (before, after) = (it.base.generation(), it.plan.assignment.generation());
            prop_assert_eq!((changed, !changed), (before < after, before == after));
            Ok(())
        })?;
    }

    #[test]
    fn replicas_of_a_slice_are_within_floor_and_cap(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            let all = u32::try_from(it.serving().len()).unwrap();
            // An exclusive rule leaves fewer for others, but always one.
            let exclusive = it.round.rules().iter().any(|it| it.exclusive);
            for (held, rule) in it.held() {
                let bounds = rule.map_or(settings.bounds, |it| it.bounds);
                let floor = if exclusive { 1 } else { bounds.floor.min(all) };
                let holders = u32::try_from(held.holders.len()).unwrap();
                prop_assert!((floor..=bounds.cap).contains(&holders), "{held:?} {bounds:?} of {all}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn nothing_is_on_absent_or_draining_replicas(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            let serving = it.serving();
            for held in it.plan.assignment.iter() {
                prop_assert!(held.holders.is_sorted_by(|a, b| a < b), "{held:?}");
                let there = |place: &Place| serving.iter().any(|it| it.place == *place);
                prop_assert!(held.holders.iter().all(there), "{held:?}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn the_same_round_gives_the_same_plan(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            let (fleet, rules, load) = (it.round.fleet(), it.round.rules(), it.round.load());
            prop_assert_eq!(&it.plan, &it.planner.plan(it.now, it.base, &fleet, &rules, &load));
            Ok(())
        })?;
    }

    #[test]
    fn a_diff_applied_gives_the_next_assignment(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            let diff = Diff::between(it.base, &it.plan.assignment);
            prop_assert_eq!(&diff.apply(it.base).unwrap(), &*it.plan.assignment);
            Ok(())
        })?;
    }

    #[test]
    fn rules_and_grains_are_never_parted(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            let rules = it.round.rules();
            for (held, rule) in it.held() {
                let under_rule = |key: u64| rules.iter().any(|it| it.slice.contains(key));
                if let Some(before) = held.slice.low.checked_sub(1).filter(|it| !under_rule(*it)) {
                    let border = (held.slice.low ^ before) >> settings.grain_bits != 0;
                    prop_assert!(border || rule.is_some(), "{held:?} begins inside a grain");
                }
                let inside = |it: Rule| it.slice.contains(held.slice.low) && it.slice.contains(held.slice.high);
                prop_assert!(rule.is_none_or(inside), "{held:?} is under {rule:?} in part");
            }
            for rule in &rules {
                let slices = it.held().map(|it| it.0).filter(|it| rule.slice.contains(it.slice.low));
                let slices: Vec<Held<'_>> = slices.collect();
                let places: std::collections::BTreeSet<Place> =
                    slices.iter().flat_map(|it| it.holders.to_vec()).collect();
                prop_assert!(places.len() <= usize::try_from(rule.bounds.cap).unwrap(), "{rule:?}");
                prop_assert!(!rule.whole || slices.len() == 1, "{rule:?}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn a_round_moves_no_more_by_choice_than_its_budget(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            let Plan { churn, deeds, .. } = &it.plan;
            let same_fleet = churn.removal <= 0.0 && churn.addition <= 0.0;
            // What rules and hot keys ask for waits for no budget, nor what becomes of a slice when
            // its rule is gone.
            let forced = deeds.replicated + deeds.placed + deeds.dereplicated;
            let is_unruled = |it: &Round| it.rules().is_empty();
            let unruled = is_unruled(it.round) && it.last.is_none_or(is_unruled);
            if unruled && same_fleet && forced == 0 {
                let share = churn.choice / churn.total;
                prop_assert!(share <= settings.churn_max + 1e-6, "{share} of {settings:?}");
            }
            Ok(())
        })?;
    }

    #[test]
    fn nobody_does_better_than_the_bound(rounds in rounds(), settings in settings()) {
        hold(&rounds, settings, |it| {
            let balance = it.plan.balance;
            prop_assert!(balance.imbalance_bound <= balance.imbalance + 1e-6, "{balance:?}");
            Ok(())
        })?;
    }

    #[test]
    fn a_stationary_load_comes_to_rest_and_stays(
        round in round(), bounds in (1_u32..4, 0_u32..4),
    ) {
        let bounds = Bounds { floor: bounds.0, cap: bounds.0 + bounds.1 };
        let planner = Planner::new(PlannerSettings { bounds, ..eager() });
        let mut fleet = round.fleet();
        fleet.push(member(20, 1.0));
        let plan = settle(&planner, &empty(), &fleet, &round.rules(), &round.load());
        let next = planner.plan(Moment::ZERO, &plan.assignment, &fleet, &round.rules(), &round.load());
        prop_assert!(Arc::ptr_eq(&next.assignment, &plan.assignment));
        prop_assert!(next.churn.choice <= 0.0);
    }

    #[test]
    fn two_lookups_of_one_generation_agree(round in round(), keys: Vec<u64>, dead in 0_u64..12) {
        let mut fleet = round.fleet();
        fleet.push(member(20, 1.0));
        let planner = Planner::new(PlannerSettings::default());
        let plan = planner.plan(Moment::ZERO, &empty(), &fleet, &round.rules(), &round.load());
        let roster = || fleet.iter().rev().map(|it| (it.place, it.capacity));
        let one = Lookup::new(plan.assignment.clone(), roster());
        let received = Diff::between(&Assignment::empty(), &plan.assignment);
        let copy = Arc::new(received.apply(&Assignment::empty()).unwrap());
        let other = Lookup::new(copy, fleet.iter().map(|it| (it.place, it.capacity)));
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
    let planner = Planner::new(PlannerSettings::default());
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
