//! What the brain promises, as events and the actions they must bring.

mod blame;
mod books;
mod capacity;
mod figures;
mod hangs;
mod learning;
mod moves;
mod peers;
mod poison;
mod policy;
mod property;
mod record;

use std::sync::Arc;

use super::*;
use crate::domain::{Extent, Outline, ReplicaId, RequestId, SliceKey, Usage};
use crate::fleet::Probe;
use crate::policy::PolicyKind;
use crate::queue::Claim;

/// A brain with its own clock and request numbers.
struct Bench {
    brain: Brain,
    now: Moment,
    requests: u64,
}

impl Bench {
    fn new(settings: Settings, weights: &[f64]) -> Self {
        let mut bench = Self { brain: Brain::new(settings), now: Moment::ZERO, requests: 0 };
        for (number, weight) in (0_u32..).zip(weights) {
            bench.join(number, *weight);
        }
        bench
    }

    fn session(replicas: usize) -> Self {
        Self::new(by_session(), &vec![1.0; replicas])
    }

    fn join(&mut self, number: u32, weight: f64) {
        let replica = ReplicaId(number);
        let (name, hardware) = (format!("http://gpu-{number}:8000"), Arc::default());
        self.tell(Event::Joined { replica, name, weight, hardware });
        self.tell(Event::Probed { replica, probe: Probe::Passed });
    }

    /// Tells one event. The brain itself checks every invariant after it.
    fn tell(&mut self, event: Event) -> Vec<Action> {
        let mut actions = Vec::new();
        self.brain.on_event(self.now, event, &mut actions);
        actions
    }

    fn time(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.brain.on_time(self.now, &mut actions);
        actions
    }

    fn wait(&mut self, seconds: u64) {
        self.now = self.now + Duration::from_secs(seconds);
    }

    fn arrive(&mut self, session: u32) -> (RequestId, Vec<Action>) {
        let request = RequestId(self.requests);
        self.requests += 1;
        let key = SliceKey::new(1, "m", &session.to_string());
        let blocks = [u64::from(session % 3), 100 + u64::from(session)];
        let outline = Outline {
            blocks: Arc::new(blocks),
            block_tokens: 64,
            prompt_tokens: 140,
            output_tokens: None,
            ..Outline::default()
        };
        (
            request,
            self.tell(Event::Arrived {
                request,
                key,
                outline,
                extent: Extent::default(),
                claim: Claim::default(),
            }),
        )
    }

    /// Sends one request of the session and says where it went.
    fn sent(&mut self, session: u32) -> (RequestId, ReplicaId) {
        let (request, actions) = self.arrive(session);
        (request, target(&actions).expect("a replica takes it"))
    }

    /// One whole good request; says where it went.
    fn served(&mut self, session: u32) -> ReplicaId {
        let (request, replica) = self.sent(session);
        self.tell(Event::Answering { request });
        self.tell(ended(request, Outcome::Done));
        replica
    }

    fn fail(&mut self, request: RequestId, failure: Failure) -> Vec<Action> {
        self.tell(Event::Failed { request, failure })
    }

    fn state(&self, replica: ReplicaId) -> &'static str {
        let snapshot = self.brain.snapshot();
        snapshot.replicas.iter().find(|it| it.id == replica).map_or("absent", |it| it.state)
    }
}

fn by_session() -> Settings {
    Settings { policy: PolicyKind::SESSION, ..Settings::default() }
}

fn ended(request: RequestId, outcome: Outcome) -> Event {
    Event::Ended { request, outcome, usage: Usage::default() }
}

fn target(actions: &[Action]) -> Option<ReplicaId> {
    actions.iter().find_map(|action| match action {
        Action::Send { replica, .. } => Some(*replica),
        Action::Refuse { .. }
        | Action::Release { .. }
        | Action::GiveUp { .. }
        | Action::Ask { .. } => None,
    })
}

#[test]
fn a_session_stays_and_only_sessions_of_a_lost_replica_move() {
    let mut bench = Bench::session(4);
    let homes: Vec<ReplicaId> = (0..100).map(|it| bench.served(it)).collect();
    let lost = homes[0];
    bench.tell(Event::Leaving { replica: lost });
    for (session, home) in (0..100).zip(&homes) {
        let now = bench.served(session);
        assert!(now != lost && (*home == lost || *home == now));
    }
    let moved = u64::try_from(homes.iter().filter(|it| **it == lost).count()).unwrap();
    assert_eq!(bench.brain.snapshot().sessions_moved.all(), moved);
}

