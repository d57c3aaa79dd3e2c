//! What is booked on one replica: the work of every request that was sent there and has not ended, in
//! whole microseconds and tokens, so that what is booked can be taken back exactly. A prompt counts
//! until its first token, an answer for as much of it as is still to come. It knows no requests: the
//! holder of a charge hands it in again when it changes and once more when it is over.

mod elsewhere;

use std::ops::{AddAssign, SubAssign};

use crate::cost::RequestCost;
use crate::domain::{Extent, Moment, Outline, Usage, span_ms};

pub use elsewhere::Elsewhere;

/// How long a prompt that was read is remembered: about as long as an answer takes to write.
const READ_MEMORY_MS: f64 = 10_000.0;
/// How much the newest prompt counts in the mean of what prompts take.
const SHARE_OF_NEWEST: f64 = 1.0 / 32.0;

/// The most that one request is booked with. A million of them add up to far less than overflows, and no
/// router has as many in flight.
const CHARGE_US_MAX: f64 = 1e12;
/// The most that is counted of what another router has booked for one request.
const HEARD_MAX: u64 = 1_000_000_000_000;

/// What one request weighs, or all of them at one replica. Sums are exact: what each request adds is
/// bounded, so none of them overflows, and what was added is taken back to the last unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Reading prompts whose answer has not begun.
    pub prefill_us: u64,
    /// Writing what is still to come of answers.
    pub decode_us: u64,
    /// Tokens in KV memory, as if no two requests shared any.
    pub kv_tokens: u64,
    /// Tokens that answers are still expected to add to it.
    pub growth_tokens: u64,
}

impl Load {
    /// Bounds what another router says of one request, so that sums do not overflow.
    #[must_use]
    pub fn bounded(self) -> Self {
        Self {
            prefill_us: self.prefill_us.min(HEARD_MAX),
            decode_us: self.decode_us.min(HEARD_MAX),
            kv_tokens: self.kv_tokens.min(HEARD_MAX),
            growth_tokens: self.growth_tokens.min(HEARD_MAX),
        }
    }

    /// All work, in milliseconds of a busy replica.
    pub fn work_ms(&self) -> f64 {
        ms(self.prefill_us + self.decode_us)
    }

    /// Quotes a request that has not begun. `cached_tokens` of its prompt are cached; `output_tokens` are
    /// expected of its answer.
    pub fn quote(
        cost: &RequestCost,
        outline: &Outline,
        cached_tokens: u32,
        output_tokens: u32,
        extent: &Extent,
    ) -> Self {
        let prompt = outline.prompt_tokens;
        let new = prompt.saturating_sub(cached_tokens);
        let prefill_ms = cost.prefill_ms(new, cached_tokens) + media_ms(cost, extent);
        let answer = Self::quote_answer(cost, prompt, 0, output_tokens);
        Self { prefill_us: us(prefill_ms), ..answer }
    }

    /// Quotes what is left of an answer that has `streamed` tokens and will have `output`.
    pub fn quote_answer(cost: &RequestCost, prompt: u32, streamed: u32, output: u32) -> Self {
        let left = output.saturating_sub(streamed);
        let context = prompt.saturating_add(streamed).saturating_add(left / 2);
        Self {
            prefill_us: 0,
            decode_us: us(cost.decode_ms(left, context)),
            kv_tokens: u64::from(prompt) + u64::from(streamed),
            growth_tokens: u64::from(left),
        }
    }
}

impl AddAssign for Load {
    fn add_assign(&mut self, other: Self) {
        self.prefill_us += other.prefill_us;
        self.decode_us += other.decode_us;
        self.kv_tokens += other.kv_tokens;
        self.growth_tokens += other.growth_tokens;
    }
}

impl SubAssign for Load {
    /// Takes back what was booked; more than that is a mistake in the books.
    fn sub_assign(&mut self, other: Self) {
        let less = |from: u64, what: u64| {
            debug_assert!(what <= from, "taken back as booked");
            from.saturating_sub(what)
        };
        self.prefill_us = less(self.prefill_us, other.prefill_us);
        self.decode_us = less(self.decode_us, other.decode_us);
        self.kv_tokens = less(self.kv_tokens, other.kv_tokens);
        self.growth_tokens = less(self.growth_tokens, other.growth_tokens);
    }
}

/// Work predicted at the decision against work settled at the end, both by the cost model: what the
/// guesses about cache and length were worth. Only requests that came to their end count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drift {
    pub predicted_us: u64,
    pub settled_us: u64,
    /// The sum of the absolute errors of all requests.
    pub missed_us: u64,
}

impl Drift {
    pub fn note(&mut self, predicted_us: u64, settled_us: u64) {
        let sum = |so_far: &mut u64, more: u64| *so_far = so_far.saturating_add(more);
        sum(&mut self.predicted_us, predicted_us);
        sum(&mut self.settled_us, settled_us);
        sum(&mut self.missed_us, predicted_us.abs_diff(settled_us));
    }
}

