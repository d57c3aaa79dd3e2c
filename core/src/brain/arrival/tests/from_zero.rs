//! A pool without a replica that gets one when work waits, and what is counted of that work.

use super::*;

fn scaled(ready_s: u64) -> Bench {
    let mut bench = Bench::new(0, holding());
    bench.follow(ready_s);
    bench
}

impl Bench {
    fn follow(&mut self, ready_s: u64) {
        let ready_in = Some(Duration::from_secs(ready_s));
        self.tell(Event::Scaling { ready_in, hardware: Arc::default() });
    }

    fn start(&mut self, number: u32) {
        let (replica, name) = (ReplicaId(number), format!("http://gpu-{number}:8000"));
        self.tell(Event::Joined { replica, name, weight: 1.0, hardware: Arc::default() });
    }
}

fn refusal(verdicts: &[(u64, Verdict)]) -> Refusal {
    verdicts[0].1.expect_err("it is refused")
}

#[test]
fn the_first_requests_are_held_and_answered_by_the_replica_that_comes() {
    let mut bench = scaled(20);
    let (first, verdicts) = bench.arrive(1, 1_000, of(0, 1));
    assert_eq!(verdicts, [], "it waits");
    assert_eq!(bench.arrive(2, 1_000, of(0, 1)).1, []);
    let sample = bench.brain.take_sample(bench.now);
    assert!(0.0 < sample.held_mu && sample.held_mu <= sample.offered_mu + 1e-9, "{sample:?}");
    assert_eq!((sample.ready, sample.starting), (0, 0));
    assert_eq!(bench.wait(10.0), [], "longer than requests wait for a replica that is out");
    bench.start(0);
    assert_eq!(bench.wait(5.0), [], "it loads its model");
    assert_eq!(bench.brain.take_sample(bench.now).starting, 1);
    let replica = ReplicaId(0);
    let verdicts = bench.tell(Event::Probed { replica, probe: Probe::Passed });
    let sent: Vec<u64> = verdicts.iter().map(|it| it.0).collect();
    assert_eq!(sent, [first, first + 1], "{verdicts:?}");
    assert!(bench.brain.take_sample(bench.now).held_mu < 1e-9);
}

#[test]
fn a_request_that_cannot_wait_that_long_is_refused_at_once_and_told_when_to_come() {
    let ready = Duration::from_secs(200);
    let mut bench = scaled(200);
    // `standard` waits 120 seconds at most.
    let (_, verdicts) = bench.arrive(1, 1_000, of(0, 1));
    assert_eq!(refusal(&verdicts), Refusal::NoReplica { retry_after: ready });
    let first_token_by = Some(bench.now + Duration::from_secs(60));
    let (_, verdicts) = bench.arrive(2, 1_000, Claim { first_token_by, ..of(0, 2) });
    assert_eq!(refusal(&verdicts), Refusal::DeadlineUnmeetable { retry_after: ready });
    let (_, verdicts) = bench.arrive(3, 1_000, of(0, 2));
    assert_eq!(verdicts, [], "`batch` waits ten minutes");
    let sample = bench.brain.take_sample(bench.now);
    assert!(0.0 < sample.refused_mu, "what is refused still asks for a replica: {sample:?}");
    bench.follow(60);
    assert_eq!(bench.arrive(4, 1_000, of(0, 1)).1, [], "one that was asked for comes sooner");
}

#[test]
fn without_scaling_a_pool_without_a_replica_refuses_at_once() {
    let mut bench = scaled(20);
    bench.tell(Event::Scaling { ready_in: None, hardware: Arc::default() });
    let (_, verdicts) = bench.arrive(1, 1_000, of(0, 1));
    assert!(matches!(refusal(&verdicts), Refusal::NoReplica { .. }));
}

#[test]
fn a_fault_is_not_a_pool_that_starts() {
    let mut bench = Bench::new(1, holding());
    bench.follow(20);
    let replica = ReplicaId(0);
    for _ in 0..5 {
        bench.tell(Event::Probed { replica, probe: Probe::Refused });
    }
    assert_eq!(bench.brain.take_sample(bench.now).unhealthy, 1);
    let (request, _) = bench.arrive(1, 1_000, of(0, 1));
    let verdicts = bench.wait(4.0);
    assert!(verdicts.iter().all(|it| it.0 == request && it.1.is_err()), "{verdicts:?}");
}

#[test]
fn the_same_prompt_refused_and_sent_again_is_offered_once() {
    let mut bench = scaled(200);
    for _ in 0..5 {
        bench.arrive(1, 1_000, of(0, 1));
        bench.wait(1.0);
    }
    let often = bench.brain.take_sample(bench.now);
    let mut bench = scaled(200);
    bench.arrive(1, 1_000, of(0, 1));
    let once = bench.brain.take_sample(bench.now);
    assert!((often.offered_mu - once.offered_mu).abs() < 1e-9, "{often:?} {once:?}");
}

#[test]
fn what_a_tenant_asks_for_beyond_its_contract_buys_nothing() {
    let mut bench = Bench::new(1, holding());
    bench.follow(20);
    let limits = Limits { requests_per_min: Some(1), ..Limits::default() };
    bench.tell(Event::Contracted { limits: vec![(Tenant(7), limits)] });
    for session in 0..50 {
        bench.arrive(session, 1_000, of(7, 1));
    }
    let sample = bench.brain.take_sample(bench.now);
    assert!(sample.offered_mu < 0.2 * sample.beyond_contract_mu, "{sample:?}");
}

#[test]
fn a_replica_whose_sessions_will_return_is_worth_more_than_an_idle_one() {
    let mut bench = Bench::new(2, holding());
    bench.follow(20);
    let (request, verdicts) = bench.arrive(1, 20_000, of(0, 1));
    let home = verdicts[0].1.unwrap();
    bench.answer(request);
    let usage = Usage { input: Some(20_000), output: Some(100), cached: None };
    bench.tell(Event::Ended { request: RequestId(request), outcome: Outcome::Done, usage });
    let holdings = bench.brain.holdings(bench.now);
    let worth = |it: ReplicaId| holdings.iter().find(|at| at.replica == it).unwrap().cache_ms;
    let other = holdings.iter().map(|it| it.replica).find(|it| *it != home).unwrap();
    assert!(worth(other) < worth(home), "{holdings:?}");
    assert_eq!(crate::scaling::victims(&holdings, 1), [other]);
    bench.tell(Event::Ordered(Order::Drain { replica: other }));
    assert_eq!(bench.brain.drained(), [other]);
    assert_eq!(bench.brain.take_sample(bench.now).ready, 1, "one that is drained does not count");
    let place = crate::domain::Place::of(&format!("http://gpu-{}:8000", other.0));
    bench.tell(Event::Ordered(Order::Forget { place }));
    assert_eq!(bench.brain.take_sample(bench.now).ready, 2);
}
