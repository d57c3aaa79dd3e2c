//! Contracts that are hard or soft, and what their tenants are told is left.

use super::*;

fn limited(is_hard: bool) -> Bench {
    let mut bench = Bench::new(2, holding());
    let limits = Limits { requests_per_min: Some(20), is_hard, ..Limits::default() };
    bench.tell(Event::Contracted { limits: vec![(Tenant(1), limits)] });
    bench
}

fn remaining(bench: &mut Bench) -> u64 {
    bench.brain.contract(bench.now, Tenant(1)).unwrap().requests_remaining.unwrap()
}

#[test]
fn beyond_a_hard_contract_a_request_is_refused_also_on_an_idle_fleet() {
    let mut bench = limited(true);
    let (first, verdicts) = bench.arrive(1, 100, of(1, 1));
    assert_eq!(sent(&verdicts), [first]);
    let (_, verdicts) = bench.arrive(2, 100, of(1, 1));
    let Err(Refusal::OverContract { limit, retry_after }) = verdicts[0].1 else {
        panic!("{verdicts:?}")
    };
    assert_eq!((limit, retry_after), ("requests", Duration::from_secs(3)));
    assert_eq!(remaining(&mut bench), 0, "and that is what its tenant is told");

    let mut bench = limited(false);
    for session in 1..10 {
        let (request, verdicts) = bench.arrive(session, 100, of(1, 1));
        assert_eq!(sent(&verdicts), [request], "where it is soft, what is idle may be used");
    }
}

#[test]
fn what_remains_is_what_would_be_served() {
    let mut bench = limited(false);
    assert_eq!(remaining(&mut bench), 20, "the fleet is idle");
    bench.arrive(1, 100, of(1, 1));
    assert_eq!(remaining(&mut bench), 20, "also after the first request");
    for session in 2..5 {
        bench.arrive(session, LONG, of(2, 1));
    }
    assert_eq!(remaining(&mut bench), 0, "nothing is idle any more");
    let (_, verdicts) = bench.arrive(9, 100, of(1, 1));
    assert!(matches!(verdicts[..], [(_, Err(Refusal::OverContract { .. }))]), "{verdicts:?}");
}

#[test]
fn a_request_that_its_contract_refuses_is_explained_without_a_mark() {
    let mut bench = limited(true);
    bench.arrive(1, 100, of(1, 1));
    let (marked, _) = bench.arrive(2, 100, of(1, 1));
    let (other, _) = bench.arrive_unmarked(3, 100, of(1, 1));
    let taken = bench.brain.take_expected(RequestId(other)).1.expect("it was written down");
    for waited in [bench.waited(marked), taken] {
        assert_eq!((waited.cause, waited.tenant), (Some(Cause::Contract), Tenant(1)));
        let over = waited.over.expect("by its contract");
        assert_eq!((over.limit, over.per_min, over.is_hard), ("requests", 20.0, true));
        assert_eq!((over.at_once, over.used, over.needed), (1.0, 1.0, 1.0));
        assert_eq!(over.retry_after, Duration::from_secs(3));
    }
    assert_eq!(bench.brain.take_expected(RequestId(other)).1, None, "taken once");
}
