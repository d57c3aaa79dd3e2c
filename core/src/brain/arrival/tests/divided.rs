//! What holding promises in a pool that is divided into subsets.

use super::*;

/// Sessions of a workload.
fn session_of(workload: u64, session: u64) -> u64 {
    (workload * 0x1234_5678) << 32 | session
}

/// A pool of six in which every workload has two replicas and may spill to `spill_max` more.
fn in_twos(spill_max: u32) -> Bench {
    let subsets = SubsetSettings {
        floor: Some(2),
        cap: 2,
        spill_max: Some(spill_max),
        ..SubsetSettings::default()
    };
    let mut bench = Bench::divided(6, holding(), subsets);
    // It is divided once two workloads were seen.
    for workload in [1, 2] {
        let (request, _) = bench.arrive(session_of(workload, 0), 100, of(workload, 1));
        bench.answer(request);
        bench.end(request, Usage::default());
    }
    bench.wait(5.0);
    bench
}

#[test]
fn who_finds_its_own_subset_full_waits_for_it_and_holds_nobody_else_up() {
    let mut bench = in_twos(0);
    let mut inside = Vec::new();
    for session in 1..3 {
        let (request, verdicts) = bench.arrive(session_of(1, session), LONG, of(1, 1));
        assert_eq!(sent(&verdicts), [request]);
        inside.push((request, verdicts[0].1.unwrap()));
    }
    let (waits, verdicts) = bench.arrive(session_of(1, 3), 100, of(1, 1));
    assert_eq!(verdicts, [], "four others are idle, and are not its own");
    let (other, verdicts) = bench.arrive(session_of(2, 3), 100, of(2, 1));
    assert_eq!(sent(&verdicts), [other], "it waits for nothing");
    bench.wait(0.1);
    let verdicts = bench.answer(inside[0].0);
    assert_eq!(verdicts, [(waits, Ok(inside[0].1))]);
    assert_eq!(bench.waited(waits).cause, Some(Cause::Subset));
    assert_eq!(bench.waited(other).cause, None);
}

#[test]
fn who_may_spill_does_so_before_it_waits() {
    let mut bench = in_twos(1);
    let mut placed = Vec::new();
    for session in 1..4 {
        let (request, verdicts) = bench.arrive(session_of(1, session), LONG, of(1, 1));
        assert_eq!(sent(&verdicts), [request]);
        placed.push(verdicts[0].1.unwrap());
    }
    placed.sort_unstable();
    placed.dedup();
    assert_eq!(placed.len(), 3, "two of its own and one beyond");
    let (request, verdicts) = bench.arrive(session_of(1, 4), 100, of(1, 1));
    assert_eq!(verdicts, []);
    assert!(bench.brain.snapshot().queue.waiting == 1);
    assert!(bench.wait(0.1).is_empty());
    let (verdicts, waited) = (bench.wait(5.0), bench.waited(request));
    assert_eq!(sent(&verdicts), [request], "their prompts are read by now");
    assert!(Duration::from_secs(5) < waited.span(), "{waited:?}");
}

#[test]
fn beyond_a_contract_the_idle_of_others_is_not_idle_for_it() {
    let mut bench = in_twos(0);
    let limits = Limits { work_per_min: Some(Work::from_mu(0.001)), ..Limits::default() };
    bench.tell(Event::Contracted { limits: vec![(Tenant(1), limits)] });
    for session in 1..3 {
        let (request, verdicts) = bench.arrive(session_of(1, session), LONG, of(3, 1));
        assert_eq!(sent(&verdicts), [request]);
    }
    bench.arrive(session_of(1, 3), 100, of(1, 1));
    let (request, verdicts) = bench.arrive(session_of(1, 4), 100, of(1, 1));
    assert!(matches!(verdicts[..], [(_, Err(Refusal::OverContract { .. }))]), "{verdicts:?}");
    assert_eq!(bench.waited(request).cause, Some(Cause::Contract));
}

#[test]
fn a_session_that_spills_or_whose_slice_is_moved_leaves_for_that_cause() {
    let mut bench = in_twos(1);
    let (first, _) = bench.arrive(session_of(1, 9), 100, of(1, 1));
    bench.answer(first);
    bench.end(first, Usage::default());
    let (brain, key) = (&mut bench.brain, SliceKey(session_of(1, 9)));
    let (inside, _) = brain.placement.reach(bench.now, key, &brain.fleet).unwrap();
    for replica in inside {
        let (request, verdicts) =
            bench.arrive_for(replica.0, session_of(2, 10 + u64::from(replica.0)), LONG);
        assert_eq!(verdicts, [(request, Ok(replica))]);
    }
    let (request, verdicts) = bench.arrive(session_of(1, 9), 100, of(1, 1));
    assert_eq!(sent(&verdicts), [request], "its two are full, and it may go to one more");
    let moved = bench.brain.snapshot().sessions_moved;
    assert_eq!((moved.of(LeaveCause::Spilled), moved.all()), (1, 1));

    let mut bench = in_twos(0);
    let key = SliceKey(session_of(1, 0));
    let home = bench.brain.placement.home(bench.now, key).unwrap();
    let replicas: Vec<ReplicaId> = (0..6).map(ReplicaId).filter(|it| *it != home).take(2).collect();
    bench.tell(Event::Ordered(Order::Pin { workload: key.workload(), replicas }));
    let (request, verdicts) = bench.arrive(key.0, 100, of(1, 1));
    assert_eq!(sent(&verdicts), [request]);
    let moved = bench.brain.snapshot().sessions_moved;
    assert_eq!((moved.of(LeaveCause::Rebalanced), moved.all()), (1, 1));
}
