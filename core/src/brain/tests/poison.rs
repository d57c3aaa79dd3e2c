//! Requests that bring replicas down, and those that were only there when one went down.

use indexmap::IndexMap;

use super::hangs::is_quarantined;
use super::*;

impl Bench {
    /// Sends a copy of a prompt in a session of its own; says where it went, if anywhere.
    fn copy(&mut self, prompt: u64) -> (RequestId, Vec<Action>) {
        let request = RequestId(self.requests);
        self.requests += 1;
        let key = SliceKey::new(1, "m", &format!("copy {request}"));
        let outline = Outline {
            blocks: Arc::new([prompt]),
            block_tokens: 64,
            prompt_tokens: 100,
            output_tokens: None,
            ..Outline::default()
        };
        let extent = Extent { streams: true, digest: 7, ..Extent::default() };
        let claim = Claim::default();
        let actions = self.tell(Event::Arrived { request, key, outline, extent, claim });
        (request, actions)
    }

    fn finish(&mut self, request: RequestId) -> Vec<Action> {
        self.tell(Event::Answering { request });
        self.tell(ended(request, Outcome::Done))
    }
}

fn refusals(actions: &[Action]) -> Vec<&'static str> {
    actions.iter().filter_map(|it| it.verdict()?.1.err().map(Refusal::as_str)).collect()
}

#[test]
fn a_request_that_brings_two_replicas_down_is_not_sent_to_a_third() {
    let mut bench = Bench::session(8);
    let (poison, first) = bench.open_stream(1, 100);
    let second = target(&bench.die(poison, first)).expect("one death proves nothing");
    assert!(is_quarantined(&bench.die(poison, second)));
    let again = RequestId(bench.requests);
    bench.requests += 1;
    let outline = Outline {
        blocks: Arc::new([2]),
        block_tokens: 64,
        prompt_tokens: 100,
        output_tokens: None,
        ..Outline::default()
    };
    let extent = Extent { streams: true, digest: 7, ..Extent::default() };
    let key = SliceKey::new(1, "m", "another");
    let actions = bench.tell(Event::Arrived {
        request: again,
        key,
        outline,
        extent,
        claim: Claim::default(),
    });
    assert!(is_quarantined(&actions), "the same prompt in another session");
    bench.open_stream(3, 100);
    assert_eq!(bench.brain.snapshot().quarantined, 1);
}

#[test]
fn bystanders_of_a_poisonous_request_are_served() {
    let mut bench = Bench::session(8);
    let sent: Vec<(RequestId, ReplicaId)> = (0..200).map(|it| bench.open_stream(it, 100)).collect();
    let mut at: IndexMap<RequestId, ReplicaId> = sent.iter().copied().collect();
    let poison = sent[0].0;
    let (mut deaths, mut refused) = (0, Vec::new());
    // The replica that has the poisonous request dies at once, with everything it has.
    while let Some(dead) = at.get(&poison).copied() {
        deaths += 1;
        assert!(deaths <= 3, "it walks through the fleet");
        let there: Vec<RequestId> = at.iter().filter(|it| *it.1 == dead).map(|it| *it.0).collect();
        for request in there {
            let actions = bench.die(request, dead);
            at.swap_remove(&request);
            if let Some(next) = target(&actions) {
                at.insert(request, next);
            } else {
                refused.push(request);
            }
        }
    }
    assert_eq!(refused, [poison]);
    for request in at.keys() {
        bench.tell(Event::Answering { request: *request });
        bench.tell(ended(*request, Outcome::Done));
    }
}

#[test]
fn a_poisonous_request_sent_again_and_again_takes_two_replicas_however_fast_it_kills() {
    for failure in [Failure::Died, Failure::Lost] {
        let mut bench = Bench::session(8);
        let mut dead = Vec::new();
        let mut told = Vec::new();
        for _ in 0..3 {
            let (poison, mut actions) = bench.copy(1);
            while let Some(replica) = target(&actions) {
                dead.push(replica);
                actions = bench.fail(poison, failure);
            }
            told.extend(refusals(&actions));
            // The probes come back only now.
            for replica in &dead {
                let refused = Event::Probed { replica: *replica, probe: Probe::Refused };
                told.extend(refusals(&bench.tell(refused)));
            }
        }
        assert_eq!((dead.len(), told), (2, vec!["quarantined"; 3]), "{failure:?}");
    }
}

#[test]
fn copies_of_a_suspect_wait_until_one_of_them_was_served() {
    let mut bench = Bench::session(8);
    let (first, actions) = bench.copy(1);
    let dead = target(&actions).unwrap();
    assert_ne!(target(&bench.die(first, dead)).unwrap(), dead, "one death proves nothing");
    let (second, actions) = bench.copy(1);
    let (third, more) = bench.copy(1);
    assert_eq!((target(&actions), target(&more)), (None, None), "one at a time");
    let (_, other) = bench.copy(2);
    assert!(target(&other).is_some(), "others do not wait");
    let sent: Vec<RequestId> =
        bench.finish(first).iter().filter_map(|it| it.verdict()).map(|it| it.0).collect();
    assert_eq!(sent, [second, third]);
    assert!(target(&bench.copy(1).1).is_some(), "it is cleared");
}

