//! Lengths of answers: a sketch of their distribution in buckets that grow with the length, in which
//! older answers fade. A mean alone could not tell what a cap cuts off: where most answers are short
//! and a few run on, a cap of 500 lowers the expectation a lot, and a cap of 5,000 hardly at all.

/// Where buckets begin: powers of two and the steps between them.
const STARTS: [u32; 32] = [
    1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048,
    3072, 4096, 6144, 8192, 12_288, 16_384, 24_576, 32_768, 49_152, 65_536,
];

/// How much of the sketch is kept at each answer: about the last hundred count.
const KEPT: f32 = 0.99;

/// A longer answer counts as this: a figure that is out of all proportion must not rule the mean.
const TOKENS_MAX: u32 = 2 * STARTS[STARTS.len() - 1];

/// How many answers what was believed before is worth.
const PRIOR_ANSWERS: f64 = 4.0;

/// After this many answers of its own, what was believed before counts as this many times their
/// mean at most, and as this part of it at least: others' answers may be of another kind, or made
/// up.
const SURE_ANSWERS: f64 = 16.0;
const PRIOR_FACTOR: f64 = 4.0;

#[derive(Clone, Debug)]
pub(super) struct Answers([Bucket; STARTS.len() + 1]);

#[derive(Clone, Copy, Debug, Default)]
struct Bucket {
    answers: f32,
    /// The sum of their lengths, so that answers of one length are known exactly.
    tokens: f32,
}

impl Default for Answers {
    fn default() -> Self {
        Self([Bucket::default(); STARTS.len() + 1])
    }
}

impl Answers {
    /// Lists the buckets that hold anything: which, how many answers, and their tokens.
    pub(super) fn buckets(&self) -> Vec<(u8, f32, f32)> {
        let held = (0_u8..).zip(&self.0).filter(|it| 0.0 < it.1.answers);
        held.map(|(at, it)| (at, it.answers, it.tokens)).collect()
    }

    /// Takes buckets from elsewhere, as far as lengths can be in them.
    pub(super) fn of(buckets: &[(u8, f32, f32)]) -> Self {
        let mut it = Self::default();
        // Older answers fade, so there are never more than this.
        let most = 1.0 / (1.0 - KEPT);
        for (at, answers, tokens) in buckets {
            if let Some(bucket) = it.0.get_mut(usize::from(*at)) {
                let answers = answers.clamp(0.0, most);
                *bucket =
                    Bucket { answers, tokens: tokens.clamp(0.0, answers * short(TOKENS_MAX)) };
            }
        }
        it
    }

    pub(super) fn learn(&mut self, tokens: u32) {
        let tokens = tokens.min(TOKENS_MAX);
        for bucket in &mut self.0 {
            bucket.answers *= KEPT;
            bucket.tokens *= KEPT;
        }
        let bucket = &mut self.0[STARTS.partition_point(|it| *it <= tokens)];
        bucket.answers += 1.0;
        bucket.tokens += short(tokens);
    }

    /// Expects the length of the next answer that is cut off at `cap`, leaning on `prior` while few
    /// are known.
    pub(super) fn expected(&self, cap: f64, prior: f64) -> f64 {
        let (mut answers, mut tokens) = (0.0, 0.0);
        for bucket in self.0.iter().filter(|it| 0.0 < it.answers) {
            let weight = f64::from(bucket.answers);
            answers += weight;
            tokens += f64::from(bucket.tokens).min(weight * cap);
        }
        let mut prior = prior.min(cap);
        if SURE_ANSWERS < answers {
            let mean = tokens / answers;
            prior = prior.clamp(mean / PRIOR_FACTOR, mean * PRIOR_FACTOR);
        }
        (tokens + PRIOR_ANSWERS * prior) / (answers + PRIOR_ANSWERS)
    }

    /// Expects the whole length of an answer that has `streamed` tokens and goes on: what answers came
    /// to that were longer, leaning on `prior` where there were few.
    pub(super) fn expected_beyond(&self, streamed: f64, cap: f64, prior: f64) -> f64 {
        let (mut answers, mut tokens) = (1.0, prior.min(cap));
        for bucket in self.0.iter().filter(|it| 0.0 < it.answers) {
            let (weight, sum) = (f64::from(bucket.answers), f64::from(bucket.tokens));
            if weight * streamed < sum {
                answers += weight;
                tokens += sum.min(weight * cap);
            }
        }
        (tokens / answers).max(streamed)
    }
}

#[expect(
    clippy::as_conversions,
    clippy::cast_precision_loss,
    reason = "no answer has 2^24 tokens, and a rounded one would do"
)]
fn short(tokens: u32) -> f32 {
    tokens as f32
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(lengths: impl IntoIterator<Item = u32>) -> Answers {
        let mut answers = Answers::default();
        lengths.into_iter().for_each(|it| answers.learn(it));
        answers
    }

    #[test]
    fn the_expectation_goes_from_what_was_believed_to_what_was_seen() {
        let expected =
            |count| sketch(std::iter::repeat_n(100, count)).expected(f64::INFINITY, 300.0);
        assert!((expected(0) - 300.0).abs() < 1e-3);
        assert!((expected(4) - 200.0).abs() < 3.0);
        assert!((expected(200) - 109.0).abs() < 3.0);
    }

    #[test]
    fn a_cap_cuts_off_the_long_ones_only() {
        let mixed = sketch((0..500).map(|it| if it % 5 == 0 { 2000 } else { 50 }));
        let expected = |cap: f64| mixed.expected(cap, 440.0);
        assert!((expected(f64::INFINITY) - 440.0).abs() < 30.0);
        assert!((expected(500.0) - 140.0).abs() < 20.0);
        assert!((expected(10.0) - 10.0).abs() < 1e-3);
        assert!(expected(0.0).abs() < 1e-9);
    }

    #[test]
    fn an_answer_that_runs_on_is_expected_to_be_one_of_the_long_ones() {
        let mixed = sketch((0..500).map(|it| if it % 5 == 0 { 2000 } else { 50 }));
        let beyond = |streamed: f64| mixed.expected_beyond(streamed, f64::INFINITY, 1.5 * streamed);
        assert!((400.0..480.0).contains(&beyond(8.0)), "{}", beyond(8.0));
        assert!((1_700.0..2_000.0).contains(&beyond(64.0)), "{}", beyond(64.0));
        assert!((beyond(4_000.0) - 6_000.0).abs() < 1e-3, "longer than any before");
        assert!((mixed.expected_beyond(64.0, 100.0, 96.0) - 100.0).abs() < 1.0, "the cap holds");
    }

    #[test]
    fn old_answers_fade() {
        let answers = sketch(std::iter::repeat_n(1000, 300).chain(std::iter::repeat_n(20, 500)));
        let expected = answers.expected(f64::INFINITY, 20.0);
        assert!((20.0..30.0).contains(&expected), "{expected}");
    }

    #[test]
    fn every_length_has_its_bucket() {
        let answers = sketch([0, 1, 65_535, 65_536, u32::MAX]);
        assert!(answers.expected(f64::INFINITY, 0.0).is_finite());
    }
}
