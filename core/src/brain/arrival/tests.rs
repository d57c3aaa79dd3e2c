//! What holding promises, as events and the verdicts they must bring.

use std::sync::Arc;
use std::time::Duration;

use crate::domain::{Extent, Moment, Outline, ReplicaId, Report, RequestId, SliceKey, Usage};
use crate::fleet::Probe;
use crate::policy::PolicyKind;
use crate::queue::{self, Claim, ClassId, Limits, Tenant, Work};

use super::super::{
    Action, Brain, Cause, Event, Failure, LeaveCause, LineSettings, Order, Outcome, Refusal,
    Settings, SubsetSettings, TenantSnapshot, Waited,
};

mod contracts;
mod divided;
mod from_zero;
mod kept;
mod nowhere;
mod traffic;
mod waits;

type Verdict = Result<ReplicaId, Refusal>;

/// A brain with its own clock. One long prompt fills a replica until its prefill is done.
struct Bench {
    brain: Brain,
    now: Moment,
    requests: u64,
}

impl Bench {
    fn new(replicas: u32, line: LineSettings) -> Self {
        Self::divided(replicas, line, SubsetSettings::default())
    }

    fn divided(replicas: u32, line: LineSettings, subsets: SubsetSettings) -> Self {
        Self::with(
            replicas,
            Settings { policy: PolicyKind::PRICED, line, subsets, ..Settings::default() },
        )
    }

    fn with(replicas: u32, settings: Settings) -> Self {
        let now = Moment::ZERO + Duration::from_secs(1_000);
        let mut bench = Self { brain: Brain::new(settings), now, requests: 0 };
        for number in 0..replicas {
            let replica = ReplicaId(number);
            let (name, hardware) = (format!("http://gpu-{number}:8000"), Arc::default());
            bench.tell(Event::Joined { replica, name, weight: 1.0, hardware });
            bench.tell(Event::Probed { replica, probe: Probe::Passed });
        }
        bench
    }

    fn tell(&mut self, event: Event) -> Vec<(u64, Verdict)> {
        let mut actions = Vec::new();
        self.brain.on_event(self.now, event, &mut actions);
        Self::verdicts(&actions)
    }

    fn wait(&mut self, seconds: f64) -> Vec<(u64, Verdict)> {
        self.now = self.now + Duration::from_secs_f64(seconds);
        let mut actions = Vec::new();
        self.brain.on_time(self.now, &mut actions);
        Self::verdicts(&actions)
    }

    fn verdicts(actions: &[Action]) -> Vec<(u64, Verdict)> {
        actions.iter().filter_map(|it| it.verdict()).map(|it| (it.0.0, it.1)).collect()
    }

    /// Has a request arrive; returns its number and what was decided.
    fn arrive(&mut self, session: u64, tokens: u32, claim: Claim) -> (u64, Vec<(u64, Verdict)>) {
        self.brain.explain(RequestId(self.requests));
        self.arrive_unmarked(session, tokens, claim)
    }

    fn arrive_unmarked(
        &mut self,
        session: u64,
        tokens: u32,
        claim: Claim,
    ) -> (u64, Vec<(u64, Verdict)>) {
        let request = self.requests;
        self.requests += 1;
        let outline = Outline {
            blocks: Arc::new([session]),
            block_tokens: tokens,
            prompt_tokens: tokens,
            output_tokens: Some(100),
            ..Outline::default()
        };
        let (key, extent) = (SliceKey(session), Extent { streams: true, ..Extent::default() });
        let arrived = Event::Arrived { request: RequestId(request), key, outline, extent, claim };
        (request, self.tell(arrived))
    }

    /// Takes what was written down of a request that was sent or refused.
    fn waited(&mut self, request: u64) -> Waited {
        let waited = self.brain.take_waited(RequestId(request)).expect("it was marked");
        self.brain.take_explanation(RequestId(request));
        waited
    }

    /// Fills the one replica with a long prompt; returns its request.
    fn fill(&mut self) -> u64 {
        let (request, verdicts) = self.arrive(1_000_000, LONG, of(0, 2));
        assert!(verdicts[0].1.is_ok(), "{verdicts:?}");
        request
    }

    fn answer(&mut self, request: u64) -> Vec<(u64, Verdict)> {
        self.tell(Event::Answering { request: RequestId(request) })
    }

    fn end(&mut self, request: u64, usage: Usage) -> Vec<(u64, Verdict)> {
        let (request, outcome) = (RequestId(request), Outcome::Done);
        self.tell(Event::Ended { request, outcome, usage })
    }