#[test]
fn copies_in_flight_together_take_no_more_than_they_are_on() {
    let mut bench = Bench::session(8);
    let copies: Vec<(RequestId, ReplicaId)> = (0..4)
        .map(|_| {
            let (request, actions) = bench.copy(1);
            (request, target(&actions).unwrap())
        })
        .collect();
    let mut hit: Vec<ReplicaId> = copies.iter().map(|it| it.1).collect();
    hit.sort_unstable();
    hit.dedup();
    let mut sent = Vec::new();
    for (request, replica) in &copies {
        sent.extend(target(&bench.die(*request, *replica)));
    }
    let (_, actions) = bench.copy(1);
    assert!(is_quarantined(&actions));
    let allowed = usize::from(hit.len() == 1);
    assert!(sent.len() <= allowed, "{sent:?} after {hit:?}");
}

#[test]
fn one_that_waits_for_long_is_told_why_and_one_whose_client_leaves_is_forgotten() {
    let mut bench = Bench::session(8);
    let (first, actions) = bench.copy(1);
    let dead = target(&actions).unwrap();
    bench.die(first, dead);
    let (waits, actions) = bench.copy(1);
    assert_eq!(actions, []);
    let (leaves, _) = bench.copy(1);
    assert_eq!(bench.tell(ended(leaves, Outcome::Cancelled)), []);
    for _ in 0..16 {
        bench.tell(Event::Streamed { request: first, output_tokens: 8 });
        assert!(refusals(&bench.pass(250)).is_empty());
    }
    let actions = bench.pass(1250);
    assert_eq!(refusals(&actions), ["suspected"]);
    assert_eq!(actions.iter().filter_map(|it| it.verdict()).map(|it| it.0).next(), Some(waits));
    assert!(bench.brain.poison.hold.is_empty());
}

#[test]
fn connections_that_break_without_a_death_delay_a_request_and_do_not_end_it() {
    let mut bench = Bench::session(8);
    let (request, _) = bench.copy(1);
    assert!(target(&bench.fail(request, Failure::Lost)).is_some());
    assert_eq!(target(&bench.fail(request, Failure::Lost)), None, "were they deaths?");
    let actions = bench.pass(2500);
    assert!(target(&actions).is_some() && refusals(&actions).is_empty(), "{actions:?}");
}

#[test]
fn a_prompt_that_completes_all_day_neither_waits_nor_is_held_when_replicas_die_under_it() {
    let mut bench = Bench::session(8);
    for _ in 0..40 {
        let (request, _) = bench.copy(1);
        bench.finish(request);
    }
    for _ in 0..5 {
        let copies: Vec<(RequestId, Vec<Action>)> = (0..3).map(|_| bench.copy(1)).collect();
        for (request, actions) in copies {
            let replica = target(&actions).expect("no request waits");
            bench.die(request, replica);
            bench.finish(request);
            bench.tell(Event::Probed { replica, probe: Probe::Passed });
            bench.wait(70);
        }
    }
    assert_eq!(bench.brain.snapshot().quarantined_total, 0);
}

#[test]
fn a_copy_that_was_under_way_ends_a_quarantine_that_was_a_mistake() {
    let mut bench = Bench::session(8);
    let copies: Vec<(RequestId, ReplicaId)> = (0..12)
        .map(|_| {
            let (request, actions) = bench.copy(1);
            (request, target(&actions).unwrap())
        })
        .collect();
    let (survivor, there) = copies[0];
    let elsewhere: Vec<(RequestId, ReplicaId)> =
        copies.iter().copied().filter(|it| it.1 != there).collect();
    let one = elsewhere[0];
    let other = *elsewhere.iter().find(|it| it.1 != one.1).expect("they are spread");
    bench.die(one.0, one.1);
    bench.die(other.0, other.1);
    assert!(is_quarantined(&bench.copy(1).1), "the only one at both");
    bench.finish(survivor);
    let notices = bench.brain.take_notices();
    assert!(notices.iter().any(|it| matches!(it, Notice::Acquitted { .. })));
    assert!(!is_quarantined(&bench.copy(1).1));
}

#[test]
fn where_all_are_one_workload_two_crashing_prompts_stop_no_new_session() {
    let mut bench = Bench::session(8);
    let mut deaths = Vec::new();
    for prompt in 1..=6 {
        let (poison, mut actions) = bench.copy(prompt);
        let mut dead = Vec::new();
        while let Some(replica) = target(&actions) {
            dead.push(replica);
            actions = bench.die(poison, replica);
            actions.extend(bench.pass(250));
        }
        assert!(is_quarantined(&actions), "{actions:?}");
        deaths.push(dead.len());
        bench.wait(5);
        for replica in dead {
            bench.tell(Event::Probed { replica, probe: Probe::Passed });
            bench.tell(Event::Probed { replica, probe: Probe::Generated });
            assert_eq!(bench.state(replica), "up", "its death was not its fault");
        }
    }
    assert_eq!(deaths, [2, 1, 1, 1, 1, 1]);
    for prompt in 100..200 {
        let (request, actions) = bench.copy(prompt);
        assert!(target(&actions).is_some(), "{actions:?}");
        bench.finish(request);
    }
    assert!(is_quarantined(&bench.copy(1).1));
}
