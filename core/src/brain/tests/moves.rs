//! Every move of a session has a cause.

use super::*;
use crate::domain::Place;

/// Serves a first turn of the session, does something, serves another, and says why the session moved, if it did.
fn moved_after(
    bench: &mut Bench,
    session: u32,
    change: impl FnOnce(&mut Bench, ReplicaId),
) -> Option<LeaveCause> {
    let home = bench.served(session);
    let before = bench.brain.snapshot().sessions_moved;
    change(bench, home);
    let (request, next) = bench.sent(session);
    bench.tell(Event::Answering { request });
    bench.tell(ended(request, Outcome::Done));
    let after = bench.brain.snapshot().sessions_moved;
    let causes: Vec<LeaveCause> =
        LeaveCause::ALL.into_iter().filter(|it| before.of(*it) < after.of(*it)).collect();
    assert_eq!(after.all() - before.all(), u64::from(next != home), "{causes:?}");
    assert!(causes.len() <= 1, "{causes:?}");
    causes.first().copied()
}

fn priced(replicas: usize) -> Bench {
    let settings = Settings { policy: PolicyKind::PRICED, ..Settings::default() };
    Bench::new(settings, &vec![1.0; replicas])
}

#[test]
fn a_session_that_stays_has_no_cause() {
    assert_eq!(moved_after(&mut priced(3), 1, |_, _| ()), None);
}

#[test]
fn a_lost_home_is_a_cause_whether_it_is_out_or_fails_or_is_gone() {
    let out = moved_after(&mut priced(3), 1, |bench, home| {
        for _ in 0..3 {
            bench.tell(Event::Probed { replica: home, probe: Probe::Refused });
        }
    });
    assert_eq!(out, Some(LeaveCause::Lost));

    let gone = moved_after(&mut priced(3), 1, |bench, home| {
        bench.tell(Event::Leaving { replica: home });
        assert_eq!(bench.state(home), "absent");
    });
    assert_eq!(gone, Some(LeaveCause::Lost));

    let mut bench = priced(3);
    let home = bench.served(1);
    let (request, to) = bench.sent(1);
    assert_eq!(to, home);
    bench.fail(request, Failure::Unreachable);
    assert_eq!(bench.brain.snapshot().sessions_moved.of(LeaveCause::Lost), 1);
}

#[test]
fn an_order_to_empty_the_home_is_a_cause() {
    let ordered = moved_after(&mut priced(3), 1, |bench, home| {
        bench.tell(Event::Ordered(Order::Drain { replica: home }));
    });
    assert_eq!(ordered, Some(LeaveCause::Drained));

    let leaving = moved_after(&mut priced(3), 1, |bench, home| {
        // Something runs there still.
        let (_, to) = bench.sent(1);
        assert_eq!(to, home);
        bench.tell(Event::Leaving { replica: home });
    });
    assert_eq!(leaving, Some(LeaveCause::Drained));
}

#[test]
fn an_overloaded_home_is_a_cause_and_by_how_much_is_counted() {
    let mut bench = priced(2);
    let cause = moved_after(&mut bench, 1, |bench, home| {
        let place = format!("http://gpu-{}:8000", home.0);
        for number in 0..40 {
            let (request, key) = (RequestId(10_000 + number), SliceKey(number));
            let kept_at = Some(Place::of(&place));
            let outline = Outline { prompt_tokens: 30_000, kept_at, ..Outline::default() };
            let (extent, claim) = (Extent::default(), Claim::default());
            bench.tell(Event::Arrived { request, key, outline, extent, claim });
        }
    });
    assert_eq!(cause, Some(LeaveCause::Overloaded));
    let over_ms = bench.brain.snapshot().sessions_moved.over_ms;
    assert!(50.0 < over_ms, "{over_ms}");
}

#[test]
fn a_lot_that_falls_elsewhere_is_a_rebalance_under_the_policy_session() {
    let mut causes = Vec::new();
    for session in 0..40 {
        let mut bench = Bench::session(2);
        causes.extend(moved_after(&mut bench, session, |bench, _| bench.join(7, 1.0)));
    }
    assert!(
        !causes.is_empty() && causes.iter().all(|it| *it == LeaveCause::Rebalanced),
        "{causes:?}"
    );
}

#[test]
fn a_policy_that_keeps_no_sessions_is_a_cause_of_its_own() {
    let settings = Settings { policy: PolicyKind::ROUND_ROBIN, ..Settings::default() };
    let mut bench = Bench::new(settings, &[1.0, 1.0, 1.0]);
    assert_eq!(moved_after(&mut bench, 1, |_, _| ()), Some(LeaveCause::Rule));
}

#[test]
fn an_id_that_another_replica_keeps_is_a_cause() {
    let mut bench = priced(2);
    let home = bench.served(1);
    let kept_at = Some(Place::of(&format!("http://gpu-{}:8000", 1 - home.0)));
    let outline = Outline { prompt_tokens: 100, kept_at, ..Outline::default() };
    let (request, key) = (RequestId(99), SliceKey::new(1, "m", "1"));
    let extent = Extent { text_bytes: 400, ..Extent::default() };
    bench.brain.explain(request);
    bench.tell(Event::Arrived { request, key, outline, extent, claim: Claim::default() });
    assert_eq!(bench.brain.snapshot().sessions_moved.of(LeaveCause::Kept), 1);
    let explained = bench.brain.take_explanation(request).unwrap();
    assert_eq!(explained.moved.map(|it| it.cause), Some(LeaveCause::Kept));
    assert_eq!(explained.why, Why::Kept);
}