    fn tenant(&self, tenant: u64) -> TenantSnapshot {
        let all = self.brain.tenants();
        all.into_iter().find(|it| it.tenant == Tenant(tenant)).unwrap()
    }
}

fn holding() -> LineSettings {
    LineSettings { holds: true, ..LineSettings::default() }
}

/// Takes almost five seconds to read.
const LONG: u32 = 64_000;

fn of(tenant: u64, class: u8) -> Claim {
    Claim { tenant: Tenant(tenant), class: Some(ClassId(class)), ..Claim::default() }
}

fn sent(verdicts: &[(u64, Verdict)]) -> Vec<u64> {
    verdicts.iter().filter(|it| it.1.is_ok()).map(|it| it.0).collect()
}

#[test]
fn an_idle_fleet_holds_nobody() {
    let mut bench = Bench::new(2, holding());
    for session in 0..50 {
        let (request, verdicts) = bench.arrive(session, 100, Claim::default());
        assert_eq!(sent(&verdicts), [request]);
    }
}

#[test]
fn past_the_knee_requests_wait_and_go_by_class_when_capacity_shows() {
    let mut bench = Bench::new(1, holding());
    let full = bench.fill();
    let (batch, none) = bench.arrive(1, 100, of(1, 2));
    assert_eq!(none, []);
    let (standard, _) = bench.arrive(2, 100, of(2, 1));
    let (interactive, _) = bench.arrive(3, 100, of(3, 0));
    assert_eq!(bench.brain.snapshot().queue.waiting, 3);
    // All three are small: once a prompt is read, there is room for them, in their order.
    assert_eq!(sent(&bench.answer(full)), [interactive, standard, batch]);
}

#[test]
fn with_nobody_to_hold_for_everybody_is_sent_at_once() {
    let mut bench = Bench::new(1, LineSettings::off());
    bench.fill();
    for session in 0..500 {
        assert_eq!(sent(&bench.arrive(session, LONG, of(1, 2)).1).len(), 1);
    }
}

#[test]
fn who_leaves_the_line_frees_the_place_at_once() {
    let mut bench = Bench::new(1, holding());
    let full = bench.fill();
    let (gone, _) = bench.arrive(1, 100, of(1, 1));
    let (stays, _) = bench.arrive(2, 100, of(1, 1));
    let (request, usage) = (RequestId(gone), Usage::default());
    assert_eq!(bench.tell(Event::Ended { request, outcome: Outcome::Cancelled, usage }), []);
    assert_eq!(bench.brain.snapshot().queue.waiting, 1);
    assert_eq!(sent(&bench.answer(full)), [stays]);
}

#[test]
fn what_cannot_be_in_time_is_refused_at_once_and_what_no_longer_can_be_leaves() {
    let mut bench = Bench::new(1, holding());
    let by = |ms: u64, now: Moment| Claim {
        first_token_by: Some(now + Duration::from_millis(ms)),
        ..of(1, 1)
    };
    let (request, verdicts) = bench.arrive(1, LONG, by(100, bench.now));
    let is_late = |it: &Verdict| matches!(it, Err(Refusal::DeadlineUnmeetable { retry_after }) if Duration::from_secs(1) <= *retry_after);
    assert!(verdicts[0].0 == request && is_late(&verdicts[0].1), "{verdicts:?}");
    bench.fill();
    let (request, verdicts) = bench.arrive(2, 100, by(2_000, bench.now));
    assert_eq!(verdicts, []);
    assert_eq!(bench.wait(1.9), []);
    let verdicts = bench.wait(0.1);
    let has_passed = matches!(verdicts[..], [(it, Err(Refusal::DeadlinePassed { retry_after }))] if it == request && Duration::ZERO < retry_after);
    assert!(has_passed, "{verdicts:?}");
}

#[test]
fn a_class_waits_no_longer_than_it_may() {
    let mut bench = Bench::new(1, holding());
    bench.fill();
    let (request, _) = bench.arrive(1, 100, of(1, 0));
    let woken = bench.brain.next_wakeup().unwrap();
    assert!(woken <= bench.now + Duration::from_secs(1));
    let verdicts = bench.wait(30.0);
    assert!(matches!(verdicts[..], [(it, Err(Refusal::WaitedOut { .. }))] if it == request));
}

