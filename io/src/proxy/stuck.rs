//! Answers that their clients do not take. hyper asks for the next piece of an answer when there is room
//! for it, so an answer whose last piece was handed over and that is not asked for more is stuck at its
//! client. It is not polled then, so nothing in it can notice: each thread looks at its answers once a
//! second instead. A piece costs one store of one number; an answer that waits for its replica is never
//! stuck. What is stuck for too long is cancelled as if its client had left: the replica's work ends,
//! and the books are settled.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::task::{AbortHandle, Id, try_id};
use tokio::time::Instant;

use super::callers::{Caller, Counted};

/// How long an answer may be stuck where its caller has many of them.
const STUCK_SHORT: Duration = Duration::from_secs(5);
/// A caller has many stuck answers when they are more than this and more than an eighth of all it has:
/// each keeps its booking at a replica, which others could use.
const STUCK_MANY: usize = 8;

/// What a client is held to.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientLimits {
    /// How long it may take nothing.
    pub(super) write: Duration,
    pub(super) bytes_per_s_min: u64,
}

/// The sign of life of one answer.
#[derive(Debug)]
pub(super) struct WriteProgress {
    /// Bytes handed over so far, doubled; odd while the last of them may not have been taken.
    beat: AtomicU64,
    /// The task that carries it: of its HTTP/1.1 connection, or of its HTTP/2 stream alone.
    carrier: Option<Id>,
    answer: Counted,
}

impl WriteProgress {
    /// Notes that a piece is handed over; the client is waited for.
    pub(super) fn given(&self, bytes_sum: u64) {
        self.beat.store(bytes_sum << 1 | 1, Relaxed);
    }

    /// Notes that all was taken; the replica is waited for.
    pub(super) fn taken(&self, bytes_sum: u64) {
        self.beat.store(bytes_sum << 1, Relaxed);
    }
}

/// The answers of one thread, and the tasks that carry them.
#[derive(Debug, Default)]
pub(super) struct StuckAnswers {
    watched: Mutex<Vec<Watched>>,
    carriers: Mutex<BTreeMap<Id, AbortHandle>>,
}

/// One answer as it was at the last look.
#[derive(Debug)]
struct Watched {
    progress: Weak<WriteProgress>,
    beat: u64,
    /// When it was found as it is, and when it was looked at last.
    since: Instant,
    seen: Instant,
    /// Time in which the client was waited for, all pieces together.
    blocked: Duration,
    stuck: Option<Counted>,
}

impl StuckAnswers {
    /// Watches an answer that the present task carries.
    pub(super) fn watch(&self, caller: &Arc<Caller>) -> Arc<WriteProgress> {
        let answer = Counted::new(caller, |it| &it.answers);
        let progress =
            Arc::new(WriteProgress { beat: AtomicU64::new(0), carrier: try_id(), answer });
        let (now, blocked) = (Instant::now(), Duration::ZERO);
        let progress_seen = Arc::downgrade(&progress);
        let (since, seen, stuck) = (now, now, None);
        lock(&self.watched).push(Watched {
            progress: progress_seen,
            beat: 0,
            since,
            seen,
            blocked,
            stuck,
        });
        progress
    }

    /// Notes a task that may carry answers, until [`StuckAnswers::leave`].
    pub(super) fn enter(&self, carrier: AbortHandle) {
        lock(&self.carriers).insert(carrier.id(), carrier);
    }

    pub(super) fn leave(&self, carrier: Id) {
        lock(&self.carriers).remove(&carrier);
    }

    /// Looks at all answers, and cancels those that are stuck for too long. Returns how many.
    pub(super) fn sweep(&self, now: Instant, client_limits: &ClientLimits) -> usize {
        let mut late = Vec::new();
        lock(&self.watched).retain_mut(|it| {
            let Some(progress) = it.progress.upgrade() else { return false };
            let is_late = it.look(&progress, now) && it.is_late(&progress, client_limits);
            if is_late {
                late.extend(progress.carrier);
            }
            !is_late
        });
        let carriers = lock(&self.carriers);
        late.iter().filter_map(|it| carriers.get(it)).map(AbortHandle::abort).count()
    }
}

