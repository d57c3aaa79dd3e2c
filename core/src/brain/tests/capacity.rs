//! What a pool counts as its capacity.

use super::*;

/// What the pool is said to make in a minute, and what each replica is said to.
fn shown(bench: &Bench) -> (f64, Vec<f64>) {
    let snapshot = bench.brain.snapshot();
    let each: Vec<f64> = snapshot.replicas.iter().map(|it| it.capacity_mu_per_min).collect();
    let (live, load) = (bench.brain.live(bench.now), bench.brain.load(bench.now));
    assert!(live.replicas.iter().map(|it| it.capacity_mu_per_min).eq(each.iter().copied()));
    assert!(load.iter().map(|it| it.capacity_mu_per_min).eq(each.iter().copied()));
    (snapshot.queue.mu_per_min, each)
}

#[test]
fn a_replica_counts_as_capacity_from_when_it_came_up_first() {
    let mut bench = Bench::session(1);
    let replica = ReplicaId(1);
    let (name, hardware) = ("http://gpu-1:8000".to_owned(), Arc::default());
    bench.tell(Event::Joined { replica, name, weight: 1.0, hardware });
    bench.tell(Event::Probed { replica, probe: Probe::Refused });
    bench.wait(2);
    bench.time();
    assert_eq!(shown(&bench), (100.0, vec![100.0, 0.0]), "nobody has seen what it can do");
    bench.tell(Event::Probed { replica, probe: Probe::Passed });
    assert_eq!(shown(&bench), (200.0, vec![100.0, 100.0]), "at once");
    for _ in 0..3 {
        bench.tell(Event::Probed { replica, probe: Probe::Refused });
    }
    bench.wait(2);
    bench.time();
    assert_eq!(bench.brain.snapshot().replicas[1].state, "out");
    assert_eq!(shown(&bench), (200.0, vec![100.0, 100.0]), "it is expected back");
}
