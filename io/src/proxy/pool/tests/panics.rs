//! A pool whose brain panics, at any event, under many hands. No panic leaves the pool, all that waited
//! are answered, and what follows is served with books that close.

use std::sync::atomic::{AtomicBool, AtomicU64};

use cleave_core::brain::{Failure, Order};
use cleave_core::domain::{Extent, Outline, Promise, Report, RouterId};
use cleave_core::queue::{Class, ClassId, Classes, Limits, Tenant, Weight};

use crate::proxy::panics::Panicked;

use super::*;

/// Takes almost five seconds to read, so that one fills a replica.
const LONG: u32 = 64_000;
const TURNS: u64 = 150;
const HANDS: u64 = 4;

fn arrived(request: u64, tokens: u32, class: u8) -> Event {
    let outline = Outline {
        blocks: Arc::new([request]),
        block_tokens: tokens,
        prompt_tokens: tokens,
        output_tokens: Some(100),
        ..Outline::default()
    };
    let extent = Extent { streams: true, ..Extent::default() };
    let claim = Claim { class: Some(ClassId(class)), ..Claim::default() };
    Event::Arrived { request: RequestId(request), key: SliceKey(request), outline, extent, claim }
}

fn ended(request: u64, outcome: Outcome) -> Event {
    Event::Ended { request: RequestId(request), outcome, usage: Usage::default() }
}

fn poll_once<T>(future: impl Future<Output = T>) -> Poll<T> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

fn set(pool: &Pool, trap: Trap) {
    pool.lock().trap = trap;
}

fn panics(pool: &Pool) -> u64 {
    pool.metrics.panics.get()
}

/// Checks that nothing is left of any request.
fn assert_empty(pool: &Pool) {
    let snapshot = pool.snapshot();
    assert_eq!((snapshot.requests_in_flight, snapshot.queue.waiting), (0, 0));
    assert!(snapshot.replicas.iter().all(|it| it.in_flight == 0));
    let brain_state = pool.lock();
    assert!(
        brain_state.waiting.is_empty()
            && brain_state.cancel_signals.is_empty()
            && brain_state.actions.is_empty()
    );
}

/// Runs a future on a runtime of its own.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
}

/// One request from its arrival to its end, with a retry now and then; tells whether it was served.
fn visit(pool: &Pool, request: u64) -> bool {
    let cancel = Arc::default();
    let id = RequestId(request);
    let placed = block_on(place(pool, id, &cancel, arrived(request, 200, 1)));
    let Ok(_) = placed else { return false };
    if request.is_multiple_of(3) {
        let failed = Event::Failed { request: id, failure: Failure::Busy };
        if block_on(place(pool, id, &cancel, failed)).is_err() {
            return false;
        }
    }
    pool.tell(Event::Answering { request: id });
    for output_tokens in [8, 16, 32] {
        pool.tell(Event::Streamed { request: id, output_tokens });
    }
    let done = if request.is_multiple_of(5) { Outcome::Cancelled } else { Outcome::Done };
    pool.tell(ended(request, done));
    true
}

/// Changes everything about a pool that can be changed from outside, once.
fn shake(pool: &Pool, number: u32, ids: &AtomicU32) {
    let mut spec = PoolSettings::clone(&pool.spec());
    let extra = format!("http://extra-{number}:8000").parse().unwrap();
    let settings = spec.replicas[0].clone();
    spec.replicas.push(crate::proxy::settings::ReplicaSettings { origin: extra, ..settings });
    for member in pool.apply(spec.clone(), ids) {
        pool.tell(Event::Probed { replica: member.id, probe: Probe::Passed });
    }
    spec.replicas.pop();
    spec.replicas[0].weight = f64::from(1 + number % 2);
    pool.apply(spec, ids);
    pool.tell(Event::Contracted { limits: vec![(Tenant(1), Limits::default())] });
    let replica = ReplicaId(0);
    let (waiting, running, waiting_tokens, kv_used_share, kv_tokens_max) = Default::default();
    let taken_at = pool.clock.now();
    let report =
        Report { taken_at, waiting, running, waiting_tokens, kv_used_share, kv_tokens_max };
    pool.tell(Event::Reported { replica, report });
    pool.tell(Event::Restarted { replica });
    pool.tell(Event::Heard { router: RouterId(1), news: Vec::new(), is_whole: true });
    pool.tell(Event::Parted { router: RouterId(1), is_lost: true });
    pool.tell(Event::Probed { replica, probe: Probe::Passed });
    pool.tell(Event::Ordered(Order::Unfreeze));
    for member in pool.members().iter() {
        member.on_byte(pool.clock.now());
    }
    let waiting = pool.members()[0].wait();
    pool.on_time();
    drop(waiting);
    pool.on_time();
}