impl Watched {
    /// Looks at the answer. Tells whether it waits for its client.
    fn look(&mut self, progress: &WriteProgress, now: Instant) -> bool {
        let beat = progress.beat.load(Relaxed);
        let waits = beat & 1 == 1;
        if waits {
            self.blocked += now - self.seen;
        }
        if beat != self.beat || !waits {
            (self.beat, self.since, self.stuck) = (beat, now, None);
        }
        self.seen = now;
        waits
    }

    /// Tells whether the client, which is waited for, had its time.
    fn is_late(&mut self, progress: &WriteProgress, client_limits: &ClientLimits) -> bool {
        let stuck_for = self.seen - self.since;
        if STUCK_SHORT <= stuck_for && self.stuck.is_none() {
            self.stuck = Some(Counted::new(progress.answer.caller(), |it| &it.stuck));
        }
        let millis = (self.beat >> 1).saturating_mul(1000) / client_limits.bytes_per_s_min.max(1);
        let by_rate = client_limits.write.saturating_add(Duration::from_millis(millis));
        let has_many = || {
            let Caller { answers, stuck, .. } = &**progress.answer.caller();
            STUCK_MANY.max(answers.load(Relaxed) / 8) < stuck.load(Relaxed)
        };
        client_limits.write <= stuck_for
            || by_rate < self.blocked
            || (self.stuck.is_some() && has_many())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic elsewhere cannot leave a list half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::task::JoinSet;

    use super::*;

    const LIMITS: ClientLimits =
        ClientLimits { write: Duration::from_secs(30), bytes_per_s_min: 1024 };

    /// Answers of one caller that tasks carry.
    #[derive(Default)]
    struct Rig {
        stuck_answers: Arc<StuckAnswers>,
        caller: Arc<Caller>,
        tasks: JoinSet<()>,
    }

    impl Rig {
        /// Begins an answer, and lets it get as far as its first piece.
        async fn begin(&mut self) -> Arc<WriteProgress> {
            let (sender, receiver) = tokio::sync::oneshot::channel();
            let (stuck_answers, caller) =
                (Arc::clone(&self.stuck_answers), Arc::clone(&self.caller));
            let carrier = self.tasks.spawn(async move {
                let progress = stuck_answers.watch(&caller);
                progress.given(100);
                _ = sender.send(Arc::clone(&progress));
                pending::<()>().await;
            });
            self.stuck_answers.enter(carrier);
            receiver.await.unwrap()
        }

        /// Looks once a second for `seconds`; says how many were cancelled.
        async fn look(&self, seconds: u64) -> usize {
            let mut cancelled = 0;
            for _ in 0..seconds {
                tokio::time::sleep(Duration::from_secs(1)).await;
                cancelled += self.stuck_answers.sweep(Instant::now(), &LIMITS);
            }
            cancelled
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_is_cancelled() {
        let mut rig = Rig::default();
        drop(rig.begin().await);
        assert_eq!((rig.look(30).await, rig.look(2).await), (0, 1));
        assert!(rig.tasks.join_next().await.unwrap().unwrap_err().is_cancelled());
        assert_eq!(rig.look(60).await, 0);
        let Caller { answers, stuck, .. } = &*rig.caller;
        assert_eq!((answers.load(Relaxed), stuck.load(Relaxed)), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_waits_for_its_replica_is_left_alone() {
        let mut rig = Rig::default();
        rig.begin().await.taken(100);
        assert_eq!(rig.look(600).await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_takes_a_little_now_and_then_is_too_slow_in_the_end() {
        let mut rig = Rig::default();
        let progress = rig.begin().await;
        let mut cancelled = 0;
        for piece in 2_u64..=4 {
            cancelled += rig.look(12).await;
            progress.given(100 * piece);
        }
        assert_eq!(cancelled, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_client_that_keeps_the_least_rate_is_served() {
        let mut rig = Rig::default();
        let progress = rig.begin().await;
        for second in 1..600 {
            assert_eq!(rig.look(1).await, 0);
            progress.given(1100 * second);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_with_many_stuck_answers_keeps_a_few_of_them() {
        let mut rig = Rig::default();
        for _ in 0..40 {
            drop(rig.begin().await);
        }
        assert_eq!(rig.look(8).await, 40 - STUCK_MANY);
        assert_eq!(rig.look(20).await, 0);
        assert_eq!(rig.look(10).await, STUCK_MANY);
    }
}
