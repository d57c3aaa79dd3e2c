//! A decision takes no memory per candidate: as many allocations for eight replicas as for 512.
#![cfg(test)]

use allocation_counter::measure;
use cleave_core::brain::{Action, Brain, Event, Outcome, Settings};
use cleave_core::domain::{Extent, Moment, Outline, ReplicaId, RequestId, SliceKey, Usage};
use cleave_core::fleet::Probe;
use cleave_core::policy::PolicyKind;
use cleave_core::protocol::{Allowed, Api, ApiPath, Salting, peek};
use cleave_core::queue::Claim;

const BLOCKS: u64 = 150;
const REQUESTS: u64 = 400;

fn brain(policy: PolicyKind, replicas: u32, actions: &mut Vec<Action>) -> Brain {
    let mut brain = Brain::new(Settings { policy, ..Settings::default() });
    for number in 0..replicas {
        let (replica, name) = (ReplicaId(number), format!("http://gpu-{number}:8000"));
        brain.on_event(
            Moment::ZERO,
            Event::Joined { replica, name, weight: 1.0, hardware: std::sync::Arc::default() },
            actions,
        );
        let passed = Event::Probed { replica, probe: Probe::Passed };
        brain.on_event(Moment::ZERO, passed, actions);
    }
    brain
}

/// Counts the allocations of the last arrival of many, of conversations that come again and again.
fn allocations(policy: PolicyKind, replicas: u32) -> u64 {
    let mut actions = Vec::with_capacity(16);
    let mut brain = brain(policy, replicas, &mut actions);
    let mut last = 0;
    for number in 0..REQUESTS {
        let session = number % 10;
        let blocks = (0..BLOCKS).map(|it| (session << 32) + it + 1).collect();
        let outline = Outline { blocks, ..Outline::default() };
        let request = RequestId(number);
        let key = SliceKey(session);
        let extent = Extent { model: 1, text_bytes: 40_000, block_bytes: 256, ..Extent::default() };
        let arrived = Event::Arrived { request, key, outline, extent, claim: Claim::default() };
        let now = Moment::from_nanos(number);
        last = measure(|| brain.on_event(now, arrived, &mut actions)).count_total;
        brain.on_event(now, Event::Answering { request }, &mut actions);
        let (outcome, usage) = (Outcome::Done, Usage::default());
        brain.on_event(now, Event::Ended { request, outcome, usage }, &mut actions);
        actions.clear();
    }
    last
}

#[test]
fn a_decision_allocates_nothing_per_candidate() {
    for policy in [PolicyKind::PRICED, PolicyKind::SESSION, PolicyKind::POWER_OF_TWO] {
        let (few, many) = (allocations(policy, 8), allocations(policy, 512));
        // In debug builds the invariants that follow every event take two more.
        let most = if cfg!(debug_assertions) { 4 } else { 2 };
        assert!(many <= few && few <= most, "{policy}: {few} for 8 replicas, {many} for 512");
    }
}

#[test]
fn a_body_that_goes_out_as_it_came_costs_no_memory_to_find_that_out() {
    let body = br#"{"model":"m","messages":[{"role":"user","content":"hi"}],"n":1,"seed":3}"#;
    let found = peek(Api::Chat, body).unwrap();
    let looked = measure(|| {
        assert!(ApiPath::read("/v1/chat/completions").is_ok());
        assert_eq!(found.chosen_salts(Allowed::default()).count(), 0);
        assert_eq!(found.edits(Allowed::default(), Salting::Never), Ok(Vec::new()));
    });
    assert_eq!(looked.count_total, 0);
}
