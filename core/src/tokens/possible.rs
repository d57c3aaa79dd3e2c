//! The physical bounds on the figures of a request, whatever an engine reports. A figure that was
//! misread, or that a replica made up, must not ruin a contract or teach a wrong length. So all
//! figures pass here before they are settled, learned from or shown. The bounds are wide: no text
//! has more tokens than bytes, no engine writes faster than it can, no answer is longer than its
//! client allows.

use std::time::Duration;

use crate::domain::{Extent, Usage, span_ms, whole_u32};

/// No context is longer than this.
pub const TOKENS_MAX: u32 = 1 << 24;
/// The most bytes of text that come to one token, on average.
pub(super) const BYTES_PER_TOKEN_MAX: u32 = 32;
/// What a chat template may add to a prompt.
const TEMPLATE_TOKENS: u32 = 4096;
/// The most tokens of an image, a sound or a file: minutes of video.
const MEDIA_TOKENS: u32 = 1 << 17;
/// No engine writes one answer faster than this many tokens in a millisecond.
const TOKENS_PER_MS: f64 = 2.0;
/// Tokens a millisecond; no engine reads a prompt faster.
const READ_PER_MS: f64 = 200.0;
/// What an answer may have beyond that: of a short one the time says little.
const ANSWER_TOKENS: u32 = 1024;
/// Events of a stream for each of its tokens, at most.
const EVENTS_PER_TOKEN: u32 = 4;

/// What was seen of an answer from outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How long the engine had it.
    pub took: Duration,
    /// Events of its stream that carried a token.
    pub streamed: u32,
    /// Bytes of the answer, where they were counted.
    pub bytes: u64,
}

/// The least and the most tokens that a request can have come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Possible {
    input: (u32, u32),
    output: (u32, u32),
}

impl Possible {
    /// Works out what is possible for a request of this size whose prompt was taken to have
    /// `prompt_tokens`, after what was seen of its answer.
    pub fn new(extent: &Extent, prompt_tokens: u32, seen: Seen) -> Self {
        let text_bytes = extent.text_bytes.max(extent.body_bytes);
        let named = extent.media.max(extent.attachments).saturating_mul(MEDIA_TOKENS);
        let read = whole_u32(span_ms(seen.took) * READ_PER_MS);
        // Of a body that was not looked into, only the time is known.
        let told = if text_bytes == 0 || extent.is_continued { read } else { text_bytes };
        let input_max = told.max(text_bytes).max(prompt_tokens).saturating_add(TEMPLATE_TOKENS);
        let input_max = input_max.saturating_add(named).min(TOKENS_MAX);
        let input_min = (extent.text_bytes / BYTES_PER_TOKEN_MAX).min(input_max);
        // A token leaves a byte in the answer, or is thought and not shown, which takes time.
        let answers = f64::from(extent.answers.max(1));
        let in_time = whole_u32(span_ms(seen.took) * TOKENS_PER_MS * answers);
        let shown = u32::try_from(seen.bytes).unwrap_or(u32::MAX).max(seen.streamed);
        // What was seen to stream is more than an engine's word, whatever its client allowed.
        let cap = extent.output_tokens_max.unwrap_or(TOKENS_MAX).max(seen.streamed).min(TOKENS_MAX);
        let output_max = ANSWER_TOKENS.saturating_add(in_time.max(shown)).min(cap);
        let output_min = (seen.streamed / EVENTS_PER_TOKEN).min(output_max);
        Self { input: (input_min, input_max), output: (output_min, output_max) }
    }

    /// Moves figures to where they are possible. What was not said stays unsaid.
    #[must_use]
    pub fn bound(&self, usage: Usage) -> Usage {
        let input = usage.input.map(|it| it.clamp(self.input.0, self.input.1));
        let output = usage.output.map(|it| it.clamp(self.output.0, self.output.1));
        let cached = usage.cached.map(|it| it.min(input.unwrap_or(self.input.1)));
        Usage { input, output, cached }
    }

