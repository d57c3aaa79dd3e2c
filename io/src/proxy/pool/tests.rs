//! A pool under many hands.

mod panics;

use std::pin::pin;
use std::sync::atomic::AtomicU32;
use std::task::{Context, Poll, Waker};
use std::thread;

use cleave_core::brain::{self, Action, Outcome, SessionSettings};
use cleave_core::domain::{ReplicaId, RequestId, SliceKey, Usage};
use cleave_core::fleet::Probe;
use cleave_core::policy::PolicyKind;
use cleave_core::queue::Claim;

use crate::proxy::cancel::CancelSignal;
use crate::proxy::testing;
use crate::telemetry::Metrics;

use super::brain_state::Asked;
use super::recovery::RETRY_AFTER;
use super::*;

const SESSIONS: u64 = 1_000_000;
const THREADS: u64 = 8;
const TABLE_BYTES: usize = 1 << 20;
/// Bytes the table takes for one session.
const SESSION_BYTES: usize = 16;

fn pool_of(replicas: u32) -> Arc<Pool> {
    made_of(replicas, PolicyKind::SESSION)
}

fn made_of(replicas: u32, policy: PolicyKind) -> Arc<Pool> {
    let addresses: Vec<String> =
        (0..replicas).map(|it| format!("http://replica-{it}:8000")).collect();
    let sessions = SessionSettings { bytes_max: TABLE_BYTES, ..SessionSettings::default() };
    let brain = brain::Settings { policy, sessions, ..brain::Settings::default() };
    let settings = testing::pool("stress", &addresses, brain);
    let pool = Pool::new(
        settings.clone(),
        Metrics::default().pool("stress"),
        Clock::start(),
        Arc::default(),
        mpsc::channel(1).0,
        None,
    );
    for member in pool.apply(settings, &AtomicU32::new(0)) {
        pool.tell(Event::Probed { replica: member.id, probe: Probe::Passed });
    }
    pool
}

/// Has a request placed.
async fn place(
    pool: &Pool,
    request: RequestId,
    cancel: &Arc<CancelSignal>,
    event: Event,
) -> Result<Arc<Member>, Refusal> {
    pool.place(request, cancel, event).await.0
}

/// Takes one turn of a session from its arrival to its end; returns the replica that served it.
fn turn(pool: &Pool, request: u64, session: u64) -> ReplicaId {
    let (request, key) = (RequestId(request), SliceKey::new(1, "m", &session.to_string()));
    let (outline, extent) = Default::default();
    let arrived = Event::Arrived { request, key, outline, extent, claim: Claim::default() };
    let Poll::Ready(placed) = pin!(place(pool, request, &Arc::default(), arrived))
        .poll(&mut Context::from_waker(Waker::noop()))
    else {
        panic!("nothing waits where there is room");
    };
    let member = placed.unwrap();
    pool.tell(Event::Answering { request });
    let (outcome, usage) = (Outcome::Done, Usage::default());
    pool.tell(Event::Ended { request, outcome, usage });
    member.id
}

#[test]
fn a_verdict_that_comes_later_reaches_who_waits_for_it() {
    let mut brain_state = BrainState::new(brain::Settings::default(), mpsc::channel(1).0);
    let [held, gone, quick] = [1, 2, 3].map(RequestId);
    let Asked::Later(mut coming) = brain_state.take_verdict(held) else {
        panic!("nothing was said")
    };
    drop(brain_state.take_verdict(gone));
    let replica = ReplicaId(7);
    let send = |request| Action::Send { request, replica };
    brain_state.actions = vec![send(held), send(quick), Action::Release { replica }, send(gone)];
    assert!(matches!(brain_state.take_verdict(quick), Asked::Now(Ok(ReplicaId(7)))));
    let mut released = Vec::new();
    brain_state.hand_out(&mut released);
    assert_eq!((coming.try_recv(), released), (Ok(Ok(replica)), vec![replica]));
    assert!(brain_state.waiting.is_empty() && brain_state.actions.is_empty());
}

#[test]
fn a_million_sessions_from_many_threads_stay_within_their_bytes_and_none_is_lost() {
    let pool = pool_of(8);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let pool = &pool;
            scope.spawn(move || {
                for session in (thread..SESSIONS).step_by(8) {
                    let home = turn(pool, session, session);
                    // Every hundredth comes back, perhaps after it was forgotten.
                    if session % 100 == thread {
                        assert_eq!(turn(pool, SESSIONS + session, session), home);
                    }
                }
            });
        }
    });
    let snapshot = pool.snapshot();
    let again = (0..SESSIONS).filter(|it| it % 100 == it % THREADS).count();
    let sent: u64 = snapshot.replicas.iter().map(|it| it.sent_total).sum();
    assert_eq!(sent, SESSIONS + u64::try_from(again).unwrap());
    assert_eq!((snapshot.requests_in_flight, snapshot.sessions_moved.all()), (0, 0));
    let held: u32 = snapshot.replicas.iter().map(|it| it.sessions).sum();
    let capacity = TABLE_BYTES / SESSION_BYTES;
    assert!((capacity / 2..=capacity).contains(&usize::try_from(held).unwrap()), "{held}");
}