#[test]
fn a_full_line_turns_away_whoever_floods_it() {
    let limits = queue::QueueLimits { count_max: 3, bytes_max: 1 << 20 };
    let mut bench = Bench::new(1, LineSettings { limits, ..holding() });
    bench.fill();
    (0..3).for_each(|it| _ = bench.arrive(it, 100, of(1, 1)));
    let (_, verdicts) = bench.arrive(3, 100, of(1, 1));
    assert!(matches!(verdicts[..], [(4, Err(Refusal::LineFull { .. }))]), "{verdicts:?}");
    let (_, verdicts) = bench.arrive(4, 100, of(2, 1));
    assert!(matches!(verdicts[..], [(3, Err(Refusal::LineFull { .. }))]), "{verdicts:?}");
    assert_eq!(bench.tenant(0).usage.reserved, 4, "those that wait, and the one that runs");
}

#[test]
fn beyond_a_contract_only_idle_capacity_is_used_and_the_books_close() {
    let mut bench = Bench::new(1, holding());
    let limits = Limits { work_per_min: Some(Work::from_mu(0.001)), ..Limits::default() };
    bench.tell(Event::Contracted { limits: vec![(Tenant(1), limits)] });
    let (first, verdicts) = bench.arrive(1, 1_000, of(1, 1));
    assert_eq!(sent(&verdicts), [first]);
    let (second, verdicts) = bench.arrive(2, 1_000, of(1, 1));
    assert_eq!(sent(&verdicts), [second], "no other tenant wants it");
    let full = bench.fill();
    let (third, verdicts) = bench.arrive(3, 1_000, of(1, 1));
    let [(refused, Err(Refusal::OverContract { limit: "mu", retry_after }))] = verdicts[..] else {
        panic!("{verdicts:?}");
    };
    assert_eq!(refused, third);
    assert!(Duration::from_secs(10) < retry_after, "{retry_after:?}");
    let usage = Usage { input: Some(1_000), output: Some(50), cached: Some(0) };
    for request in [first, second, full] {
        bench.answer(request);
        bench.end(request, usage);
    }
    let used = bench.tenant(1).usage;
    assert_eq!((used.reserved, used.used[0].requests, used.used[2].requests), (0, 1, 1));
    assert_eq!(used.used[0].tokens, 1_050);
    assert_eq!(used.used[0].work, used.used[2].work);
}

#[test]
fn a_stream_is_counted_as_it_flows() {
    let mut bench = Bench::new(1, holding());
    let limits = Limits { tokens_per_min: Some(60_000), ..Limits::default() };
    bench.tell(Event::Contracted { limits: vec![(Tenant(1), limits)] });
    let (request, _) = bench.arrive(1, 1_000, of(1, 1));
    let left = |bench: &Bench| bench.tenant(1).usage.tokens_remaining.unwrap();
    let before = left(&bench);
    bench.answer(request);
    bench.tell(Event::Streamed { request: RequestId(request), output_tokens: 1_100 });
    assert_eq!(before - left(&bench), 1_000, "a hundred were expected");
}

#[test]
fn new_sessions_wait_while_memory_is_full_and_later_turns_pass() {
    let mut bench = Bench::new(1, LineSettings { gates: true, ..holding() });
    let report = Report {
        taken_at: bench.now,
        waiting: 0,
        running: 0,
        waiting_tokens: None,
        kv_used_share: 0.5,
        kv_tokens_max: Some(1_700),
    };
    bench.tell(Event::Reported { replica: ReplicaId(0), report });
    bench.wait(1.0);
    // More than the fleet could compute again: else no session waits.
    let (huge, _) = bench.arrive(9, 4_000_000, of(1, 1));
    bench.answer(huge);
    bench.end(huge, Usage { input: Some(1), output: Some(1), cached: None });
    let (first, verdicts) = bench.arrive(1, 1_900, of(1, 1));
    assert_eq!(sent(&verdicts), [first], "it is alone");
    let (fresh, verdicts) = bench.arrive(2, 100, of(1, 1));
    assert_eq!(verdicts, []);
    let (turn, verdicts) = bench.arrive(1, 1_950, of(1, 1));
    assert_eq!(sent(&verdicts), [turn], "its session lives");
    let usage = Usage { input: Some(1_950), output: Some(10), cached: Some(1_800) };
    for request in [first, turn] {
        bench.answer(request);
        let verdicts = bench.end(request, usage);
        let let_in: &[u64] = if request == turn { &[fresh] } else { &[] };
        assert_eq!(sent(&verdicts), let_in, "it waits while anything is done");
    }
}

