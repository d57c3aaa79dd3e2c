//! What explanations promise.

use crate::brain::{Action, Event, Failure, Outcome, Settings};
use crate::domain::{Outline, Usage};
use crate::fleet::Probe;
use crate::queue::Claim;

use super::*;

struct Fleet {
    brain: Brain,
    requests: u64,
}

impl Fleet {
    fn new(policy: PolicyKind, replicas: u32) -> Self {
        let brain = Brain::new(Settings::without_line(policy));
        let mut fleet = Self { brain, requests: 0 };
        for number in 0..replicas {
            let (replica, name) = (ReplicaId(number), format!("http://gpu-{number}:8000"));
            let hardware = std::sync::Arc::default();
            fleet.tell(Event::Joined { replica, name, weight: 1.0, hardware });
            fleet.tell(Event::Probed { replica, probe: Probe::Passed });
        }
        fleet
    }

    fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.brain.on_event(Moment::ZERO, event, &mut actions);
        actions
    }

    /// Sends a prompt of the session, of blocks `from` on, marked.
    fn send(&mut self, session: u64, from: u64) -> (RequestId, Explanation) {
        let request = RequestId(self.requests);
        self.requests += 1;
        self.brain.explain(request);
        let outline = Outline {
            blocks: (from..from + 100).collect(),
            block_tokens: 64,
            prompt_tokens: 6500,
            output_tokens: Some(100),
            ..Outline::default()
        };
        let (key, extent) = (SliceKey(session), crate::domain::Extent::default());
        let actions =
            self.tell(Event::Arrived { request, key, outline, extent, claim: Claim::default() });
        let explanation = self.brain.take_explanation(request).unwrap();
        let sent = Action::Send { request, replica: explanation.replica };
        assert_eq!(actions, [sent], "it explains what is done");
        (request, explanation)
    }

    fn end(&mut self, request: RequestId) {
        self.tell(Event::Answering { request });
        self.tell(Event::Ended { request, outcome: Outcome::Done, usage: Usage::default() });
    }
}

#[test]
fn a_session_goes_where_its_cache_is_and_its_terms_add_up() {
    let mut fleet = Fleet::new(PolicyKind::PRICED, 3);
    let (request, first) = fleet.send(1, 0);
    assert_eq!((first.why, first.candidates, first.considered.len()), (Why::Cheapest, 3, 3));
    fleet.end(request);
    let (_, next) = fleet.send(1, 0);
    assert_eq!((next.why, next.replica, next.name), (Why::Cache, first.replica, first.name));
    let terms = next.terms.unwrap();
    assert_eq!(terms.cached_tokens, 6400);
    assert!(terms.wait_ms + terms.prefill_ms <= terms.ttft_ms + 1e-9, "{terms:?}");
    assert!((terms.ttft_ms - next.ttft_ms).abs() < 1e-6, "the books say the same");
    assert_eq!(next.considered[0].replica, next.replica, "the cheapest is first");
    assert!(next.considered.iter().all(|it| terms.price_ms <= it.terms.unwrap().price_ms));
}

#[test]
fn prices_add_up_to_what_is_shown_as_their_sum() {
    let mut fleet = Fleet::new(PolicyKind::PRICED, 5);
    for number in 0..5 {
        let weight = [1.0, 0.3, 2.5, 1.0, 0.7][usize::try_from(number).unwrap()];
        fleet.tell(Event::Weighed { replica: ReplicaId(number), weight });
    }
    for number in 0..60 {
        let (_, it) = fleet.send(number % 4, number % 9 * 1000);
        for terms in it.considered.iter().filter_map(|it| it.terms) {
            let off = (terms.sum_ms() - terms.price_ms).abs();
            assert!(off <= 1e-9 * terms.price_ms.max(1.0), "{terms:?}");
            let shown = terms.rounded();
            assert!((shown.sum_ms() - shown.price_ms).abs() < 1e-6, "{shown:?}");
            assert!((shown.price_ms - terms.price_ms).abs() < 0.4, "{shown:?}");
        }
    }
}

#[test]
fn of_a_request_that_is_not_marked_the_books_say_what_was_expected() {
    let mut fleet = Fleet::new(PolicyKind::PRICED, 2);
    let (request, explained) = fleet.send(1, 0);
    let (expected, waited) = fleet.brain.take_expected(request);
    let expected = expected.unwrap();
    assert_eq!((expected.prompt_tokens, expected.output_tokens), (6500, Some(100)));
    assert!((expected.ttft_ms - explained.ttft_ms).abs() < 1e-9 && 0.0 < expected.gap_ms);
    assert_eq!((expected.moved_from, waited), (None, None));
    fleet.end(request);
    assert_eq!(fleet.brain.take_expected(request), (None, None), "it is over");
}

