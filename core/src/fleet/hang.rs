//! Is this replica hung, or only busy? Judged from outside, by the streams it carries: a replica that
//! has work shows a sign of it now and then, and how long it may be silent follows from that work. A
//! prompt of 100,000 tokens keeps an engine quiet for as long as it takes to read it; a fixed limit
//! would either kill that replica or leave a dead one in for minutes.
//!
//! Predictions are never quite right, so the pool learns how far its silences go beyond them, and a
//! pool of which nothing is known yet is given the benefit of very slow hardware.

use std::time::Duration;

use crate::domain::{Moment, span_ms, span_of_ms};

/// Below this no silence is called a hang. With the quarter second between two looks at the fleet, a
/// hang is found within five seconds.
const HUNG_MIN: Duration = Duration::from_millis(4500);
/// A silence of this many times the expected one is a hang: three, less the time between two looks.
const HUNG_FACTOR: f64 = 2.9;
/// What share of that time makes a suspect: nothing new goes there, and it is asked for a token.
const SUSPECT_SHARE: f64 = 0.5;
/// A silence expected to be shorter than this says nothing about how good predictions are.
const TELLING_MS: f64 = 500.0;
/// The largest ratio of a silence to its prediction that is learned: beyond it something is wrong with
/// the replica rather than with the prediction.
const STRETCH_MAX: f64 = 10.0;
/// How much of what exceeds the prediction is forgotten at each silence that ends in time.
const STRETCH_DECAY: f64 = 0.02;
/// How long a token of prompt may take until the pool has shown that it reads faster.
const TOKEN_MS_UNKNOWN: f64 = 1.0;
/// A prompt shorter than this does not show how fast a replica reads.
const TELLING_TOKENS: u32 = 1000;

/// What one request does that can keep a replica silent, in predicted milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SilentWork {
    /// A stream in prefill or waiting for it: the tokens of its prompt, and how long they should take.
    Reading { prompt_tokens: u32, prefill_ms: f64 },
    /// A stream that shows tokens.
    Writing,
    /// An answer that comes in one piece, when all of it is there: how long it should take to write,
    /// and how long it may.
    Whole { prompt_tokens: u32, prefill_ms: f64, likely_ms: f64, longest_ms: f64 },
}

/// How long a replica may be silent given the work it has, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExpectedSilence {
    /// Until the first token of a request sent now.
    pub token_ms: f64,
    /// If answers have their usual length.
    pub likely_ms: f64,
    /// If answers have the greatest length they may have.
    pub longest_ms: f64,
}

/// What a pool has learned of silences: how far they go beyond what is predicted of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SilenceModel {
    /// How many times as long as predicted silences last; 1 or more.
    stretch: f64,
    /// Whether some prompt was read faster than [`TOKEN_MS_UNKNOWN`].
    proven: bool,
}

impl Default for SilenceModel {
    fn default() -> Self {
        Self { stretch: 1.0, proven: false }
    }
}

impl SilenceModel {
    /// Notes the TTFT of a prompt of which `new_tokens` were not cached.
    pub fn on_first_token(&mut self, new_tokens: u32, took: Duration) {
        let took_ms = span_ms(took);
        let telling = TELLING_TOKENS <= new_tokens;
        self.proven |= telling && took_ms < f64::from(new_tokens) * TOKEN_MS_UNKNOWN;
    }

    /// Notes a silence that ended by itself, against what was expected of it.
    fn on_silence(&mut self, silence_ms: f64, expected_ms: f64) {
        if expected_ms < TELLING_MS {
            return;
        }
        let seen = (silence_ms / expected_ms).clamp(1.0, STRETCH_MAX);
        let faded = 1.0 + (self.stretch - 1.0) * (1.0 - STRETCH_DECAY);
        self.stretch = faded.max(seen);
    }

    fn reading_ms(&self, prompt_tokens: u32, prefill_ms: f64) -> f64 {
        let unknown_ms = f64::from(prompt_tokens) * TOKEN_MS_UNKNOWN;
        if self.proven { prefill_ms } else { prefill_ms.max(unknown_ms) }
    }

