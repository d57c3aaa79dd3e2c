//! One plan for all routers: the one that leads plans, the others go by it, and the highest generation holds.

use super::*;
use crate::sharding::Generation;

impl Cluster {
    fn lead(&mut self, at: usize, leads: bool) {
        self.benches[at].tell(Event::Elected { leads });
    }

    /// Has one router serve two workloads, and lets all plan and tell.
    fn work(&mut self, at: usize, first: u64) {
        for number in 0..20 {
            let workload = (number % 2 + 1) << 32;
            let (request, _) =
                self.ask(at, workload | (first + number), outline(number * 1_000, 50));
            self.end(at, request);
        }
        self.settle();
    }

    /// Lets some seconds pass in which routers tell what they have to tell.
    fn settle(&mut self) {
        for _ in 0..4 {
            self.relay();
            self.wait(1);
        }
        self.relay();
    }

    fn generations(&self) -> Vec<Generation> {
        let of = |it: &Bench| it.brain.placement.assignment().generation();
        self.benches.iter().map(of).collect()
    }

    fn rounds(&self) -> Vec<u64> {
        self.benches.iter().map(|it| it.brain.rounds_planned()).collect()
    }

    /// Tells whether all go by the same assignment, and there is one.
    fn agrees(&self) -> bool {
        let rows = |it: &Bench| {
            let assignment = it.brain.placement.assignment();
            let rows = assignment.iter().map(|it| (it.slice, it.holders.to_vec()));
            (assignment.generation(), rows.collect::<Vec<_>>())
        };
        let first = rows(&self.benches[0]);
        1 < first.1.len() && self.benches.iter().all(|it| rows(it) == first)
    }
}

#[test]
fn the_leader_plans_from_the_load_of_all_and_the_others_go_by_it() {
    let mut cluster = Cluster::new(3, 12);
    cluster.work(1, 0);
    assert_eq!(cluster.rounds(), [0, 0, 0], "no plan without a leader");
    cluster.lead(0, true);
    cluster.work(1, 100);
    assert!(cluster.agrees(), "{:?}", cluster.generations());
    assert!(0 < cluster.rounds()[0]);
    assert_eq!(cluster.rounds()[1..], [0, 0]);
    let view = cluster.benches[2].brain.assignment(cluster.benches[2].now);
    assert!(view.divided);
    // A follower keeps a workload to its subset as the leader does.
    let subset = |at: usize| {
        let view = cluster.benches[at].brain.assignment(cluster.benches[at].now);
        view.workloads.into_iter().find(|it| it.workload == 1).map(|it| it.replicas)
    };
    assert_eq!(subset(0), subset(1));
}

#[test]
fn two_that_led_apart_go_by_one_plan_within_two_seconds_of_meeting() {
    let mut cluster = Cluster::new(2, 12);
    cluster.lead(0, true);
    cluster.work(0, 0);
    cluster.apart = true;
    cluster.lead(1, true);
    for (at, name) in [(0, "http://gpu-1:8000"), (1, "http://gpu-2:8000")] {
        let replica = cluster.id(at, name);
        cluster.benches[at].tell(Event::Ordered(Order::Drain { replica }));
    }
    cluster.settle();
    let generations = cluster.generations();
    assert_ne!(generations[0], generations[1], "each has planned for itself");
    cluster.apart = false;
    cluster.lead(1, false);
    cluster.wait(1);
    cluster.relay();
    cluster.wait(1);
    cluster.relay();
    assert!(cluster.generations().iter().all(|it| generations.iter().max() <= Some(it)));
    assert!(cluster.agrees(), "{:?}", cluster.generations());
}

#[test]
fn any_router_teaches_any_other_the_newest_plan() {
    let mut cluster = Cluster::new(3, 12);
    cluster.lead(0, true);
    cluster.cut = vec![(0, 2)];
    cluster.work(0, 0);
    assert!(cluster.agrees(), "the third hears of it from the second: {:?}", cluster.generations());
}

#[test]
fn a_router_that_joins_is_told_the_plan_and_a_new_leader_goes_on_from_it() {
    let mut cluster = Cluster::new(2, 12);
    cluster.lead(0, true);
    cluster.apart = true;
    cluster.work(0, 0);
    cluster.apart = false;
    cluster.tell_whole(0, 1);
    assert!(cluster.agrees());
    let before = cluster.generations()[0];
    cluster.lead(0, false);
    cluster.lead(1, true);
    let replica = cluster.id(1, "http://gpu-3:8000");
    cluster.benches[1].tell(Event::Ordered(Order::Drain { replica }));
    cluster.settle();
    assert!(cluster.agrees());
    let after = cluster.generations()[0];
    assert!(before < after && before.incarnation < after.incarnation, "{before} {after}");
}

#[test]
fn a_brain_that_is_built_anew_leads_on() {
    let mut cluster = Cluster::new(1, 12);
    let bench = &mut cluster.benches[0];
    let mut record = Record::default();
    record.note(&Event::Elected { leads: true });
    let settings = bench.brain.settings.clone();
    let inherit = (&mut bench.brain, Inherit::Nothing);
    let new = Brain::rebuild(bench.now, settings, &record, inherit, &mut Vec::new());
    assert!(new.placement.leads());
}
