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

/// What a prompt must contain to be the last one.
const POISON: &[u8] = b"<|crash|>";

/// Not UTF-8, not an event, and with an end of its own.
const GARBAGE: &[u8] = b"\xfe\xed\x00\xfa\xce{]\"\n\xff\n\n";

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
    /// Share of streams that end in the middle of an event, as if that were all.
    pub(crate) short_rate: f64,
    /// Share of streams with bytes in their middle that mean nothing.
    pub(crate) garbage_rate: f64,
    /// Share of answers that stop in the middle and never go on.
    pub(crate) stall_rate: f64,
    /// Stretches every step of the engine.
    pub(crate) slow_factor: f64,
    /// `/health` answers 503, and everything else as before.
    pub(crate) unhealthy: bool,
    /// `/metrics` shows what it showed when this was set.
    pub(crate) metrics_frozen: bool,
    /// A prompt with `<|crash|>` in it ends the replica and everything in it.
    pub(crate) poison: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self {
            fail_rate: 0.0,
            hang_rate: 0.0,
            truncate_rate: 0.0,
            short_rate: 0.0,
            garbage_rate: 0.0,
            stall_rate: 0.0,
            slow_factor: 1.0,
            unhealthy: false,
            metrics_frozen: false,
            poison: false,
        }
    }
}

impl Faults {
    /// Says what is wrong with the numbers, if anything.
    pub(super) fn check(&self) -> Result<(), Refusal> {
        let Self {
            fail_rate, hang_rate, truncate_rate, short_rate, garbage_rate, stall_rate, ..
        } = *self;
        let shares = [fail_rate, hang_rate, truncate_rate, short_rate, garbage_rate, stall_rate];
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
    /// Spoil the answer after a number of chunks.
    Spoil {
        how: Spoil,
        chunks: u32,
    },
}

/// How the middle of an answer is spoiled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spoil {
    /// Half a chunk, and the connection is closed.
    Cut,
    /// Half a chunk, and the answer ends as if it were whole.
    Short,
    /// Bytes that mean nothing, and the rest.
    Garbage,
    /// Nothing more, ever.
    Stall,
}

/// The faults of one replica and the dice that throw them.
#[derive(Debug)]
pub(super) struct FaultBox(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    faults: Faults,
    rng: Pcg64Mcg,
    /// The page that is shown while metrics are frozen.
    page: Option<String>,
}

impl FaultBox {
    pub(super) fn new(faults: Faults, seed: u64) -> Self {
        Self(Mutex::new(Inner { faults, rng: Pcg64Mcg::seed_from_u64(seed), page: None }))
    }

    /// Puts other faults in force.
    pub(super) fn replace(&self, faults: Faults) {
        self.lock().faults = faults;
    }

    /// Judges the next request.
    pub(super) fn judge(&self) -> Verdict {
        let Inner { faults, rng, .. } = &mut *self.lock();
        let mut strikes = |rate: f64| rng.random_bool(rate.clamp(0.0, 1.0));
        if strikes(faults.hang_rate) {
            Verdict::Hang
        } else if strikes(faults.fail_rate) {
            Verdict::Fail
        } else {
            let spoils = [
                (faults.truncate_rate, Spoil::Cut),
                (faults.short_rate, Spoil::Short),
                (faults.garbage_rate, Spoil::Garbage),
                (faults.stall_rate, Spoil::Stall),
            ];
            let how = spoils.into_iter().find(|it| strikes(it.0)).map(|it| it.1);
            how.map_or(Verdict::Serve, |how| Verdict::Spoil { how, chunks: rng.random_range(1..8) })
        }
    }

    pub(super) fn is_unhealthy(&self) -> bool {
        self.lock().faults.unhealthy
    }

    /// Tells whether a request is one that the replica does not survive.
    pub(super) fn is_deadly(&self, body: &[u8]) -> bool {
        let is_poison = || body.windows(POISON.len()).any(|it| it == POISON);
        self.lock().faults.poison && is_poison()
    }

    /// Returns the metrics to show: those at hand, or those of the day they froze.
    pub(super) fn shown(&self, page: String) -> String {
        let Inner { faults, page: frozen, .. } = &mut *self.lock();
        if faults.metrics_frozen {
            frozen.get_or_insert(page).clone()
        } else {
            *frozen = None;
            page
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A body that is spoiled after some whole chunks.
pub(super) struct Spoiled {
    inner: Body,
    how: Spoil,
    chunks_left: u32,
    stage: Stage,
}

enum Stage {
    Whole,
    /// Giving way once, so that what was sent so far is flushed before the end.
    Flush,
    Spoiled,
}

impl Spoiled {
    pub(super) fn new(inner: Body, how: Spoil, chunks: u32) -> Self {
        // An answer in one piece has no chunk to spare, and its length was promised.
        let stream = inner.size_hint().exact().is_none();
        let needs_stream = matches!(how, Spoil::Short | Spoil::Garbage);
        let how = if needs_stream && !stream { Spoil::Cut } else { how };
        let chunks_left = if stream { chunks } else { 0 };
        Self { inner, how, chunks_left, stage: Stage::Whole }
    }
}

impl http_body::Body for Spoiled {
    type Data = Bytes;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match self.stage {
            Stage::Whole => {}
            Stage::Flush => {
                self.stage = Stage::Spoiled;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Stage::Spoiled => match self.how {
                Spoil::Cut => return Poll::Ready(Some(Err("an injected cut".into()))),
                Spoil::Short => return Poll::Ready(None),
                Spoil::Stall => return Poll::Pending,
                Spoil::Garbage => {}
            },
        }
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(context));
        let spoils_now = matches!(self.stage, Stage::Whole) && self.chunks_left == 0;
        self.chunks_left = self.chunks_left.saturating_sub(1);
        if !spoils_now {
            return Poll::Ready(frame.map(|it| it.map_err(Into::into)));
        }
        self.stage = Stage::Flush;
        if self.how == Spoil::Garbage {
            return Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(GARBAGE)))));
        }
        let data =
            frame.and_then(Result::ok).and_then(|it| it.into_data().ok()).unwrap_or_default();
        let half = data.slice(..data.len() / 2);
        Poll::Ready(Some(Ok(Frame::data(half))))
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.inner.size_hint()
    }
}
