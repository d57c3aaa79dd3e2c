//! The machine in its brain: what streams show prices the fleet, and outlives what a brain loses.

use std::sync::Arc;
use std::time::Duration;

use crate::brain::{Action, Brain, Event, Inherit, Outcome, Record, Settings};
use crate::cost::{Hardware, StepTimes, StepWork};
use crate::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey, Usage, span_of_ms};
use crate::fleet::Probe;
use crate::queue::Claim;

use super::target;

/// A fleet whose engines take `slowness` times as long as the router is told, one request after the other.
struct Rig {
    brain: Brain,
    record: Record,
    now: Moment,
    requests: u64,
    actions: Vec<Action>,
}

fn settings(learns_costs: bool) -> Settings {
    Settings { learns_costs, ..Settings::default() }
}

impl Rig {
    fn new(learns_costs: bool, replicas: u32) -> Self {
        let mut rig = Self {
            brain: Brain::new(settings(learns_costs)),
            record: Record::default(),
            now: Moment::ZERO,
            requests: 0,
            actions: Vec::new(),
        };
        for number in 0..replicas {
            let (replica, name) = (ReplicaId(number), format!("http://gpu-{number}:8000"));
            rig.tell(Event::Joined { replica, name, weight: 1.0, hardware: Arc::default() });
            rig.tell(Event::Probed { replica, probe: Probe::Passed });
        }
        rig
    }

    fn tell(&mut self, event: Event) {
        self.record.note(&event);
        self.brain.on_event(self.now, event, &mut self.actions);
    }

    fn wait(&mut self, ms: f64) {
        self.now = self.now + span_of_ms(ms);
        self.brain.on_time(self.now, &mut self.actions);
    }

    /// Sends a request of `prompt` tokens and returns where it went.
    fn send(&mut self, prompt: u32, streams: bool) -> (RequestId, ReplicaId) {
        let request = RequestId(self.requests);
        self.requests += 1;
        let key = SliceKey::new(1, "m", &request.0.to_string());
        let outline = Outline { prompt_tokens: prompt, ..Outline::default() };
        let extent = Extent { streams, ..Extent::default() };
        self.actions.clear();
        self.tell(Event::Arrived { request, key, outline, extent, claim: Claim::default() });
        (request, target(&self.actions).expect("a replica takes it"))
    }

    /// Has one whole request answered; `slowness` is that of the replica it goes to.
    fn serve(&mut self, prompt: u32, slowness: impl Fn(ReplicaId) -> f64) {
        let streams = !self.requests.is_multiple_of(4);
        let (request, replica) = self.send(prompt, streams);
        let steps = StepTimes::LLAMA_8B;
        let slowness = slowness(replica);
        let gap_ms = slowness * steps.step_ms(&StepWork::of(1, prompt));
        self.wait(slowness * steps.step_ms(&StepWork::of(prompt, 0)));
        if streams {
            self.tell(Event::Answering { request });
        }
        for tokens in [8, 16, 32, 64] {
            self.wait(gap_ms * if tokens == 8 { 7.0 } else { f64::from(tokens) / 2.0 });
            if streams {
                self.tell(Event::Streamed { request, output_tokens: tokens });
            }
        }
        if !streams {
            self.tell(Event::Answering { request });
        }
        let usage = Usage { input: Some(prompt), output: Some(64), cached: Some(0) };
        self.tell(Event::Ended { request, outcome: Outcome::Done, usage });
        self.wait(1_000.0);
    }

    fn serve_all(&mut self, requests: u32, slowness: impl Fn(ReplicaId) -> f64) {
        (0..requests).for_each(|it| self.serve(200 + 733 * (it % 9), &slowness));
    }

    fn floor_ms(&self, replica: u32) -> f64 {
        self.brain.fleet.get(ReplicaId(replica)).unwrap().hardware.step.floor_ms
    }
}

fn close(found: f64, wanted: f64) -> bool {
    (found / wanted - 1.0).abs() < 0.15
}

const FLOOR_MS: f64 = StepTimes::LLAMA_8B.floor_ms;

