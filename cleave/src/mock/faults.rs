//! What goes wrong on purpose. Faults strike requests that generate or embed; `/health` and
//! `/metrics` go on answering, because a replica that looks well and does nothing is the harder case.
//! Chance is seeded, so a run can be repeated. A whole frozen process is better made with SIGSTOP.

use std::pin::Pin;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Body;
use bytes::Bytes;
use http_body::{Body as _, Frame};
use rand::{RngExt as _, SeedableRng as _};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use super::refusal::Refusal;

/// The faults in force.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Serialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct Faults {
    /// Share of requests answered with 500.
    pub(crate) fail_rate: f64,
    /// Share of requests never answered and never closed.
    pub(crate) hang_rate: f64,
    /// Share of answers cut in the middle by closing the connection.
    pub(crate) truncate_rate: f64,
    /// After so many more requests the next one ends the replica and everything in it.
    pub(crate) crash_after: Option<u64>,
    /// After so many more requests none is answered.
    pub(crate) hang_after: Option<u64>,
    /// Stretches every step of the engine.
    pub(crate) slow_factor: f64,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            fail_rate: 0.0,
            hang_rate: 0.0,
            truncate_rate: 0.0,
            crash_after: None,
            hang_after: None,
            slow_factor: 1.0,
        }
    }
}

impl Faults {
    /// Says what is wrong with the numbers, if anything.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let shares = [self.fail_rate, self.hang_rate, self.truncate_rate];
        if !shares.iter().all(|it| (0.0..=1.0).contains(it)) {
            return Err(Refusal::bad("a rate must be from 0 to 1"));
        }
        if self.slow_factor <= 0.0 {
            return Err(Refusal::bad("slow_factor must be above 0"));
        }
        Ok(())
    }
}

/// What becomes of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Serve,
    Fail,
    Hang,
    Crash,
    /// Cut the answer after so many chunks and half of the next.
    Truncate {
        chunks: u32,
    },
}

/// The faults of one replica and the dice that throw them.
#[derive(Debug)]
pub(super) struct FaultBox(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    faults: Faults,
    rng: Pcg64Mcg,
}

impl FaultBox {
    pub(super) fn new(faults: Faults, seed: u64) -> Self {
        Self(Mutex::new(Inner { faults, rng: Pcg64Mcg::seed_from_u64(seed) }))
    }

    /// Puts other faults in force; limits count from now.
    pub(super) fn replace(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Judges the next request.
    pub(super) fn judge(&self) -> Verdict {
        let Inner { faults, rng } = &mut *self.lock();
        let crash = count_down(&mut faults.crash_after);
        let hang = count_down(&mut faults.hang_after);
        let mut strikes = |rate: f64| rng.random_bool(rate.clamp(0.0, 1.0));
        if crash {
            Verdict::Crash
        } else if hang || strikes(faults.hang_rate) {
            Verdict::Hang
        } else if strikes(faults.fail_rate) {
            Verdict::Fail
        } else if strikes(faults.truncate_rate) {
            Verdict::Truncate { chunks: rng.random_range(1..8) }
        } else {
            Verdict::Serve
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts one request; says whether the limit was reached before it.
fn count_down(limit: &mut Option<u64>) -> bool {
    match limit {
        None => false,
        Some(0) => true,
        Some(left) => {
            *left -= 1;
            false
        }
    }
}

/// A body that breaks off: some whole chunks, half of the next, then an error, on which the server
/// closes the connection.
pub(super) struct Truncated {
    inner: Body,
    chunks_left: u32,
    stage: Stage,
}

enum Stage {
    Whole,
    /// Giving way once, so that what was sent so far is flushed before the end.
    Flush,
    Cut,
}

impl Truncated {
    pub(super) fn new(inner: Body, chunks: u32) -> Self {
        // An answer in one piece has no chunk to spare.
        let chunks_left = if inner.size_hint().exact().is_some() { 0 } else { chunks };
        Self { inner, chunks_left, stage: Stage::Whole }
    }
}

impl http_body::Body for Truncated {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.stage {
            Stage::Whole => {}
            Stage::Flush => {
                self.stage = Stage::Cut;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Stage::Cut => return Poll::Ready(Some(Err("an injected cut".into()))),
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        if let Some(chunks_left) = self.chunks_left.checked_sub(1) {
            self.chunks_left = chunks_left;
            return Poll::Ready(frame.map(|it| it.map_err(Into::into)));
        }
        self.stage = Stage::Flush;
        let data =
            frame.and_then(Result::ok).and_then(|it| it.into_data().ok()).unwrap_or_default();
        let half = data.slice(..data.len() / 2);
        Poll::Ready(Some(Ok(Frame::data(half))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}
