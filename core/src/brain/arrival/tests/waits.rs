//! What is written down of requests that wait.

use super::*;

#[test]
fn what_a_request_waited_for_is_written_down_with_what_was_predicted() {
    let mut bench = Bench::new(1, holding());
    let full = bench.fill();
    let first_token_by = Some(bench.now + Duration::from_secs(9));
    let (request, _) = bench.arrive(1, 1_000, Claim { first_token_by, ..of(7, 1) });
    let (behind, _) = bench.arrive(2, 1_000, Claim { first_token_by, ..of(7, 1) });
    bench.wait(0.5);
    bench.answer(full);
    let waited = bench.waited(request);
    assert_eq!((waited.class.as_str(), waited.tenant), ("standard", Tenant(7)));
    assert_eq!(waited.cause, Some(Cause::Knee));
    assert_eq!(waited.span(), Duration::from_millis(500));
    let expected = waited.wait_expected.as_secs_f64();
    assert!((2.0..5.0).contains(&expected), "a long prompt is read before it: {expected}");
    assert_eq!(waited.first_token_within, Some(Duration::from_secs(9)));
    let idle_ms = waited.first_token_ms;
    assert!((10.0..500.0).contains(&idle_ms), "{waited:?}");
    let sent_within = waited.sent_within.unwrap().as_secs_f64() * 1e3;
    assert!((sent_within + idle_ms - 9_000.0).abs() < 1.0, "{waited:?}");
    assert!(waited.ahead_mu < 1e-9 && 0.0 < bench.waited(behind).ahead_mu);
}

#[test]
fn what_a_request_waited_for_is_known_without_a_mark() {
    let mut bench = Bench::new(1, holding());
    let first = bench.fill();
    let (held, verdicts) = bench.arrive_unmarked(7, LONG, of(0, 2));
    assert_eq!(verdicts, [], "it waits");
    bench.wait(0.5);
    assert_eq!(sent(&bench.answer(first)), [held]);
    let (expected, waited) = bench.brain.take_expected(RequestId(held));
    assert!(0.0 < expected.unwrap().ttft_ms);
    let waited = waited.expect("it was held");
    assert_eq!((waited.cause, waited.tenant), (Some(Cause::Knee), Tenant(0)));
    assert_eq!(bench.brain.take_explanation(RequestId(held)), None, "its reasons are not written");
    assert_eq!(bench.brain.take_expected(RequestId(held)).1, None, "taken once");
}

/// Two replicas that both read for more than a second, of which one has session 7 in its cache; and a
/// turn of that session and a new session, which both wait. Returns the replicas, first the one with the
/// cache, then what is read at the other, then the two that wait.
fn two_that_wait(bench: &mut Bench) -> ([ReplicaId; 2], u64, [u64; 2]) {
    two_that_wait_with(bench, LONG, of(1, 1))
}

/// The same with a turn of `turn` tokens by `claim`.
fn two_that_wait_with(
    bench: &mut Bench,
    turn: u32,
    claim: Claim,
) -> ([ReplicaId; 2], u64, [u64; 2]) {
    let (first, verdicts) = bench.arrive(7, turn, of(1, 1));
    let home = verdicts[0].1.unwrap();
    bench.answer(first);
    bench.end(first, Usage { input: Some(turn), output: Some(1), cached: Some(0) });
    let read: Vec<(u64, ReplicaId)> = [8, 9]
        .map(|it| bench.arrive(it, 24_000, of(1, 1)).1[0])
        .map(|(request, placed)| (request, placed.unwrap()))
        .into();
    let (elsewhere, other) = read.into_iter().find(|it| it.1 != home).expect("each reads one");
    let waiting = [(7, turn, claim), (10, 1_000, of(1, 1))].map(|(session, tokens, claim)| {
        let (request, verdicts) = bench.arrive(session, tokens, claim);
        assert_eq!(verdicts, [], "both replicas read");
        request
    });
    ([home, other], elsewhere, waiting)
}

#[test]
fn a_request_waits_where_its_cache_is_rather_than_be_read_whole_elsewhere() {
    let mut bench = Bench::new(2, holding());
    let ([home, other], read, [turn, fresh]) = two_that_wait(&mut bench);
    let mut verdicts = bench.answer(read);
    verdicts.sort_by_key(|it| it.0);
    assert_eq!(verdicts, [(turn, Ok(home)), (fresh, Ok(other))]);
}

#[test]
fn a_request_with_a_deadline_waits_where_its_cache_is_while_it_is_in_time_there() {
    let mut bench = Bench::new(2, holding());
    let first_token_by = Some(bench.now + Duration::from_secs(4));
    let claim = Claim { first_token_by, ..of(1, 1) };
    let ([home, _], read, [turn, _]) = two_that_wait_with(&mut bench, LONG, claim);
    let verdicts = bench.answer(read);
    assert!(verdicts.contains(&(turn, Ok(home))), "elsewhere it is late: {verdicts:?}");
}

#[test]
fn a_small_cache_is_not_worth_a_wait() {
    let mut bench = Bench::new(2, holding());
    let ([_, other], read, [turn, _]) = two_that_wait_with(&mut bench, 2_000, of(1, 1));
    let verdicts = bench.answer(read);
    assert!(verdicts.contains(&(turn, Ok(other))), "{verdicts:?}");
}

#[test]
fn without_prices_a_session_waits_for_its_own_replica() {
    let line = holding();
    let settings = Settings { policy: PolicyKind::SESSION, line, ..Settings::default() };
    let mut bench = Bench::with(2, settings);
    let ([home, other], read, [turn, fresh]) = two_that_wait(&mut bench);
    let verdicts = bench.answer(read);
    assert!(verdicts.contains(&(turn, Ok(home))), "{verdicts:?}");
    assert!(verdicts.contains(&(fresh, Ok(other))), "{verdicts:?}");
}

#[test]
fn a_request_whose_cache_is_gone_goes_where_there_is_room() {
    let mut bench = Bench::new(2, holding());
    let ([home, other], read, [turn, _]) = two_that_wait(&mut bench);
    bench.tell(Event::Restarted { replica: home });
    let verdicts = bench.answer(read);
    assert!(verdicts.contains(&(turn, Ok(other))), "{verdicts:?}");
}