#[test]
fn long_prompts_of_a_lesser_class_leave_a_door_open() {
    let mut bench = Bench::new(4, holding());
    let mut verdicts = Vec::new();
    for session in 0..10 {
        let (request, _) = bench.arrive(1_000 + session, 1_000, of(2, 0));
        bench.answer(request);
        bench.end(request, Usage::default());
    }
    (0..10).for_each(|it| verdicts.extend(bench.arrive(it, LONG, of(1, 2)).1));
    assert_eq!(sent(&verdicts).len(), 3);
    let (interactive, verdicts) = bench.arrive(100, 1_000, of(2, 0));
    assert_eq!(sent(&verdicts), [interactive]);
    let placed = verdicts[0].1.unwrap();
    let in_flight: Vec<u32> =
        bench.brain.snapshot().replicas.iter().map(|it| it.in_flight).collect();
    assert_eq!(in_flight[usize::try_from(placed.0).unwrap()], 1, "where no long one is read");
}

#[test]
fn a_drained_replica_is_no_room() {
    let mut bench = Bench::new(2, holding());
    let drained = ReplicaId(1);
    bench.tell(Event::Ordered(Order::Drain { replica: drained }));
    bench.fill();
    let (request, verdicts) = bench.arrive(1, 100, of(1, 1));
    assert_eq!(verdicts, [], "the one that is left is full");
    let verdicts = bench.tell(Event::Ordered(Order::Undrain { replica: drained }));
    assert_eq!(verdicts, [(request, Ok(drained))]);
}

#[test]
fn one_that_waits_while_its_twin_is_quarantined_is_refused_when_its_turn_comes() {
    let mut bench = Bench::new(3, holding());
    let (poison, verdicts) = bench.arrive(1, LONG, of(1, 1));
    assert_eq!(sent(&verdicts), [poison]);
    let others: Vec<u64> = (2..4).map(|it| bench.arrive(it, LONG, of(2, 1)).0).collect();
    let (twin, verdicts) = bench.arrive(1, LONG, of(1, 1));
    assert_eq!(verdicts, [], "every replica is full");
    let died = Event::Failed { request: RequestId(poison), failure: Failure::Died };
    assert_eq!(sent(&bench.tell(died.clone())), [poison], "one death proves nothing");
    let verdicts = bench.tell(died);
    let [(refused, Err(Refusal::Quarantined { .. }))] = verdicts[..] else {
        panic!("{verdicts:?}");
    };
    assert_eq!(refused, poison);
    let mut verdicts: Vec<(u64, Verdict)> =
        others.iter().flat_map(|it| bench.answer(*it)).filter(|it| it.0 == twin).collect();
    verdicts.extend(bench.wait(1.0).into_iter().filter(|it| it.0 == twin));
    assert!(matches!(verdicts[..], [(_, Err(Refusal::Quarantined { .. }))]), "{verdicts:?}");
    assert_eq!(bench.tenant(0).usage.reserved, 2, "those that are answered");
}

#[test]
fn the_prediction_is_looked_at_again_when_it_leaves_the_line() {
    let mut bench = Bench::new(1, holding());
    let full = bench.fill();
    let by = |ms: u64, now: Moment| Claim {
        first_token_by: Some(now + Duration::from_millis(ms)),
        ..of(1, 1)
    };
    // Each takes about 0.4 s to read; there is time for the first of them once there is room.
    let read: Vec<u64> = (1..4).map(|it| bench.arrive(it, 8_000, by(5_700, bench.now)).0).collect();
    bench.wait(5.0);
    let mut verdicts = bench.answer(full);
    for request in &read {
        verdicts.extend(bench.answer(*request));
    }
    let fates: Vec<&str> =
        verdicts.iter().map(|it| it.1.map_or_else(Refusal::as_str, |_| "sent")).collect();
    assert_eq!(fates[0], "sent", "{verdicts:?}");
    assert!(fates.contains(&"deadline_unmeetable"), "{verdicts:?}");
}

#[test]
fn without_a_line_too_what_cannot_be_in_time_is_not_sent() {
    let mut bench = Bench::new(1, LineSettings::off());
    bench.fill();
    let first_token_by = Some(bench.now + Duration::from_secs(2));
    let (request, verdicts) = bench.arrive(1, 100, Claim { first_token_by, ..of(1, 1) });
    let is_late =
        matches!(verdicts[..], [(it, Err(Refusal::DeadlineUnmeetable { .. }))] if it == request);
    assert!(is_late, "the other takes longer: {verdicts:?}");
    let waited = bench.waited(request);
    assert!(2_000.0 < waited.first_token_ms && waited.cause.is_none(), "{waited:?}");
    let first_token_by = Some(bench.now + Duration::from_secs(20));
    let (request, verdicts) = bench.arrive(2, 100, Claim { first_token_by, ..of(1, 1) });
    assert_eq!(sent(&verdicts), [request]);
}