/// Prices images and sounds beside their tokens. Other files count as images do.
fn media_ms(cost: &RequestCost, extent: &Extent) -> f64 {
    let images = extent.attachments.saturating_sub(extent.sounds);
    cost.media_ms(images, f64::from(extent.sound_ms) / 1e3)
}

/// Prices a request that is over, as far as the engine told what it came to.
pub fn settled_us(cost: &RequestCost, outline: &Outline, cached_tokens: u32, usage: Usage) -> u64 {
    let input = usage.input.unwrap_or(outline.prompt_tokens);
    let cached = usage.cached.unwrap_or(cached_tokens).min(input);
    let output = usage.output.unwrap_or(0);
    let context = input.saturating_add(output / 2);
    us(cost.cost_ms(input - cached, cached, output, context))
}

/// The books of one replica: what this router and those that it hears of have booked there.
#[derive(Debug, Default)]
pub struct Ledger {
    load: Load,
    waiting: u32,
    answering: u32,
    /// When the line of prompts last moved: a first token, or the first to join it.
    moved_at: Moment,
    /// All prompts that were read here, from zero again when that is full.
    prefilled_us: u64,
    /// Those that were read lately, fading, as of the last of them.
    read_ms: f64,
    read_at: Moment,
    prefill_ms_mean: f64,
    elsewhere: Elsewhere,
    pub drift: Drift,
}

impl Ledger {
    pub const fn load(&self) -> Load {
        self.load
    }

    /// Requests whose answer has not begun, and those whose answer is being written.
    pub const fn counts(&self) -> (u32, u32) {
        (self.waiting, self.answering)
    }

    /// The average prefill of a request here, by the cost model.
    pub const fn prefill_ms_mean(&self) -> f64 {
        self.prefill_ms_mean
    }

    pub const fn prefilled_us(&self) -> u64 {
        self.prefilled_us
    }

    /// Measures the prompts that were read since `prefilled_us` was `before_us`.
    pub const fn prefilled_since(&self, before_us: u64) -> u64 {
        self.prefilled_us.wrapping_sub(before_us)
    }

    pub fn book(&mut self, now: Moment, charge: Load) {
        if self.waiting == 0 {
            self.moved_at = now;
        }
        self.waiting += 1;
        self.load += charge;
        self.prefill_ms_mean += SHARE_OF_NEWEST * (ms(charge.prefill_us) - self.prefill_ms_mean);
    }

    /// Takes a prompt off the line, at its first token.
    pub fn begin(&mut self, now: Moment, charge: &mut Load) {
        let read = Load { prefill_us: charge.prefill_us, ..Load::default() };
        self.load -= read;
        *charge -= read;
        self.prefilled_us = self.prefilled_us.wrapping_add(read.prefill_us);
        self.read_ms = self.read_lately_ms(now) + ms(read.prefill_us);
        self.read_at = now;
        self.moved_at = now;
        self.waiting -= 1;
        self.answering += 1;
    }

    /// Puts another charge in the place of one that turned out wrong.
    pub fn correct(&mut self, charge: &mut Load, right: Load) {
        self.load -= *charge;
        self.load += right;
        *charge = right;
    }

    /// Closes a request's account.
    pub fn close(&mut self, now: Moment, charge: Load, answering: bool) {
        self.load -= charge;
        if answering {
            self.answering -= 1;
        } else {
            self.waiting -= 1;
            self.moved_at = now;
        }
    }

    /// Estimates which share of its time goes to prompts: those read lately and those in line.
    pub fn reading_share(&self, now: Moment, pace: f64) -> f64 {
        let line_ms = pace * ms(self.load.prefill_us);
        (pace * self.read_lately_ms(now) + line_ms) / (READ_MEMORY_MS + line_ms)
    }

    fn read_lately_ms(&self, now: Moment) -> f64 {
        self.read_ms * (-span_ms(now.since(self.read_at)) / READ_MEMORY_MS).exp()
    }

    /// Measures the prompts that are still to be read. What time has passed since the line moved was
    /// spent on its head, but on no more than the head: the line of a replica that hangs does not shrink.
    pub fn line_us(&self, now: Moment, pace: f64) -> u64 {
        let head = self.load.prefill_us / u64::from(self.waiting.max(1));
        let spent = us(span_ms(now.since(self.moved_at)) / pace);
        self.load.prefill_us - spent.min(head)
    }
}

/// Rounds to a whole number, so that sums can be taken back exactly.
#[expect(
    clippy::as_conversions,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "from float to int, `as` saturates and NaN is 0"
)]
fn us(ms: f64) -> u64 {
    (ms * 1e3).round().clamp(0.0, CHARGE_US_MAX) as u64
}