#[test]
fn weight_zero_keeps_its_sessions_and_takes_no_new_one() {
    let mut bench = Bench::session(2);
    let homes: Vec<ReplicaId> = (0..50).map(|it| bench.served(it)).collect();
    bench.tell(Event::Weighed { replica: ReplicaId(0), weight: 0.0 });
    for (session, home) in (0..50).zip(homes) {
        assert_eq!(bench.served(session), home);
    }
    for session in 50..100 {
        assert_eq!(bench.served(session), ReplicaId(1));
    }
}

#[test]
fn a_session_of_a_closed_replica_is_new_again_after_its_time() {
    let mut bench = Bench::new(by_session(), &[1.0]);
    assert_eq!(bench.served(0), ReplicaId(0));
    bench.join(1, 1.0);
    bench.tell(Event::Weighed { replica: ReplicaId(0), weight: 0.0 });
    bench.wait(3600);
    assert_eq!(bench.served(0), ReplicaId(0));
    bench.wait(3602);
    assert_eq!(bench.served(0), ReplicaId(1));
}

#[test]
fn a_failed_try_goes_elsewhere_and_never_back() {
    let mut bench = Bench::session(3);
    let (request, first) = bench.sent(0);
    let second = target(&bench.fail(request, Failure::Unreachable)).unwrap();
    let third = target(&bench.fail(request, Failure::Status)).unwrap();
    let mut all = [first, second, third];
    all.sort();
    assert_eq!(all, [ReplicaId(0), ReplicaId(1), ReplicaId(2)]);
    let actions = bench.fail(request, Failure::Status);
    assert_eq!(actions, [Action::Refuse { request, refusal: Refusal::TriesSpent }]);
    assert_eq!(bench.brain.snapshot().requests_in_flight, 0);
}

#[test]
fn three_failed_connections_put_a_replica_out_and_a_token_brings_it_back() {
    let mut bench = Bench::session(2);
    let home = bench.served(0);
    for _ in 0..3 {
        let (request, replica) = bench.sent(0);
        assert_eq!(replica, home);
        bench.fail(request, Failure::Unreachable);
        bench.tell(ended(request, Outcome::Done));
    }
    assert_eq!(bench.state(home), "out");
    assert_ne!(bench.served(0), home);
    bench.wait(1);
    let actions = bench.tell(Event::Probed { replica: home, probe: Probe::Passed });
    assert!(matches!(actions[..], [Action::Ask { replica, .. }] if replica == home), "{actions:?}");
    assert_ne!(bench.served(0), home, "no client's request tries it");
    bench.tell(Event::Probed { replica: home, probe: Probe::Generated });
    assert_eq!(bench.state(home), "up");
    assert_eq!(bench.served(0), home);
}

#[test]
fn a_replica_that_cannot_be_asked_for_a_token_comes_back_by_one_trial() {
    let mut bench = Bench::session(2);
    let home = bench.served(0);
    for _ in 0..3 {
        let (request, _) = bench.sent(0);
        bench.fail(request, Failure::Unreachable);
        bench.tell(ended(request, Outcome::Done));
    }
    bench.tell(Event::Probed { replica: home, probe: Probe::Passed });
    bench.tell(Event::Probed { replica: home, probe: Probe::Unable });
    let (trial, replica) = bench.sent(0);
    assert_eq!((replica, bench.state(home)), (home, "trial"));
    assert_ne!(bench.served(0), home, "one trial at a time");
    bench.tell(Event::Answering { request: trial });
    assert_eq!(bench.state(home), "up");
    assert_eq!(bench.served(0), home);
}

#[test]
fn a_trial_whose_client_leaves_is_not_held_against_anybody() {
    let mut bench = Bench::session(1);
    for _ in 0..3 {
        let (request, _) = bench.sent(0);
        bench.fail(request, Failure::Unreachable);
    }
    bench.wait(2);
    let (trial, _) = bench.sent(0);
    bench.tell(ended(trial, Outcome::Cancelled));
    assert_eq!(bench.sent(0).1, ReplicaId(0));
}

#[test]
fn a_request_that_fails_everywhere_is_itself_to_blame() {
    let mut bench = Bench::session(3);
    for session in 0..20 {
        let (request, _) = bench.sent(session);
        (0..3).for_each(|_| _ = bench.fail(request, Failure::Status));
    }
    assert!((0..3).all(|it| bench.state(ReplicaId(it)) == "up"));
}

