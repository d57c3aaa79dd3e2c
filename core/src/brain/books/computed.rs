//! What a request came to: as its engine says, within what is possible, and by prediction where it says
//! nothing. A request that is cancelled has used prefill and decoding up to then; how much follows from
//! the time that passed. If that were free, a client could have any prompt computed and leave before the
//! first byte.

use crate::cost::{MeanRequest, RequestCost, StepWork};
use crate::domain::{Moment, Usage, span_ms, whole_u32};
use crate::fleet::Replica;
use crate::tokens::{Possible, Seen};

use super::super::request::Booking;

/// The longest answer if the client sets no limit.
const OUTPUT_TOKENS_MAX: u32 = 8192;
/// A stream that shows fewer tokens than this may write hidden ones: reasoning, tool calls.
const SHOWN_TOKENS_MIN: u32 = 16;
/// The most tokens between two `Streamed` events of a stream.
const STREAMED_STEP: u32 = 32;
/// How far what a replica has shown is believed to differ from what its hardware promises.
const SPEED_RANGE: (f64, f64) = (0.25, 16.0);

/// Tokens that were computed for a request, or found in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::brain) struct Computed {
    /// Tokens of the prompt that were not cached.
    pub(in crate::brain) new: u32,
    pub(in crate::brain) cached: u32,
    pub(in crate::brain) output: u32,
}

/// Bounds what an engine says of a request that was sent and is over.
pub(in crate::brain) fn believed(now: Moment, booking: &Booking, usage: Usage) -> Usage {
    let (streamed, took) = (booking.account.streamed_tokens, now.since(booking.account.sent_at));
    // Progress is reported every few tokens, so a few more may have come.
    let streamed = if streamed == 0 { 0 } else { streamed.saturating_add(STREAMED_STEP) };
    let seen = Seen { took, streamed, ..Seen::default() };
    Possible::new(&booking.extent, booking.outline.prompt_tokens, seen).bound(usage)
}

impl Computed {
    /// Says what of it takes how long.
    pub(in crate::brain) fn priced(&self, cost: &RequestCost) -> MeanRequest {
        let Self { new, cached, output } = *self;
        MeanRequest {
            prefill_ms: cost.prefill_ms(new, cached),
            output_tokens: f64::from(output),
            context_tokens: f64::from(self.context()),
            cost_ms: cost.cost_ms(new, cached, output, self.context()),
        }
    }

    /// Works out what was computed at `replica`, where it was sent last. `usage` is believed, and
    /// `is_whole` tells that the answer came to its end.
    pub(in crate::brain) fn new(
        now: Moment,
        booking: &Booking,
        replica: &Replica,
        usage: Usage,
        is_whole: bool,
    ) -> Self {
        let input = usage.input.unwrap_or(booking.outline.prompt_tokens);
        let cached = usage.cached.unwrap_or(booking.account.cached_tokens).min(input);
        let streamed = booking.account.streamed_tokens;
        let output = usage.output.unwrap_or(streamed);
        let is_shown = if is_whole { usage.output.is_some() } else { SHOWN_TOKENS_MIN <= output };
        let all = Self { new: input - cached, cached, output };
        let timed = || Timed::new(now, booking, replica, all);
        let output = if is_shown { output } else { output.max(timed().written()) };
        if booking.is_answering() || usage.input.is_some() {
            return Self { output, ..all };
        }
        let share = timed().read_share();
        let part = |tokens: u32| whole_u32(f64::from(tokens) * share);
        Self { new: part(all.new).max(all.new.min(1)), cached: part(cached), output }
    }

    pub(in crate::brain) const fn prompt(&self) -> u32 {
        self.new.saturating_add(self.cached)
    }

    /// The context over which the answer was written, on average.
    pub(in crate::brain) const fn context(&self) -> u32 {
        self.prompt().saturating_add(self.output / 2)
    }

    /// Tokens of prompt and answer.
    pub(in crate::brain) fn tokens(&self) -> u64 {
        u64::from(self.prompt()) + u64::from(self.output)
    }
}

/// How far a request must have come by the time that passed.
struct Timed {
    /// Since it was sent.
    passed_ms: f64,
    /// Since its answer can have begun.
    writing_ms: f64,
    /// What waiting for others, reading its prompt and writing a token take there.
    wait_ms: f64,
    read_ms: f64,
    token_ms: f64,
    /// The longest that its answer may be.
    output_max: u32,
}

impl Timed {
    fn new(now: Moment, booking: &Booking, replica: &Replica, all: Computed) -> Self {
        let (account, hardware) = (&booking.account, &replica.hardware);
        let shown = replica.watch.slow.ratio().unwrap_or_else(|| replica.pace.factor());
        let speed = shown.clamp(SPEED_RANGE.0, SPEED_RANGE.1);
        let read_ms = speed * hardware.step.step_ms(&StepWork::of(all.new, all.cached));
        let batch = f64::from(replica.booked().saturating_add(1));
        let step = StepWork::answers(batch, batch * f64::from(all.prompt()));
        let ttft_ms = account.ttft_ms.max(0.0);
        let passed_ms = span_ms(now.since(account.sent_at));
        // A stream whose first token has not come has written none.
        let unseen = if booking.extent.streams { 0.0 } else { f64::INFINITY };
        let since_first = account.first.map_or(unseen, |it| span_ms(now.since(it.at)));
        Self {
            passed_ms,
            writing_ms: (passed_ms - ttft_ms).min(since_first),
            wait_ms: (ttft_ms - read_ms - hardware.overhead_ms).max(0.0),
            read_ms,
            token_ms: speed * hardware.step.step_ms(&step),
            output_max: booking.extent.output_tokens_max.unwrap_or(OUTPUT_TOKENS_MAX),
        }
    }

    /// Says what share of the prompt was read. An engine gives up between two steps, so what it has
    /// begun it does for as long as a step takes.
    fn read_share(&self) -> f64 {
        if self.passed_ms < self.wait_ms {
            return 0.0;
        }
        let reading_ms = (self.passed_ms - self.wait_ms).max(self.token_ms);
        if self.read_ms <= reading_ms { 1.0 } else { reading_ms / self.read_ms }
    }

    /// Says how many tokens of the answer were written.
    fn written(&self) -> u32 {
        if self.token_ms <= 0.0 {
            return 0;
        }
        whole_u32((self.writing_ms / self.token_ms).floor()).min(self.output_max)
    }
}