/// Makes milliseconds of microseconds.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "2^53 us are 285 years")]
pub fn ms(us: u64) -> f64 {
    us as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;
    use crate::cost::Hardware;

    fn at(ms: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(ms)
    }

    fn prompt(prompt_tokens: u32) -> Outline {
        Outline { prompt_tokens, ..Outline::default() }
    }

    #[test]
    fn a_cached_prompt_is_quoted_for_what_is_new() {
        let cost = Hardware::default().cost;
        let cold = Load::quote(&cost, &prompt(10_000), 0, 100, &Extent::default());
        let warm = Load::quote(&cost, &prompt(10_000), 9_900, 100, &Extent::default());
        assert!(warm.prefill_us < cold.prefill_us / 50);
        assert_eq!((warm.decode_us, warm.kv_tokens), (cold.decode_us, 10_000));
        assert_eq!(warm.growth_tokens, 100);
    }

    #[test]
    fn images_and_sounds_cost_what_was_measured_for_them() {
        let usual = Hardware::default().cost;
        let cost = RequestCost { image_ms: 30.0, audio_second_ms: 4.0, ..usual };
        let quote = |extent: Extent| Load::quote(&cost, &prompt(100), 0, 1, &extent).prefill_us;
        let images = Extent { attachments: 2, ..Extent::default() };
        let sound = Extent { attachments: 3, sounds: 1, sound_ms: 2_500, ..images };
        assert_eq!(quote(images) - quote(Extent::default()), 60_000);
        assert_eq!(quote(sound) - quote(images), 10_000, "two images and 2.5 s of sound");
    }

    #[test]
    fn the_head_of_the_line_wears_off_with_time_but_the_line_behind_it_does_not() {
        let mut ledger = Ledger::default();
        let charge = Load { prefill_us: 40_000, ..Load::default() };
        (0..3).for_each(|_| ledger.book(at(0), charge));
        assert_eq!(ledger.line_us(at(0), 1.0), 120_000);
        assert_eq!(ledger.line_us(at(10), 1.0), 110_000);
        assert_eq!(ledger.line_us(at(10), 2.0), 115_000);
        assert_eq!(ledger.line_us(at(60_000), 1.0), 80_000, "it may hang");
        ledger.begin(at(60_000), &mut charge.clone());
        assert_eq!(ledger.line_us(at(60_000), 1.0), 80_000);
    }

    #[test]
    fn prompts_take_the_share_of_time_that_reading_them_took_lately() {
        let mut ledger = Ledger::default();
        assert!(ledger.reading_share(at(0), 1.0).abs() < 1e-12);
        // A prompt of 300 ms every second.
        for second in 1..=60 {
            let mut charge = Load { prefill_us: 300_000, ..Load::default() };
            ledger.book(at(second * 1_000), charge);
            ledger.begin(at(second * 1_000 + 300), &mut charge);
            ledger.close(at(second * 1_000 + 900), charge, true);
        }
        let share = ledger.reading_share(at(60_800), 1.0);
        assert!((share - 0.3).abs() < 0.01, "{share}");
        assert!((ledger.reading_share(at(60_800), 2.0) - 2.0 * share).abs() < 1e-9);
        // What waits counts before it is read, and what was read is forgotten.
        ledger.book(at(60_900), Load { prefill_us: 10_000_000, ..Load::default() });
        assert!(0.6 < ledger.reading_share(at(60_900), 1.0));
        assert!((ledger.reading_share(at(300_000), 1.0) - 0.5).abs() < 0.01);
    }

    proptest! {
        #[test]
        fn what_is_booked_is_taken_back_to_the_last_unit(
            steps in prop::collection::vec((0_u8..4, 0_usize..8, 0_u32..50_000, 0_u32..4_000), 1..200),
        ) {
            let cost = Hardware::default().cost;
            let mut ledger = Ledger::default();
            let mut open: Vec<(Load, bool, u32)> = Vec::new();
            for (deed, which, tokens, output) in steps {
                let which = which.min(open.len().saturating_sub(1));
                match (deed, open.get_mut(which)) {
                    (1, Some((charge, answering @ false, _))) => {
                        ledger.begin(at(1), charge);
                        *answering = true;
                    }
                    (2, Some((charge, true, prompt))) => {
                        let right = Load::quote_answer(&cost, *prompt, output / 2, output);
                        ledger.correct(charge, right);
                    }
                    (3, Some(_)) => {
                        let (charge, answering, _) = open.swap_remove(which);
                        ledger.close(at(2), charge, answering);
                    }
                    _ => {
                        let charge = Load::quote(&cost, &prompt(tokens), tokens / 3, output, &Extent::default());
                        ledger.book(at(0), charge);
                        open.push((charge, false, tokens));
                    }
                }
                let mut sum = Load::default();
                for it in &open {
                    sum += it.0;
                }
                prop_assert_eq!(ledger.load(), sum);
                prop_assert!(ledger.line_us(at(9), 1.0) <= sum.prefill_us);
            }
            for (charge, answering, _) in open {
                ledger.close(at(3), charge, answering);
            }
            prop_assert_eq!((ledger.load(), ledger.counts()), (Load::default(), (0, 0)));
        }
    }
}