    /// The most tokens that the answer can have.
    pub const fn output_max(&self) -> u32 {
        self.output.1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn extent(text_bytes: u32) -> Extent {
        Extent { text_bytes, body_bytes: text_bytes + 50, ..Extent::default() }
    }

    fn said(input: u32, output: u32, cached: u32) -> Usage {
        Usage { input: Some(input), output: Some(output), cached: Some(cached) }
    }

    fn after(ms: u64) -> Seen {
        Seen { took: Duration::from_millis(ms), ..Seen::default() }
    }

    #[test]
    fn honest_figures_are_left_alone() {
        let seen = Seen { streamed: 498, bytes: 100_000, ..after(5_000) };
        let usage = said(1_000, 500, 900);
        assert_eq!(Possible::new(&extent(4_000), 1_000, seen).bound(usage), usage);
        let dense = said(3_900, 500, 0);
        assert_eq!(Possible::new(&extent(4_000), 1_000, seen).bound(dense), dense);
        let thought = said(1_000, 6_000, 0);
        assert_eq!(Possible::new(&extent(4_000), 1_000, after(3_000)).bound(thought), thought);
        let seen_by_none = Possible::new(&Extent::default(), 700, Seen::default());
        assert_eq!(seen_by_none.bound(said(700, 900, 600)), said(700, 900, 600));
        assert_eq!(seen_by_none.bound(Usage::default()), Usage::default());
    }

    #[test]
    fn absurd_figures_come_to_little() {
        let possible = Possible::new(&extent(4_000), 1_000, after(100));
        assert_eq!(possible.bound(said(u32::MAX, u32::MAX, u32::MAX)), said(8_146, 1_224, 8_146));
        let capped = Extent { output_tokens_max: Some(16), ..extent(4_000) };
        let possible = Possible::new(&capped, 1_000, after(100));
        assert_eq!(possible.bound(said(1, 1 << 20, 0)).output, Some(16));
    }

    #[test]
    fn nothing_is_free_because_an_engine_says_so() {
        let seen = Seen { streamed: 400, ..after(5_000) };
        assert_eq!(
            Possible::new(&extent(64_000), 9, seen).bound(said(0, 0, 9)),
            said(2_000, 100, 9)
        );
    }

    #[test]
    fn what_the_body_does_not_show_may_be_long() {
        let images = Extent { media: 2, ..extent(300) };
        let of = |extent: &Extent| Possible::new(extent, 75, after(150)).bound(said(30_000, 1, 0));
        assert_eq!(of(&images).input, Some(30_000));
        assert_eq!(of(&Extent { is_continued: true, ..extent(300) }).input, Some(30_000));
        assert_eq!(of(&Extent::default()).input, Some(30_000));
        assert_eq!(of(&extent(300)).input, Some(4_446));
    }

    proptest! {
        #[test]
        fn whatever_is_said_the_figures_are_possible_and_agree(
            said in prop::array::uniform3(prop::option::of(any::<u32>())),
            sizes in prop::array::uniform4(any::<u32>()),
            cap in prop::option::of(any::<u32>()),
            is_continued in any::<bool>(),
            (nanos, streamed, bytes) in any::<(u64, u32, u64)>(),
        ) {
            let [text_bytes, body_bytes, media, prompt] = sizes;
            let extent = Extent { text_bytes, body_bytes, media, is_continued, output_tokens_max: cap, ..Extent::default() };
            let seen = Seen { took: Duration::from_nanos(nanos), streamed, bytes };
            let possible = Possible::new(&extent, prompt, seen);
            let usage = Usage { input: said[0], output: said[1], cached: said[2] };
            let bounded = possible.bound(usage);
            prop_assert!(bounded.input.is_none_or(|it| it <= TOKENS_MAX));
            let cap = cap.unwrap_or(TOKENS_MAX).max(streamed).min(TOKENS_MAX);
            prop_assert!(bounded.output.is_none_or(|it| it <= cap));
            prop_assert!(bounded.cached.is_none_or(|it| it <= bounded.input.unwrap_or(TOKENS_MAX)));
            prop_assert_eq!(possible.bound(bounded), bounded, "once is enough");
        }
    }
}
