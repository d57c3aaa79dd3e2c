//! How large a subset is: it follows what its workload needs, up and down.

use super::*;

#[test]
fn a_small_workload_has_the_floor_and_all_its_sessions_the_same_replicas() {
    let mut subsets = planned(SubsetSettings::default(), 32);
    load(&mut subsets, 2, 1000.0, 1..20);
    load(&mut subsets, 1, 1.0, 20..22);
    let one = subset(&mut subsets, key(1, 7));
    assert_eq!(one.len(), 2);
    assert_eq!(subset(&mut subsets, key(1, u32::MAX)), one);
}

#[test]
fn a_workload_grows_with_its_demand_and_no_further_than_its_cap() {
    let settings = SubsetSettings { floor: Some(4), cap: 8, ..SubsetSettings::default() };
    let mut subsets = planned(settings, 32);
    let before = subset(&mut subsets, key(1, 7));
    load(&mut subsets, 2, 1000.0, 1..40);
    load(&mut subsets, 1, 300.0, 40..200);
    let after = subset(&mut subsets, key(1, 7));
    assert!((5..=8).contains(&after.len()), "{}", after.len());
    let kept = before.iter().filter(|it| after.contains(it)).count();
    assert!(3 <= kept, "what it had it keeps: {kept}");
    load(&mut subsets, 1, 5000.0, 200..300);
    assert_eq!(subset(&mut subsets, key(1, 7)).len(), 8);
}

#[test]
fn alone_in_a_pool_a_workload_has_all_of_it_and_keeps_it_when_another_comes() {
    let mut subsets = At::new(SubsetSettings::default());
    subsets.plan(at_s(0), fleet(12).into_iter());
    load(&mut subsets, 1, 50.0, 1..60);
    assert!(
        !subsets.select(at_s(1), key(1, 7), None, well),
        "there is no other workload to protect from it"
    );
    load(&mut subsets, 2, 1.0, 60..63);
    assert_eq!(subset(&mut subsets, key(1, 7)).len(), 12);
    assert_eq!(subset(&mut subsets, key(2, 7)).len(), 2);
    load(&mut subsets, 1, 50.0, 63..800);
    assert_eq!(subset(&mut subsets, key(1, 7)).len(), 6, "it needs no more, and shrinks to half");
}

#[test]
fn a_workload_grows_by_what_it_needs_and_not_by_being_alone_for_a_while() {
    let mut subsets = planned(SubsetSettings::default(), 16);
    // A hundredth of what the pool can do, and all of what it does.
    load(&mut subsets, 1, 16.0, 1..60);
    let size = subset(&mut subsets, key(1, 7)).len();
    assert!((2..=4).contains(&size), "{size}");
    load(&mut subsets, 1, 160.0, 60..120);
    let size = subset(&mut subsets, key(1, 7)).len();
    assert!((3..=8).contains(&size), "no more than half of the pool: {size}");
    let both = |subsets: &mut At, seconds: std::ops::Range<u64>| {
        for second in seconds {
            load(subsets, 2, 1900.0, second..second + 1);
            load(subsets, 1, 100.0, second..second + 1);
        }
    };
    both(&mut subsets, 120..700);
    assert_eq!(subset(&mut subsets, key(1, 7)).len(), 2, "a twentieth of the load");
    let large = subset(&mut subsets, key(2, 7)).len();
    assert_eq!(large, 16, "one that needs all of it has all of it");
}

#[test]
fn a_session_is_hot_only_if_it_stands_out() {
    let mut subsets = planned(SubsetSettings::default(), 16);
    load(&mut subsets, 1, 60.0, 1..60);
    assert!(subsets.view(at_s(60)).hot_keys.is_empty(), "ten sessions of 6 MU a minute each");
    for second in 60..120 {
        subsets.on_sent(at_s(second), key(2, 7), 30.0 / 60.0, 1000);
        load(&mut subsets, 1, 60.0, second..second + 1);
    }
    let hot: Vec<u64> = subsets.view(at_s(120)).hot_keys.iter().map(|it| it.key).collect();
    assert_eq!(hot, [key(2, 7).0], "30 of 100 MU a minute");
}