#[test]
fn leaving_the_cache_for_a_shorter_line_is_said_to_be_that() {
    let mut fleet = Fleet::new(PolicyKind::PRICED, 2);
    let (request, first) = fleet.send(1, 0);
    fleet.end(request);
    // Other prompts stand in line at its home, because no other replica takes them.
    let other = ReplicaId(1 - first.replica.0);
    fleet.tell(Event::Weighed { replica: other, weight: 0.0 });
    (1..20).for_each(|it| drop(fleet.send(2, 1000 * it)));
    fleet.tell(Event::Weighed { replica: other, weight: 1.0 });
    let (_, next) = fleet.send(1, 0);
    assert_eq!((next.replica, next.why), (other, Why::Wait));
    let terms = next.terms.unwrap();
    let home = next.considered.iter().find(|it| it.replica == first.replica).unwrap();
    assert!(terms.ttft_ms < home.terms.unwrap().ttft_ms && terms.cached_tokens == 0);
}

#[test]
fn other_reasons_are_told_apart() {
    let mut one = Fleet::new(PolicyKind::PRICED, 1);
    assert_eq!(one.send(1, 0).1.why, Why::Only);
    let mut two = Fleet::new(PolicyKind::ROUND_ROBIN, 2);
    let (request, first) = two.send(1, 0);
    assert_eq!((first.why, first.terms), (Why::Rule, None));
    two.brain.explain(request);
    two.tell(Event::Failed { request, failure: Failure::Busy });
    let again = two.brain.take_explanation(request).unwrap();
    assert_eq!((again.why, again.candidates), (Why::Retry, 1));
    assert_ne!(again.replica, first.replica);
}

#[test]
fn a_replica_that_only_keeps_its_sessions_is_a_reason_too() {
    let mut fleet = Fleet::new(PolicyKind::SESSION, 2);
    let (request, first) = fleet.send(1, 0);
    fleet.end(request);
    fleet.tell(Event::Weighed { replica: first.replica, weight: 0.0 });
    let (_, next) = fleet.send(1, 0);
    assert_eq!((next.why, next.replica, next.candidates), (Why::Home, first.replica, 0));
}

#[test]
fn others_are_asked_and_their_predictions_added_up() {
    let mut fleet = Fleet::new(PolicyKind::PRICED, 4);
    for _ in 0..40 {
        let (request, explanation) = fleet.send(1, 0);
        let asked: Vec<PolicyKind> = explanation.others.iter().map(|it| it.policy).collect();
        assert_eq!(asked, OTHERS);
        fleet.end(request);
    }
    let shadows = fleet.brain.shadows();
    assert_eq!(shadows.decisions_total, 40);
    let (round_robin, ttft_ms) = shadows.others_ttft_ms[0];
    assert_eq!(round_robin, PolicyKind::ROUND_ROBIN);
    // Three of four times it would have missed the cache.
    assert!(10.0 * shadows.chosen_ttft_ms < ttft_ms, "{shadows:?}");
}

#[test]
fn of_many_candidates_the_cheapest_and_the_chosen_are_kept() {
    let mut fleet = Fleet::new(PolicyKind::ROUND_ROBIN, 100);
    (0..50).for_each(|_| drop(fleet.send(1, 0)));
    let (_, explanation) = fleet.send(1, 0);
    assert_eq!(explanation.candidates, 100);
    assert!(explanation.considered.len() <= CONSIDERED_MAX + 1);
    assert!(explanation.considered.iter().any(|it| it.replica == explanation.replica));
}

#[test]
fn explaining_changes_no_decision() {
    for policy in [PolicyKind::PRICED, PolicyKind::POWER_OF_TWO, PolicyKind::ROUND_ROBIN] {
        let (mut marked, mut plain) = (Fleet::new(policy, 8), Fleet::new(policy, 8));
        for number in 0..200 {
            let (_, explanation) = marked.send(number % 7, number % 5 * 1000);
            let request = RequestId(number);
            let outline = Outline {
                blocks: (number % 5 * 1000..number % 5 * 1000 + 100).collect(),
                block_tokens: 64,
                prompt_tokens: 6500,
                output_tokens: Some(100),
                ..Outline::default()
            };
            let key = SliceKey(number % 7);
            let extent = crate::domain::Extent::default();
            let actions = plain.tell(Event::Arrived {
                request,
                key,
                outline,
                extent,
                claim: Claim::default(),
            });
            assert_eq!(actions, [Action::Send { request, replica: explanation.replica }]);
        }
    }
}

#[test]
fn marks_are_bounded_and_go_with_their_request() {
    let mut fleet = Fleet::new(PolicyKind::SESSION, 1);
    (0..5000).for_each(|it| fleet.brain.explain(RequestId(it)));
    assert_eq!(fleet.brain.explaining.marked.len(), MARKED_MAX);
    let request = RequestId(7);
    let (key, outline, extent) =
        (SliceKey(1), Outline::default(), crate::domain::Extent::default());
    fleet.tell(Event::Arrived { request, key, outline, extent, claim: Claim::default() });
    fleet.end(request);
    assert_eq!(fleet.brain.take_explanation(request), None);
}
