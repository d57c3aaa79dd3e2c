//! Dicer's two levels: a workload has a set of replicas, and inside the set a ring of 128 points
//! each maps a session to one of them, blind to load. The set follows the workload's share of all
//! load, averaged with a half-life of 120 s and looked at every 60 s, and never has fewer than four.
//! When none of the set can take the request, the next one clockwise from the workload does.
//!
//! The real assigner moves and splits ranges of keys under a budget of churn; here the first level
//! is a ring as well, so a set that grows keeps what it had. Load is prompt tokens.

use std::collections::BTreeMap;
use std::time::Duration;

use rand_pcg::Pcg64Mcg;

use cleave_core::domain::{Moment, Place, ReplicaId, RequestId, SliceKey};

use super::ring::Ring;
use super::{Ask, Candidate, Policy, position};

const POINTS: u64 = 128;
const REPLICAS_MIN: f64 = 4.0;
const HALF_LIFE_S: f64 = 120.0;
const PLAN_INTERVAL: Duration = Duration::from_secs(60);
/// How many workloads are measured; others have the smallest set.
const WORKLOADS_MAX: usize = 4096;

#[derive(Debug)]
struct RingWorkload {
    load: f64,
    replicas: f64,
}

#[derive(Debug, Default)]
pub(super) struct DicerRing {
    ring: Ring,
    joined: f64,
    workloads: BTreeMap<u64, RingWorkload>,
    planned_at: Moment,
    /// The set of the request at hand; kept so that no decision allocates.
    set: Vec<ReplicaId>,
}

impl Policy for DicerRing {
    fn pick(&mut self, ask: &Ask<'_>, candidates: &[Candidate], _: &mut Pcg64Mcg) -> usize {
        self.plan(ask.now);
        self.gather(workload_of(ask.key));
        let assigned = self.ring.walk(ask.key.0).filter(|it| self.set.contains(it));
        let assigned = assigned.into_iter().find_map(|it| position(candidates, it));
        let others =
            || self.ring.walk(workload_of(ask.key)).find_map(|it| position(candidates, it));
        assigned.or_else(others).unwrap_or(0)
    }

    fn on_joined(&mut self, replica: ReplicaId, place: Place) {
        self.ring.join(replica, place, POINTS);
        self.joined += 1.0;
    }

    fn on_sent(&mut self, _: RequestId, ask: &Ask<'_>, _: &Candidate) -> usize {
        let key = workload_of(ask.key);
        if self.workloads.len() < WORKLOADS_MAX || self.workloads.contains_key(&key) {
            let fresh = RingWorkload { load: 0.0, replicas: REPLICAS_MIN };
            let workload = self.workloads.entry(key).or_insert(fresh);
            workload.load += f64::from(ask.outline.prompt_tokens.max(1));
        }
        0
    }

    fn on_left(&mut self, replica: ReplicaId) {
        self.ring.leave(replica);
        self.joined -= 1.0;
    }

    fn bytes(&self) -> usize {
        self.ring.bytes() + self.workloads.len() * size_of::<(u64, RingWorkload)>()
    }
}

impl DicerRing {
    /// Sizes the sets anew when it is time.
    fn plan(&mut self, now: Moment) {
        let passed = now.since(self.planned_at);
        if passed < PLAN_INTERVAL {
            return;
        }
        self.planned_at = now;
        let total: f64 = self.workloads.values().map(|it| it.load).sum();
        let kept = (-passed.as_secs_f64() / HALF_LIFE_S).exp2();
        for workload in self.workloads.values_mut() {
            let share = workload.load / total.max(1.0);
            workload.replicas = (share * self.joined).ceil().max(REPLICAS_MIN);
            workload.load *= kept;
        }
        self.workloads.retain(|_, it| 1.0 <= it.load);
    }

    /// Collects the workload's replicas: the next ones clockwise, as many as it has.
    fn gather(&mut self, workload: u64) {
        let replicas = self.workloads.get(&workload).map_or(REPLICAS_MIN, |it| it.replicas);
        let wanted = replicas.min(self.joined);
        self.set.clear();
        let mut count = 0.0;
        for replica in self.ring.walk(workload) {
            if wanted <= count {
                break;
            }
            if !self.set.contains(&replica) {
                self.set.push(replica);
                count += 1.0;
            }
        }
    }
}

fn workload_of(key: SliceKey) -> u64 {
    key.0 >> 32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::super::DICER_RING;
    use super::super::bench::{Bench, prompt};

    fn key(workload: u64, session: u64) -> u64 {
        (workload << 32) | session
    }

    fn used(bench: &mut Bench, workload: u64) -> BTreeSet<u32> {
        let prompt = prompt(&[(0, 1)]);
        (0..300).map(|it| bench.pick_for(key(workload, it), &prompt)).collect()
    }

    #[test]
    fn a_workload_has_four_replicas_and_its_sessions_stay() {
        let mut bench = Bench::new(DICER_RING, 12);
        assert_eq!(used(&mut bench, 1).len(), 4);
        let prompt = prompt(&[(0, 1)]);
        let home = bench.pick_for(key(1, 7), &prompt);
        bench.in_flight(&[1000; 12]);
        assert_eq!(bench.pick_for(key(1, 7), &prompt), home, "load is not looked at");
        let sets: BTreeSet<u32> = (0..40).flat_map(|it| used(&mut bench, it)).collect();
        assert_eq!(sets.len(), 12, "together the workloads use every replica");
    }

    #[test]
    fn a_set_follows_the_share_of_load_and_keeps_what_it_had() {
        let mut bench = Bench::new(DICER_RING, 12);
        let before = used(&mut bench, 0);
        // The bench sends as workload 0 and there is no other, so all twelve are its own.
        bench.serve(&prompt(&[(0, 100)]), 0);
        assert_eq!(used(&mut bench, 0), before);
        bench.wait(60);
        assert_eq!(used(&mut bench, 0).len(), 12);
        assert!(before.is_subset(&used(&mut bench, 0)));
        bench.wait(3600);
        used(&mut bench, 0);
        bench.wait(60);
        assert_eq!(used(&mut bench, 0), before, "and shrinks when the load has passed");
    }

    #[test]
    fn without_its_set_a_workload_goes_to_the_next_one_clockwise() {
        let mut bench = Bench::new(DICER_RING, 6);
        let set = used(&mut bench, 3);
        bench.candidates.retain(|it| !set.contains(&it.id.0));
        assert_eq!(used(&mut bench, 3).len(), 1);
    }
}