#[test]
fn a_panic_at_any_event_under_load_leaves_a_pool_that_serves_with_empty_books() {
    for kind in KINDS {
        for when in [When::Before, When::After] {
            if kind == "time" && when == When::After {
                continue;
            }
            let pool = made_of(4, PolicyKind::PRICED);
            set(&pool, Trap::new(kind, when, 10, 3));
            let (next, served) = (AtomicU64::new(0), AtomicU64::new(0));
            let (is_over, ids) = (AtomicBool::new(false), AtomicU32::new(100));
            thread::scope(|scope| {
                scope.spawn(|| {
                    let mut number = 0;
                    while !is_over.load(Relaxed) || number < 15 {
                        shake(&pool, number, &ids);
                        number += 1;
                    }
                });
                let work = || {
                    for _ in 0..TURNS {
                        let request = next.fetch_add(1, Relaxed);
                        served.fetch_add(u64::from(visit(&pool, request)), Relaxed);
                    }
                };
                let hands: Vec<_> = (0..HANDS).map(|_| scope.spawn(work)).collect();
                for hand in hands {
                    assert!(hand.join().is_ok(), "a panic left the pool at {kind} {when:?}");
                }
                is_over.store(true, Relaxed);
            });
            assert_eq!(pool.lock().trap.sprung, 3, "{kind} {when:?}");
            assert_eq!(panics(&pool), 3, "{kind} {when:?}");
            // A panic costs those that asked or waited then, and no others.
            let lost = HANDS * TURNS - served.load(Relaxed);
            assert!(lost <= 3 * HANDS, "{lost} at {kind} {when:?}");
            assert_empty(&pool);
            assert!(visit(&pool, 1_000_000), "{kind} {when:?}");
            assert_empty(&pool);
            let snapshot = pool.snapshot();
            let known: Vec<u32> = snapshot.replicas.iter().map(|it| it.id.0).collect();
            let members: Vec<u32> = pool.members().iter().map(|it| it.id.0).collect();
            assert_eq!((&known, &members), (&vec![0, 1, 2, 3], &known), "{kind} {when:?}");
        }
    }
}

#[test]
fn all_that_wait_are_refused_with_a_time_to_come_back_and_the_rest_goes_on() {
    let pool = made_of(1, PolicyKind::PRICED);
    let mut streams = Vec::new();
    let mut waiting = Vec::new();
    for request in 0..20 {
        let cancel = Arc::default();
        let id = RequestId(request);
        let class = if request == 0 { 2 } else { 1 };
        let place = pool.think(|brain_state, now| {
            brain_state.ask(now, id, &cancel, arrived(request, LONG, class))
        });
        match place.unwrap() {
            Asked::Now(verdict) => streams.push((request, verdict.unwrap())),
            Asked::Later(coming) => waiting.push(coming),
        }
    }
    assert!(!streams.is_empty() && !waiting.is_empty(), "{} wait", waiting.len());
    set(&pool, Trap::new("answering", When::After, 0, 1));
    pool.tell(Event::Answering { request: RequestId(streams[0].0) });
    for mut coming in waiting {
        let refusal = coming.try_recv().unwrap().unwrap_err();
        assert_eq!(refusal, Refusal::Restarted { retry_after: RETRY_AFTER });
    }
    // What is at the replica ends as it would have, and its retry is refused.
    let (first, rest) = streams.split_first().unwrap();
    let cancel = Arc::default();
    let failed = Event::Failed { request: RequestId(first.0), failure: Failure::Lost };
    let Poll::Ready(Err(refusal)) = poll_once(place(&pool, RequestId(first.0), &cancel, failed))
    else {
        panic!("it has no place to wait in");
    };
    assert_eq!(refusal.as_str(), "pool_restarted");
    for (request, _) in rest {
        pool.tell(Event::Streamed { request: RequestId(*request), output_tokens: u32::MAX });
        pool.tell(ended(*request, Outcome::Done));
    }
    assert_empty(&pool);
    let (_, told) = pool.events.after(0);
    let told = told.iter().filter(|it| it.incident.kind == "pool" && it.incident.alert);
    assert_eq!((told.count(), panics(&pool)), (1, 1));
}

