//! What the operator orders: pins, drains, a freeze, zones, and an assignment to start from.

use super::*;

#[test]
fn orders_are_obeyed() {
    let mut subsets = planned(SubsetSettings::default(), 16);
    let all = fleet(16);
    let place = |id: ReplicaId| Some(all[usize::try_from(id.0).unwrap()].place);
    let workload = key(1, 0).workload();
    let replicas = vec![ReplicaId(3), ReplicaId(9)];
    subsets.obey(at_s(2), Order::Pin { workload, replicas }, place);
    subsets.plan(at_s(2), all.iter().copied());
    assert_eq!(subset(&mut subsets, key(1, 7)), [all[3].place, all[9].place]);
    subsets.obey(at_s(3), Order::Pin { workload, replicas: Vec::new() }, place);
    subsets.obey(at_s(3), Order::Drain { replica: ReplicaId(0) }, place);
    subsets.plan(at_s(3), all.iter().copied());
    let view = subsets.view(at_s(3));
    assert!(view.slices.iter().all(|it| !it.holders.contains(&all[0].place)));
    assert!(view.slices.iter().any(|it| it.previous == Some(all[0].place)));
    subsets.obey(at_s(4), Order::Freeze, place);
    let before = subset(&mut subsets, key(1, 7));
    subsets.plan(at_s(200), all.iter().take(8).copied());
    assert_eq!(subset(&mut subsets, key(1, 7))[..2], before[..2], "frozen is frozen");
}

#[test]
fn a_pin_in_a_small_pool_takes_nothing_from_others_and_leaves_no_trace() {
    let mut subsets = planned(SubsetSettings::default(), 3);
    let all = fleet(3);
    let place = |id: ReplicaId| Some(all[usize::try_from(id.0).unwrap()].place);
    let workload = key(1, 0).workload();
    subsets.obey(at_s(2), Order::Pin { workload, replicas: vec![ReplicaId(2)] }, place);
    subsets.plan(at_s(2), all.iter().copied());
    assert_eq!(subset(&mut subsets, key(1, 7)), [all[2].place]);
    assert_eq!(subset(&mut subsets, key(2, 7)).len(), 3, "it keeps all");
    subsets.obey(at_s(3), Order::Pin { workload, replicas: Vec::new() }, place);
    subsets.plan(at_s(3), all.iter().copied());
    assert!(!subsets.select(at_s(3), key(1, 7), None, well));
    assert!(!subsets.view(at_s(3)).divided);
}

#[test]
fn an_assignment_from_before_is_taken_up_even_if_replicas_come_back_slowly() {
    let mut before = planned(SubsetSettings::default(), 16);
    load(&mut before, 1, 600.0, 1..60);
    let kept = before.view(at_s(60)).assignment;
    let mut after = At::new(SubsetSettings::default());
    after.obey(at_s(0), Order::Restore { assignment: Arc::clone(&kept) }, |_| None);
    after.plan(at_s(1), fleet(6).into_iter());
    after.plan(at_s(10), fleet(16).into_iter());
    for workload in 0..50 {
        let key = key(workload, 7);
        assert_eq!(subset(&mut after, key)[..2], kept.find(key).holders[..2]);
    }
    assert_eq!(after.assignment.generation(), kept.generation(), "nothing was planned anew");
}

#[test]
fn the_replicas_of_a_workload_are_spread_over_zones() {
    let four = SubsetSettings { floor: Some(4), ..SubsetSettings::default() };
    let mut subsets = At::new(four);
    (1000..1002).for_each(|it| subsets.on_sent(at_s(0), key(it, 0), 1e-6, 1));
    let all = fleet(16);
    let place = |id: ReplicaId| Some(all[usize::try_from(id.0).unwrap()].place);
    // Twelve replicas in one zone, four in the other.
    let zone_of = |id: ReplicaId| if id.0 < 12 { 7 } else { 8 };
    for it in &all {
        let order = Order::Zone { replica: it.id, zone: Some(zone_of(it.id)) };
        subsets.obey(at_s(0), order, place);
    }
    subsets.plan(at_s(1), all.iter().copied());
    for workload in 0..50 {
        let places = subset(&mut subsets, key(workload, 7));
        let small = all.iter().filter(|it| zone_of(it.id) == 8 && places.contains(&it.place));
        assert_eq!((places.len(), small.count()), (4, 2), "workload {workload}");
    }
    subsets.plan(at_s(4), all.iter().copied().take(12));
    assert_eq!(subsets.orders.zones.len(), 12, "a replica that left is forgotten");
}