#[test]
fn errors_that_another_replica_does_not_give_are_blamed() {
    let mut bench = Bench::session(2);
    let home = bench.served(0);
    for _ in 0..3 {
        let (request, replica) = bench.sent(0);
        assert_eq!(replica, home);
        bench.fail(request, Failure::Status);
        bench.tell(Event::Answering { request });
        bench.tell(ended(request, Outcome::Done));
    }
    let snapshot = bench.brain.snapshot();
    let it = snapshot.replicas.iter().find(|it| it.id == home).unwrap();
    assert_eq!((it.state, it.reason), ("out", Some("failing")));
}

#[test]
fn retries_end_when_the_budget_is_spent() {
    let retries = RetrySettings { tries_max: 3, share: 0.0, reserve: 2 };
    let mut bench = Bench::new(Settings { retries, ..by_session() }, &[1.0; 8]);
    let refused: Vec<bool> = (0..4)
        .map(|session| {
            let (request, _) = bench.sent(session);
            target(&bench.fail(request, Failure::Busy)).is_none()
        })
        .collect();
    assert_eq!(refused, [false, false, true, true]);
}

#[test]
fn with_nobody_there_the_refusal_says_when_somebody_may_be() {
    let mut bench = Bench::new(by_session(), &[]);
    let second = Duration::from_secs(1);
    let refuse = |request, retry_after| {
        [Action::Refuse { request, refusal: Refusal::NoReplica { retry_after } }]
    };
    let (request, actions) = bench.arrive(0);
    assert_eq!(actions, refuse(request, second));
    bench.join(0, 1.0);
    for _ in 0..3 {
        let (request, _) = bench.sent(0);
        bench.fail(request, Failure::Unreachable);
    }
    // It will be tried again in two seconds, which a request may wait for; where none may wait, it is told.
    let (_, actions) = bench.arrive(0);
    assert_eq!(actions, []);
    let mut bench = Bench::new(Settings::without_line(PolicyKind::SESSION), &[1.0]);
    for _ in 0..3 {
        let (request, _) = bench.sent(0);
        bench.fail(request, Failure::Unreachable);
    }
    let (request, actions) = bench.arrive(0);
    assert_eq!(actions, refuse(request, 2 * second));
}

#[test]
fn a_request_waits_for_a_replica_that_is_tried_soon_and_no_longer_than_that() {
    for comes_back in [true, false] {
        let mut bench = Bench::new(by_session(), &[1.0]);
        for _ in 0..3 {
            let (request, _) = bench.sent(0);
            bench.fail(request, Failure::Unreachable);
        }
        let (request, actions) = bench.arrive(1);
        assert_eq!(actions, []);
        bench.wait(2);
        let replica = ReplicaId(0);
        if comes_back {
            let actions = bench.tell(Event::Probed { replica, probe: Probe::Passed });
            assert!(actions.contains(&Action::Send { request, replica }), "{actions:?}");
        } else {
            bench.wait(2);
            let actions = bench.time();
            let is_told = |it: &Action| {
                matches!(it, Action::Refuse { request: told, refusal: Refusal::NoReplica { .. } }
                    if *told == request)
            };
            assert!(actions.iter().any(is_told), "{actions:?}");
        }
    }
}

#[test]
fn a_replica_that_has_not_shown_itself_is_the_last_resort() {
    let mut bench = Bench::session(1);
    let (replica, name) = (ReplicaId(1), "http://late:8000".to_owned());
    bench.tell(Event::Joined { replica, name, weight: 1000.0, hardware: Arc::default() });
    assert!((0..50).all(|session| bench.served(session) == ReplicaId(0)));
    bench.tell(Event::Leaving { replica: ReplicaId(0) });
    assert_eq!(bench.served(0), replica);
}

#[test]
fn a_leaving_replica_is_released_when_its_last_stream_ends() {
    let mut bench = Bench::session(1);
    let (request, replica) = bench.sent(0);
    assert_eq!(bench.tell(Event::Leaving { replica }), []);
    bench.tell(Event::Answering { request });
    let actions = bench.tell(ended(request, Outcome::Done));
    assert_eq!(actions, [Action::Release { replica }]);
    assert_eq!(bench.state(replica), "absent");
}

#[test]
fn nothing_ends_twice() {
    let mut bench = Bench::session(1);
    let (request, _) = bench.sent(0);
    for _ in 0..2 {
        bench.tell(ended(request, Outcome::Done));
        // A request that reports a failure waits for a verdict.
        let refusal = Refusal::Restarted { retry_after: RETRY_AFTER };
        assert_eq!(bench.fail(request, Failure::Status), [Action::Refuse { request, refusal }]);
    }
}