    /// Predicts how long a replica with this work may show no sign. `step_ms` is what a step takes
    /// there.
    pub fn expect(&self, work: impl Iterator<Item = SilentWork>, step_ms: f64) -> ExpectedSilence {
        let (mut prefill_max_ms, mut writes) = (0.0_f64, false);
        let (mut likely_ms, mut longest_ms) = (0.0_f64, 0.0_f64);
        for it in work {
            match it {
                SilentWork::Writing => writes = true,
                SilentWork::Reading { prompt_tokens, prefill_ms } => {
                    let reading_ms = self.reading_ms(prompt_tokens, prefill_ms);
                    prefill_max_ms = prefill_max_ms.max(reading_ms);
                }
                SilentWork::Whole {
                    prompt_tokens,
                    prefill_ms,
                    likely_ms: likely,
                    longest_ms: longest,
                } => {
                    let reading_ms = self.reading_ms(prompt_tokens, prefill_ms);
                    prefill_max_ms = prefill_max_ms.max(reading_ms);
                    likely_ms = likely_ms.max(reading_ms + likely);
                    longest_ms = longest_ms.max(reading_ms + longest);
                }
            }
        }
        // An engine that does not cut prompts into chunks stops writing while it reads one. Several
        // prompts are read one after the other, and each shows when it is done.
        let token_ms = step_ms + prefill_max_ms;
        // Without a stream that writes, nothing shows before the first whole answer is there; which
        // one that is, only the engine knows.
        if writes {
            return ExpectedSilence { token_ms, likely_ms: token_ms, longest_ms: token_ms };
        }
        let likely_ms = likely_ms.max(token_ms);
        ExpectedSilence { token_ms, likely_ms, longest_ms: longest_ms.max(likely_ms) }
    }

    /// Says how long a probe for one token may take on a replica with this expected silence.
    pub fn question_limit(&self, expected: ExpectedSilence) -> Duration {
        hung_after(self.stretched(expected.token_ms)).mul_f64(SUSPECT_SHARE)
    }

    fn stretched(&self, expected_ms: f64) -> Duration {
        span_of_ms(expected_ms * self.stretch)
    }
}

/// What a replica's silence means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum HangVerdict {
    Well,
    /// Silent for longer than it should be: it is probed, and nothing new goes there.
    Suspect(Silence),
    /// Silent beyond doubt.
    Hung(Silence),
}

/// A silence and what was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Silence {
    pub lasted: Duration,
    pub expected: Duration,
}

/// The hang detector of one replica.
#[derive(Clone, Copy, Debug, Default)]
pub struct HangDetector {
    /// When it last gave a sign, or was given work after it had none.
    quiet_since: Moment,
    /// What was expected of the silence that goes on, at the last look.
    expected_ms: f64,
}

impl HangDetector {
    pub const fn quiet_since(&self) -> Moment {
        self.quiet_since
    }

    /// Notes that work was sent; a replica that had none is silent only from now on.
    pub fn on_sent(&mut self, now: Moment, in_flight_before: u32) {
        if in_flight_before == 0 {
            self.begin(now);
        }
    }

    /// Notes a sign of life, and what it says of predictions.
    pub fn on_sign(&mut self, at: Moment, model: &mut SilenceModel) {
        if self.quiet_since < at {
            let silence_ms = span_ms(at.since(self.quiet_since));
            model.on_silence(silence_ms, self.expected_ms);
            self.begin(at);
        }
    }

