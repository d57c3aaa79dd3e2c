//! A panic is a mistake of ours, and it stays where it happened: in one request, one stream, one task,
//! one pool. Here it becomes a value, and tasks that must always run are started again. That works only
//! if panics unwind, which the compiler checks below.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tracing::error;

use crate::telemetry::Incident;

use super::router::Router;

#[cfg(not(panic = "unwind"))]
compile_error!("one request must not end the process: build with panic = \"unwind\"");

/// How long a task that panicked waits before it starts again; doubles each time.
const RESTART_MIN: Duration = Duration::from_millis(100);
/// Where the doubling ends; also how long it must run for its panics to be forgotten.
const RESTART_MAX: Duration = Duration::from_secs(10);

/// A panic that was contained. What it said is in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Panicked;

/// Does something that may panic. What it changes must be thrown away or be whole after a panic.
pub(super) fn attempt<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// Runs a future to its end, which may be a panic.
pub(crate) async fn contained<T>(
    mut future: Pin<Box<impl Future<Output = T> + ?Sized>>,
) -> Result<T, Panicked> {
    poll_fn(|cx| match attempt(|| future.as_mut().poll(cx)) {
        Ok(polled) => polled.map(Ok),
        Err(panicked) => Poll::Ready(Err(panicked)),
    })
    .await
}

impl Router {
    /// Runs a task until it ends by itself. One that panics is counted, told of, and started again after
    /// a pause.
    pub async fn keep_up<F>(self: Arc<Self>, task: &'static str, mut start: impl FnMut() -> F)
    where
        F: Future<Output = ()>,
    {
        let mut pause = RESTART_MIN;
        loop {
            let began = Instant::now();
            let Err(Panicked) = contained(Box::pin(start())).await else { return };
            if RESTART_MAX <= began.elapsed() {
                pause = RESTART_MIN;
            }
            self.on_task_panicked(task, pause);
            sleep(pause).await;
            pause = RESTART_MAX.min(2 * pause);
        }
    }

    /// Starts a task that is started again if it panics.
    pub(super) fn spawn_kept<F>(
        self: &Arc<Self>,
        task: &'static str,
        start: impl FnMut() -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send + 'static,
    {
        self.tasks.spawn(Arc::clone(self).keep_up(task, start));
    }

    /// Runs a task once; a panic is counted and ends it.
    pub(super) fn run_once<F>(self: Arc<Self>, future: F) -> impl Future<Output = ()>
    where
        F: Future<Output = ()>,
    {
        // Boxed here: inside the block below, there would be room for it beside its box.
        let task = contained(Box::pin(future));
        async move {
            if task.await.is_err() {
                self.metrics.on_panic("task");
            }
        }
    }

    fn on_task_panicked(&self, task: &'static str, pause: Duration) {
        self.metrics.on_panic("task");
        error!(task, pause_ms = pause.as_millis(), "a task panicked and starts again");
        self.events.publish(Incident {
            kind: "task",
            state: "restarted",
            reason: Some("panic"),
            detail: Some(format!("{task} panicked; see the log")),
            alert: true,
            ..Incident::default()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use crate::proxy::testing;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_value() {
        async fn panics() {
            tokio::task::yield_now().await;
            panic!("a mistake")
        }
        assert_eq!(contained(Box::pin(panics())).await, Err(Panicked));
        assert_eq!(contained(Box::pin(ready(3))).await, Ok(3));
    }

    #[test]
    fn a_panic_while_another_unwinds_is_contained_too() {
        struct Drops;
        impl Drop for Drops {
            fn drop(&mut self) {
                assert!(attempt(|| panic!("inner")).is_err());
            }
        }
        let outer = attempt(|| {
            let _guard = Drops;
            panic!("outer")
        });
        assert_eq!(outer, Err::<(), _>(Panicked));
    }

    #[tokio::test]
    async fn a_task_that_panics_is_started_again_after_pauses_that_grow_and_is_told_of() {
        let router = testing::router();
        let began = Instant::now();
        let (starts, counted) = (AtomicU32::new(0), Arc::clone(&router));
        router
            .keep_up("test", || {
                let number = starts.fetch_add(1, Relaxed);
                async move { assert!(number == 2, "start {number}") }
            })
            .await;
        assert_eq!(starts.load(Relaxed), 3);
        assert!(RESTART_MIN + 2 * RESTART_MIN <= began.elapsed());
        let (_, told) = counted.events.after(0);
        assert!(told.iter().all(|it| it.incident.alert && it.incident.kind == "task"));
        assert_eq!(told.len(), 2);
        assert!(counted.metrics.write().contains("cleave_panics_total{kind=\"task\"} 2"));
    }
}