#[test]
fn panics_in_a_row_make_the_pool_rest_and_it_comes_back() {
    let pool = pool_of(2);
    set(&pool, Trap::new("arrived", When::After, 0, u32::MAX));
    let (mut request, mut refused_at_rest) = (0, 0);
    while refused_at_rest < 3 {
        request += 1;
        let before = panics(&pool);
        let asked =
            poll_once(place(&pool, RequestId(request), &Arc::default(), arrived(request, 9, 1)));
        let Poll::Ready(Err(Refusal::Restarted { retry_after })) = asked else {
            panic!("{asked:?}")
        };
        assert!(RETRY_AFTER <= retry_after);
        refused_at_rest += u64::from(panics(&pool) == before);
    }
    assert!(8 < panics(&pool));
    // What is said meanwhile is not lost.
    let late = Event::Ordered(Order::Drain { replica: ReplicaId(1) });
    pool.tell(late);
    let mut spec = PoolSettings::clone(&pool.spec());
    spec.replicas.pop();
    pool.apply(spec, &AtomicU32::new(9));
    set(&pool, Trap::default());
    while pool.lock().relapses.closed_until().is_some() {
        pool.on_time();
        thread::yield_now();
    }
    assert_eq!(turn(&pool, 1_000, 1), ReplicaId(0));
    assert_eq!(pool.members().len(), 1);
    assert_eq!(pool.assignment().drained.len(), 1);
    assert_empty(&pool);
}

#[test]
fn a_pool_that_cannot_be_rebuilt_refuses_until_it_can() {
    let pool = pool_of(2);
    let mut trap = Trap::new("arrived", When::Before, 0, 1);
    trap.rebuilds = 4;
    set(&pool, trap);
    for request in 0..5 {
        let asked =
            poll_once(place(&pool, RequestId(request), &Arc::default(), arrived(request, 9, 1)));
        assert!(matches!(asked, Poll::Ready(Err(Refusal::Restarted { .. }))), "{asked:?}");
    }
    let (_, told) = pool.events.after(0);
    let detail = told.iter().find_map(|it| it.incident.detail.clone()).unwrap();
    assert!(detail.contains("cannot be rebuilt"), "{detail}");
    while pool.lock().relapses.closed_until().is_some() {
        pool.on_time();
        thread::yield_now();
    }
    turn(&pool, 1_000, 1);
    assert_eq!(pool.lock().trap.rebuilds, 0);
    assert_empty(&pool);
}

#[test]
fn each_panic_in_a_row_leaves_the_new_brain_with_less() {
    let pool = pool_of(2);
    let mut kept = Vec::new();
    for request in 0..6 {
        set(&pool, Trap::new("arrived", When::Before, 0, 1));
        _ = poll_once(place(&pool, RequestId(request), &Arc::default(), arrived(request, 9, 1)));
        let states = pool.snapshot().replicas.iter().map(|it| it.state).collect::<Vec<_>>();
        kept.push(states == ["up"; 2]);
    }
    assert_eq!(kept, [true, true, true, true, false, false]);
    turn(&pool, 100, 1);
}

#[test]
fn whoever_is_unwinding_does_not_call_the_brain_and_its_request_ends_all_the_same() {
    struct Guest<'a>(&'a Pool);
    impl Drop for Guest<'_> {
        fn drop(&mut self) {
            self.0.tell(ended(7, Outcome::Cancelled));
        }
    }
    let pool = pool_of(1);
    let placed = poll_once(place(&pool, RequestId(7), &Arc::default(), arrived(7, 9, 1)));
    assert!(matches!(placed, Poll::Ready(Ok(_))));
    set(&pool, Trap::new("ended", When::Before, 0, 1));
    let unwound = attempt(|| {
        let _guest = Guest(&pool);
        panic!("a mistake in a request");
    });
    assert_eq!(unwound, Err::<(), _>(Panicked));
    assert_eq!((panics(&pool), pool.snapshot().requests_in_flight), (0, 1));
    // The timer tells it, and meets the trap.
    pool.on_time();
    assert_eq!(panics(&pool), 1);
    assert_empty(&pool);
}

#[test]
fn a_wait_for_a_verdict_has_an_end_and_leaves_nothing_behind() {
    let mut pool = made_of(1, PolicyKind::PRICED);
    let it = Arc::get_mut(&mut pool).unwrap();
    it.verdict_margin = Duration::ZERO;
    let class = |name: &str| Class {
        name: name.to_owned(),
        weight: Weight::ONE,
        promise: Promise::default(),
        wait_max: Duration::from_millis(20),
    };
    // The brain lets them wait for longer, as if it made a mistake; nothing wakes it here.
    it.classes = Classes::new(vec![class("a"), class("b"), class("c")], "a").unwrap();
    let mut refused = 0;
    for request in 0..10 {
        let class = if request == 0 { 2 } else { 1 };
        let placed = block_on(place(
            &pool,
            RequestId(request),
            &Arc::default(),
            arrived(request, LONG, class),
        ));
        if let Err(refusal) = placed {
            assert_eq!(refusal, Refusal::WaitedOut { retry_after: RETRY_AFTER });
            refused += 1;
        } else {
            assert_eq!(refused, 0, "nothing is freed");
        }
    }
    assert!(0 < refused);
    assert_eq!(pool.snapshot().queue.waiting, 0);
    assert!(pool.lock().waiting.is_empty());
}