    /// Judges the present silence of a replica; its work explains a silence of `expected`. Where answers
    /// may take longer than they should, a probe for one token decides: `mute` says that it was not
    /// answered.
    pub fn judge(
        &mut self,
        now: Moment,
        expected: ExpectedSilence,
        mute: bool,
        model: &SilenceModel,
    ) -> HangVerdict {
        self.expected_ms = expected.longest_ms;
        let likely = model.stretched(expected.likely_ms);
        let silence = Silence { lasted: now.since(self.quiet_since), expected: likely };
        let hung = hung_after(likely);
        let hung_anyway = hung_after(model.stretched(expected.longest_ms));
        if hung_anyway <= silence.lasted || mute && hung <= silence.lasted {
            HangVerdict::Hung(silence)
        } else if hung.mul_f64(SUSPECT_SHARE) <= silence.lasted {
            HangVerdict::Suspect(silence)
        } else {
            HangVerdict::Well
        }
    }

    fn begin(&mut self, now: Moment) {
        self.quiet_since = now;
        self.expected_ms = 0.0;
    }
}

/// How long a silence must last to be called a hang, when `expected` of it was predicted.
fn hung_after(expected: Duration) -> Duration {
    HUNG_MIN.max(expected.mul_f64(HUNG_FACTOR))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(millis: u64) -> Moment {
        Moment::ZERO + Duration::from_millis(millis)
    }

    fn proven() -> SilenceModel {
        let mut model = SilenceModel::default();
        model.on_first_token(2000, Duration::from_millis(100));
        model
    }

    fn expected(model: &SilenceModel, work: &[SilentWork]) -> ExpectedSilence {
        model.expect(work.iter().copied(), 20.0)
    }

    fn expected_ms(model: &SilenceModel, work: &[SilentWork]) -> f64 {
        expected(model, work).longest_ms
    }

    fn plain(expected_ms: f64) -> ExpectedSilence {
        ExpectedSilence { token_ms: expected_ms, likely_ms: expected_ms, longest_ms: expected_ms }
    }

    const LONG: SilentWork = SilentWork::Reading { prompt_tokens: 100_000, prefill_ms: 10_000.0 };
    const WHOLE: SilentWork = SilentWork::Whole {
        prompt_tokens: 500,
        prefill_ms: 12.0,
        likely_ms: 1_000.0,
        longest_ms: 40_000.0,
    };
    const SHORT: SilentWork = SilentWork::Reading { prompt_tokens: 500, prefill_ms: 12.0 };

    #[test]
    fn a_stream_that_stops_is_suspected_and_then_hung_within_five_seconds() {
        let (mut hang, mut model) = (HangDetector::default(), proven());
        hang.on_sent(at(0), 0);
        hang.on_sign(at(1000), &mut model);
        let expected = expected(&model, &[SilentWork::Writing]);
        let mut judge = |millis| hang.judge(at(millis), expected, false, &model);
        assert_eq!(judge(3000), HangVerdict::Well);
        assert!(matches!(judge(3400), HangVerdict::Suspect(_)));
        assert!(matches!(judge(5750), HangVerdict::Hung(it) if it.lasted.as_millis() == 4750));
    }

    #[test]
    fn a_long_prompt_is_given_its_time_and_a_hang_behind_it_is_found_within_three_times_that() {
        let (mut hang, model) = (HangDetector::default(), proven());
        hang.on_sent(at(0), 0);
        let expected = expected(&model, &[SilentWork::Writing, SHORT, LONG]);
        let mut judge = |millis| hang.judge(at(millis), expected, false, &model);
        assert_eq!(judge(14_000), HangVerdict::Well);
        assert!(matches!(judge(20_000), HangVerdict::Suspect(_)));
        assert!(matches!(judge(30_000), HangVerdict::Hung(_)));
    }

    #[test]
    fn a_pool_that_has_shown_nothing_yet_may_be_very_slow() {
        let unknown = expected_ms(&SilenceModel::default(), &[LONG]);
        assert!(100_000.0 <= unknown && expected_ms(&proven(), &[LONG]) < 11_000.0);
        let mut slow = SilenceModel::default();
        slow.on_first_token(2000, Duration::from_secs(3));
        slow.on_first_token(20, Duration::from_millis(1));
        assert_eq!(slow, SilenceModel::default(), "neither shows that it is fast");
    }

    #[test]
    fn whole_answers_are_waited_for_unless_streams_show_that_it_lives() {
        assert!(40_000.0 < expected_ms(&proven(), &[WHOLE, SHORT]));
        assert!(expected_ms(&proven(), &[WHOLE, SilentWork::Writing]) < 100.0);
    }

    #[test]
    fn behind_whole_answers_a_hang_is_found_by_what_they_usually_take_and_a_question() {
        let (mut hang, model) = (HangDetector::default(), proven());
        hang.on_sent(at(0), 0);
        let expected = expected(&model, &[WHOLE]);
        assert_eq!(model.question_limit(expected), HUNG_MIN.mul_f64(SUSPECT_SHARE));
        let mut judge = |millis, mute| hang.judge(at(millis), expected, mute, &model);
        assert_eq!(judge(2000, false), HangVerdict::Well);
        assert!(matches!(judge(4750, false), HangVerdict::Suspect(_)), "it may be a long one");
        assert!(matches!(judge(4750, true), HangVerdict::Hung(_)), "but it gives no token");
        assert!(matches!(judge(60_000, false), HangVerdict::Suspect(_)));
        assert!(matches!(judge(120_000, false), HangVerdict::Hung(_)), "no answer takes this long");
    }

    #[test]
    fn silences_longer_than_predicted_are_learned_and_slowly_forgotten() {
        let (mut hang, mut model) = (HangDetector::default(), proven());
        let mut silence = |millis: u64, expected_ms| {
            let began = hang.quiet_since();
            hang.judge(began, plain(expected_ms), false, &model);
            hang.on_sign(began + Duration::from_millis(millis), &mut model);
            model.stretch
        };
        assert!((silence(4000, 1000.0) - 4.0).abs() < 1e-9);
        assert!((silence(4000, 20.0) - 4.0).abs() < 1e-9, "a short one says nothing");
        assert!(silence(900_000, 1000.0) <= STRETCH_MAX);
        let learned = silence(1000, 1000.0);
        assert!((0..300).map(|_| silence(1000, 1000.0)).last().unwrap() < 0.1 * learned + 1.0);
    }

    #[test]
    fn an_idle_replica_is_silent_only_from_its_next_work_on() {
        let (mut hang, model) = (HangDetector::default(), proven());
        hang.on_sent(at(0), 0);
        hang.on_sent(at(3_600_000), 0);
        assert_eq!(hang.judge(at(3_601_000), plain(20.0), false, &model), HangVerdict::Well);
        hang.on_sent(at(3_604_000), 1);
        assert!(matches!(
            hang.judge(at(3_605_000), plain(20.0), false, &model),
            HangVerdict::Hung(_)
        ));
    }

    proptest! {
        /// Whatever it does, a replica whose silences stay within its predictions is never suspected,
        /// and one that falls silent for good is found within five seconds or three times them.
        #[test]
        fn the_busy_are_spared_and_the_hung_are_found(
            gaps in prop::collection::vec((1_u64..60_000, 0.3_f64..1.0), 1..50),
            expected_ms in 1_u64..60_000,
        ) {
            let (mut hang, mut model) = (HangDetector::default(), proven());
            let mut now = Moment::ZERO;
            hang.on_sent(now, 0);
            for (predicted_ms, share) in gaps {
                let predicted = Duration::from_millis(predicted_ms);
                now = now + predicted.mul_f64(share);
                #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "small")]
                let verdict = hang.judge(now, plain(predicted_ms as f64), false, &model);
                prop_assert_eq!(verdict, HangVerdict::Well);
                hang.on_sign(now, &mut model);
            }
            let expected = Duration::from_millis(expected_ms);
            let look = Duration::from_millis(4_999).max(expected.mul_f64(2.999));
            let expected_ms = span_ms(expected);
            let verdict = hang.judge(now + look, plain(expected_ms), false, &model);
            prop_assert!(matches!(verdict, HangVerdict::Hung(_)), "{:?}", verdict);
        }
    }
}
