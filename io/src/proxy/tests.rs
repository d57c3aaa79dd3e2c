//! Panics seen by clients: a real listener and real threads in front of replicas that write when they are
//! told to. Whatever panics, a client gets a whole answer, a 503 that says when to come back, or the news
//! in its own stream; and all others get what they would have got.

mod fleet;

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use cleave_core::brain::{Event, Order};
use cleave_core::domain::{Report, RouterId};
use cleave_core::fleet::Probe;
use tokio::task::JoinSet;

use super::pool::{KINDS, Pool, Trap, When};

use fleet::{Answer, Bench, Kind};

/// What makes each kind of event happen that no request brings.
fn provoke(bench: &Bench, pool: &Pool) {
    let members = pool.members();
    let (replica, taken_at) = (members[0].id, bench.router.now());
    let (waiting, running, waiting_tokens, kv_used_share, kv_tokens_max) = Default::default();
    let report =
        Report { taken_at, waiting, running, waiting_tokens, kv_used_share, kv_tokens_max };
    pool.tell(Event::Reported { replica, report });
    pool.tell(Event::Probed { replica, probe: Probe::Passed });
    pool.tell(Event::Heard { router: RouterId(1), news: Vec::new(), is_whole: true });
    pool.tell(Event::Parted { router: RouterId(1), is_lost: true });
    pool.tell(Event::Ordered(Order::Unfreeze));
    pool.tell(Event::Restarted { replica });
    // One more replica, and another weight for the first; then both are taken back.
    bench.apply(true);
    bench.apply(false);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_at_any_event_costs_no_stream_and_what_comes_after_it_is_served() {
    let both = |kind| [(kind, When::Before), (kind, When::After)];
    let rounds: Vec<_> =
        KINDS.into_iter().flat_map(both).filter(|it| *it != ("time", When::After)).collect();
    for some in rounds.chunks(5) {
        let mut at_once = JoinSet::new();
        for (kind, when) in some {
            at_once.spawn(panic_at(kind, *when));
        }
        at_once.join_all().await;
    }
}

async fn panic_at(kind: &'static str, when: When) {
    let bench = Bench::start().await;
    let pool = bench.pool();
    let mut streams = bench.streams(4).await;
    let mut shared = bench.http2().await;
    streams.extend(bench.streams_over(&mut shared, 3).await);
    pool.set_trap(Trap::new(kind, when, 0, 1));
    let asking: Vec<_> = (0..6).map(|it| bench.ask(Kind::of(it))).collect();
    provoke(&bench, &pool);
    // Now the streams go on and end.
    bench.open_gate();
    for answer in asking {
        let answer: Answer = answer.await.unwrap();
        let is_refused = answer.status == 503
            && answer.text.contains("pool_restarted")
            && answer.retry_after.is_some();
        // A replica's own refusal is passed on where no other can be asked.
        let is_fine = answer.is_whole() || is_refused || answer.status == 429;
        assert!(is_fine, "{kind} {when:?}: {answer:?}");
    }
    for stream in streams {
        let answer = stream.rest().await;
        assert!(answer.is_whole(), "{kind} {when:?}: {answer:?}");
    }
    let began = Instant::now();
    while pool.traps_sprung() == 0 {
        // Not every request comes to the replica that is full.
        bench.ask(Kind::Busy).await.unwrap();
        assert!(began.elapsed() < fleet::WAIT_MAX, "{kind} {when:?} did not happen");
    }
    let later = bench.ask(Kind::Stream).await.unwrap();
    assert!(later.is_whole(), "{kind} {when:?}: {later:?}");
    bench.until("the books are empty", || bench.router.in_flight() == 0).await;
    bench.until("the panic is counted", || pool.metrics.panics.get() == 1).await;
    // Time still passes for the pool.
    pool.set_trap(Trap::new("time", When::Before, 1, 1));
    bench.until("the timer lives", || pool.traps_sprung() == 1).await;
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_one_answer_is_told_in_its_stream_and_its_siblings_go_on() {
    let bench = Bench::start().await;
    for over_http2 in [false, true] {
        bench.close_gate();
        let mut shared = bench.http2().await;
        let streams = if over_http2 {
            bench.streams_over(&mut shared, 4).await
        } else {
            bench.streams(4).await
        };
        bench.router.traps.stream.store(1, Relaxed);
        bench.open_gate();
        let mut answers = Vec::new();
        for stream in streams {
            answers.push(stream.rest().await);
        }
        let (whole, cut): (Vec<_>, Vec<_>) = answers.into_iter().partition(Answer::is_whole);
        assert_eq!((whole.len(), cut.len()), (3, 1), "{cut:?}");
        assert!(cut[0].text.contains("router_failed"), "{:?}", cut[0]);
        bench.until("the books are empty", || bench.router.in_flight() == 0).await;
        assert!(bench.ask(Kind::Stream).await.unwrap().is_whole());
    }
    let metrics = bench.router.write_metrics();
    assert!(metrics.contains("cleave_panics_total{kind=\"stream\"} 2"), "{metrics}");
    assert!(metrics.contains("cleave_streams_cut_total{pool=\"p\"} 2"), "{metrics}");
    // The replicas are not to blame.
    let states = bench.pool().snapshot().replicas;
    assert!(states.iter().all(|it| it.state == "up" && it.failed_total == 0), "{states:?}");
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_panic_in_one_request_is_a_500_and_its_books_are_closed_by_others() {
    let bench = Bench::start().await;
    let streams = bench.streams(2).await;
    bench.router.traps.request.store(1, Relaxed);
    let failed = bench.ask(Kind::Stream).await.unwrap();
    assert_eq!(failed.status, 500);
    assert!(failed.text.contains("router_failed"), "{failed:?}");
    bench.until("only the streams are booked", || bench.router.in_flight() == 2).await;
    bench.open_gate();
    for stream in streams {
        assert!(stream.rest().await.is_whole());
    }
    bench.until("the books are empty", || bench.router.in_flight() == 0).await;
    let metrics = bench.router.write_metrics();
    assert!(metrics.contains("cleave_panics_total{kind=\"request\"} 1"), "{metrics}");
    assert!(
        metrics.contains("cleave_requests_total{pool=\"p\",status_class=\"5xx\"} 1"),
        "{metrics}"
    );
    bench.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn panics_at_every_request_are_answered_and_when_they_stop_the_pool_serves() {
    let bench = Bench::start().await;
    bench.open_gate();
    let pool = bench.pool();
    pool.set_trap(Trap::new("arrived", When::After, 0, u32::MAX));
    let began = Instant::now();
    let mut refused = 0;
    while refused < 200 && began.elapsed() < fleet::WAIT_MAX {
        let answer = bench.ask(Kind::Stream).await.unwrap();
        assert_eq!(answer.status, 503, "{answer:?}");
        assert!(answer.retry_after.is_some());
        refused += 1;
    }
    // It rested between panics.
    assert!(pool.metrics.panics.get() < 200);
    pool.set_trap(Trap::default());
    while !bench.ask(Kind::Stream).await.unwrap().is_whole() {
        assert!(began.elapsed() < fleet::WAIT_MAX);
    }
    bench.until("the books are empty", || bench.router.in_flight() == 0).await;
    bench.end().await;
}
