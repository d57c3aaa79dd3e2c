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
