//! Runs the engine in real time. One lock around the engine, held only for a call; one task that
//! sleeps until the engine's next step ends; one channel per request. Requests cancel by dropping
//! their ticket, under the same lock, so that KV is free before the drop returns. Timers have a
//! resolution of a millisecond: at high speed tokens arrive in small bursts, at the right rate.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use cleave_core::domain::Moment;
use cleave_sim::engine::{self, Engine, Event, Job, NeverFits, Output, Stats};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::metrics::Timings;

/// Beyond this speed a step lasts less than any timer, so nothing sleeps at all.
const SPEED_MAX: f64 = 1e6;

/// How engine time follows real time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Clock {
    Scaled { zero: Instant, speed: f64 },
    Unbounded,
}

impl Clock {
    pub(super) fn new(speed: f64) -> Self {
        if SPEED_MAX < speed {
            Self::Unbounded
        } else {
            Self::Scaled { zero: Instant::now(), speed }
        }
    }
}

#[derive(Debug)]
pub(super) struct Driver {
    clock: Clock,
    state: Mutex<DriverState>,
    changed: Notify,
}

#[derive(Debug)]
struct DriverState {
    engine: Engine,
    /// The last moment the engine was told; under an unbounded clock, what time it is.
    now: Moment,
    next_id: u64,
    listeners: HashMap<u64, Listener>,
    outputs: Vec<Output>,
    timings: Timings,
}

#[derive(Debug)]
struct Listener {
    events: mpsc::Sender<Event>,
    submitted: Moment,
    latest: Moment,
}

/// One request in the engine; dropping it cancels the request.
#[derive(Debug)]
pub(super) struct Ticket {
    pub(super) id: u64,
    driver: Arc<Driver>,
    events: mpsc::Receiver<Event>,
}

impl Ticket {
    /// Waits for the next event; nothing after the last one.
    pub(super) async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.driver.lock();
        state.listeners.remove(&self.id);
        state.engine.cancel(self.id);
    }
}

impl Driver {
    pub(super) fn new(settings: engine::EngineSettings, clock: Clock) -> Self {
        let state = DriverState {
            engine: Engine::new(settings),
            now: Moment::ZERO,
            next_id: 0,
            listeners: HashMap::new(),
            outputs: Vec::new(),
            timings: Timings::default(),
        };
        Self { clock, state: Mutex::new(state), changed: Notify::new() }
    }

    /// Hands a job over; its id is given here.
    pub(super) fn submit(self: &Arc<Self>, mut job: Job) -> Result<Ticket, NeverFits> {
        let mut state = self.lock();
        self.catch_up(&mut state);
        let (id, now) = (state.next_id, state.now);
        state.next_id += 1;
        job.id = id;
        // Room for every event there can be, so that the engine never waits for a slow reader.
        let room = usize::try_from(job.output_tokens).unwrap_or(usize::MAX).saturating_add(2);
        let before = state.engine.next_wakeup();
        state.engine.submit(now, job)?;
        let (sender, events) = mpsc::channel(room.min(tokio::sync::Semaphore::MAX_PERMITS));
        state.listeners.insert(id, Listener { events: sender, submitted: now, latest: now });
        if state.engine.next_wakeup() != before {
            self.changed.notify_one();
        }
        Ok(Ticket { id, driver: Arc::clone(self), events })
    }

    /// Ends steps when they are due, for ever.
    pub(super) async fn drive(self: Arc<Self>) {
        loop {
            let due = {
                let mut state = self.lock();
                self.catch_up(&mut state);
                state.engine.next_wakeup()
            };
            match (due, self.clock) {
                (None, _) => self.changed.notified().await,
                (Some(due), Clock::Scaled { zero, speed }) => {
                    let due = zero + Duration::from_nanos(due.as_nanos()).div_f64(speed);
                    tokio::select! {
                        () = tokio::time::sleep_until(due) => {}
                        () = self.changed.notified() => {}
                    }
                }
                (Some(due), Clock::Unbounded) => {
                    self.lock().now = due;
                    tokio::task::yield_now().await;
                }
            }
        }
    }

    pub(super) fn set_slow_factor(&self, factor: f64) {
        self.lock().engine.set_slow_factor(factor);
    }

    pub(super) fn capacity_tokens(&self) -> u32 {
        self.lock().engine.capacity_tokens()
    }

    pub(super) fn stats(&self) -> Stats {
        self.lock().engine.stats()
    }

    pub(super) fn timings(&self) -> Timings {
        self.lock().timings.clone()
    }

    fn lock(&self) -> MutexGuard<'_, DriverState> {
        // A thread that panicked did so between whole calls of the engine, which is therefore
        // sound.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Brings the engine up to the present and tells every listener what happened.
    fn catch_up(&self, state: &mut DriverState) {
        let speed = match self.clock {
            Clock::Scaled { zero, speed } => {
                state.now = Moment::ZERO + zero.elapsed().mul_f64(speed);
                speed
            }
            Clock::Unbounded => f64::INFINITY,
        };
        let mut outputs = std::mem::take(&mut state.outputs);
        state.engine.on_time(state.now, &mut outputs);
        for output in outputs.drain(..) {
            state.tell(output, speed);
        }
        state.outputs = outputs;
    }
}

impl DriverState {
    fn tell(&mut self, output: Output, speed: f64) {
        let Some(listener) = self.listeners.get_mut(&output.id) else { return };
        let (histogram, since) = match output.event {
            Event::FirstToken { .. } => (&mut self.timings.first_token, listener.submitted),
            Event::Token => (&mut self.timings.between_tokens, listener.latest),
            Event::Finished { .. } => (&mut self.timings.whole_request, listener.submitted),
        };
        histogram.observe(output.at.since(since).as_secs_f64() / speed);
        listener.latest = output.at;
        // The receiver may be gone; then its ticket is about to cancel the job.
        _ = listener.events.try_send(output.event);
        if let Event::Finished { .. } = output.event {
            self.listeners.remove(&output.id);
        }
    }
}