#[test]
fn a_fleet_that_is_slower_than_was_thought_is_priced_as_it_is() {
    let mut rig = Rig::new(true, 3);
    rig.serve_all(150, |_| 3.0);
    for replica in 0..3 {
        assert!(close(rig.floor_ms(replica), 3.0 * FLOOR_MS), "{}", rig.floor_ms(replica));
    }
    let learned = &rig.brain.learned_costs()[0];
    assert!(learned.is_used && learned.errors[0].learned < 0.5 * learned.errors[0].given);
    let loads = rig.brain.load(rig.now);
    assert!(loads.iter().all(|it| close(it.capacity_mu_per_min, 100.0 / 3.0)), "{loads:?}");
    assert!(loads.iter().all(|it| close(it.pace, 1.0)), "no replica is slow beside the others");
}

#[test]
fn with_learning_off_what_was_given_stays() {
    let mut rig = Rig::new(false, 2);
    rig.serve_all(100, |_| 3.0);
    assert!(close(rig.floor_ms(0), FLOOR_MS) && rig.brain.learned_costs().is_empty());
}

#[test]
fn one_slow_replica_is_slow_beside_its_class_and_does_not_teach_it() {
    let mut rig = Rig::new(true, 5);
    rig.serve_all(400, |it| if it == ReplicaId(0) { 6.0 } else { 2.0 });
    assert!(close(rig.floor_ms(1), 2.0 * FLOOR_MS), "{}", rig.floor_ms(1));
    let loads = rig.brain.load(rig.now);
    assert!(loads[1..].iter().all(|it| close(it.pace, 1.0)), "{loads:?}");
}

#[test]
fn a_replica_that_comes_later_is_priced_by_what_its_class_has_learned() {
    let mut rig = Rig::new(true, 2);
    rig.serve_all(120, |_| 3.0);
    let (replica, hardware) = (ReplicaId(7), Arc::new(Hardware::default()));
    rig.tell(Event::Joined { replica, name: "http://new".to_owned(), weight: 1.0, hardware });
    assert!(close(rig.floor_ms(7), 3.0 * FLOOR_MS));
    let other = Arc::new(Hardware::of_steps("other", StepTimes::LLAMA_70B));
    rig.tell(Event::Classed { replica, hardware: other });
    assert!(close(rig.floor_ms(7), StepTimes::LLAMA_70B.floor_ms));
    assert_eq!(rig.brain.learned_costs().len(), 2);
}

#[test]
fn what_was_learned_outlives_a_brain_that_panicked_and_a_restart() {
    let mut rig = Rig::new(true, 2);
    rig.serve_all(120, |_| 3.0);
    let (now, mut actions) = (rig.now, Vec::new());
    let mut rebuild = |inherit| {
        let old = (&mut rig.brain, inherit);
        let brain = Brain::rebuild(now, settings(true), &rig.record, old, &mut actions);
        brain.fleet.get(ReplicaId(0)).unwrap().hardware.step.floor_ms
    };
    assert!(close(rebuild(Inherit::All), 3.0 * FLOOR_MS));
    assert!(close(rebuild(Inherit::Nothing), FLOOR_MS), "a panic may come from what was learned");
    let costs = rig.brain.learned_costs();
    let mut next = Rig::new(true, 2);
    next.tell(Event::Recalled { costs: costs.clone() });
    assert!(close(next.floor_ms(0), 3.0 * FLOOR_MS));
    let mut early = Rig::new(true, 0);
    early.tell(Event::Recalled { costs });
    let (replica, hardware) = (ReplicaId(0), Arc::default());
    early.tell(Event::Joined { replica, name: "http://a".to_owned(), weight: 1.0, hardware });
    assert!(close(early.floor_ms(0), 3.0 * FLOOR_MS), "told before the replica came");
}

#[test]
fn prompts_that_were_read_together_are_one_sighting() {
    let mut rig = Rig::new(true, 1);
    let one = rig.send(1_000, true).0;
    let other = rig.send(3_000, true).0;
    rig.wait(300.0);
    rig.tell(Event::Answering { request: one });
    rig.now = rig.now + Duration::from_micros(100);
    rig.tell(Event::Answering { request: other });
    let seen = |it| rig.brain.books.get(it).unwrap().seen.first;
    let first = seen(one).expect("it was seen");
    assert!(3_000.0 <= first.reading_tokens, "the other's prompt is in it: {first:?}");
    assert!(seen(other).is_none());
}
