//! Where a replica's throughput stops growing. Measured or predicted, it is read off a ladder of
//! concurrencies in the same way: the lowest rung that reaches nine tenths of the best. The top of a
//! smooth curve cannot be found in noise; nine tenths of it can, and the last tenth would be paid for
//! with twice the wait.

use serde::{Deserialize, Serialize};

use super::{StepTimes, StepWork};

const SHARE_OF_BEST: f64 = 0.9;
/// A ladder that still grows by this share at its top has not shown its knee.
const GROWTH_AT_TOP_MAX: f64 = 0.1;
const CONCURRENCY_MAX: u32 = 256;

/// A request that loads a replica, again and again: nothing of it is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mix {
    pub prompt_tokens: u32,
    pub output_tokens: u32,
}

impl Mix {
    /// What a knee is looked up with when nothing else is said: a question with some context, and an
    /// answer of a paragraph.
    pub const USUAL: Self = Self { prompt_tokens: 1024, output_tokens: 128 };

    /// The mean context while the answer is written.
    pub fn context_tokens(&self) -> u32 {
        self.prompt_tokens + self.output_tokens / 2
    }
}

/// The throughput of a replica while `concurrency` clients send without a pause.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rung {
    pub concurrency: u32,
    pub requests_per_min: f64,
}

/// The point at which more clients only wait longer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KneePoint {
    pub concurrency: u32,
    pub requests_per_min: f64,
    /// The requests were of this kind.
    pub prompt_tokens: u32,
    pub output_tokens: u32,
    /// Whether throughput had stopped growing; where not, the knee lies at this rung or higher.
    pub reached: bool,
}

impl KneePoint {
    /// Reads the knee off a ladder; there is none on a ladder without rungs.
    pub fn of(mix: Mix, rungs: &[Rung]) -> Option<Self> {
        let best = rungs.iter().map(|it| it.requests_per_min).max_by(f64::total_cmp)?;
        let mut ladder = rungs.to_vec();
        ladder.sort_by_key(|it| it.concurrency);
        let knee = ladder.iter().find(|it| SHARE_OF_BEST * best <= it.requests_per_min)?;
        Some(Self {
            concurrency: knee.concurrency,
            requests_per_min: knee.requests_per_min,
            prompt_tokens: mix.prompt_tokens,
            output_tokens: mix.output_tokens,
            reached: !still_grows(&ladder),
        })
    }

    /// Predicts the knee of a replica that was never loaded.
    pub fn predict(times: &StepTimes, mix: Mix) -> Self {
        let mut rungs = Vec::new();
        let mut concurrency = 1;
        while concurrency <= CONCURRENCY_MAX {
            let requests_per_min = predict_rate(times, mix, concurrency);
            rungs.push(Rung { concurrency, requests_per_min });
            concurrency *= 2;
        }
        Self::of(mix, &rungs).expect("the ladder has rungs")
    }

    pub fn mix(&self) -> Mix {
        Mix { prompt_tokens: self.prompt_tokens, output_tokens: self.output_tokens }
    }
}

/// Says whether more rungs at the top of a ladder, lowest first, would show more throughput.
pub fn still_grows(ladder: &[Rung]) -> bool {
    match ladder {
        [.., before, top] => {
            (1.0 + GROWTH_AT_TOP_MAX) * before.requests_per_min <= top.requests_per_min
        }
        [] | [_] => true,
    }
}

/// Predicts the requests a minute that `concurrency` clients get. A prompt is read whole in one
/// step, so steps with and without a prompt alternate; spread evenly, prompts would hide behind the
/// floor.
pub fn predict_rate(times: &StepTimes, mix: Mix, concurrency: u32) -> f64 {
    let clients = f64::from(concurrency);
    let (prompt, steps) = (f64::from(mix.prompt_tokens), f64::from(mix.output_tokens.max(1)));
    let (prefills, decodes) = (clients / steps, clients * (steps - 1.0) / steps);
    let context = f64::from(mix.context_tokens());
    let step_ms = |prefills: f64| {
        times.step_ms(&StepWork {
            new_tokens: prefills * prompt + decodes,
            attention_pairs: prefills * prompt * prompt / 2.0 + decodes * context,
            context_tokens: decodes * context,
        })
    };
    let (few, share) = (prefills.floor(), prefills.fract());
    let mean_ms = (1.0 - share) * step_ms(few) + share * step_ms(few + 1.0);
    clients / (steps * mean_ms) * 60_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ladder(rates: &[f64]) -> Vec<Rung> {
        let concurrencies = std::iter::successors(Some(1), |it| Some(it * 2));
        let pairs = concurrencies.zip(rates);
        pairs.map(|(concurrency, &rate)| Rung { concurrency, requests_per_min: rate }).collect()
    }

    fn knee(rates: &[f64]) -> KneePoint {
        KneePoint::of(Mix::USUAL, &ladder(rates)).unwrap()
    }

    #[test]
    fn the_knee_is_the_lowest_rung_near_the_best() {
        let found = knee(&[10.0, 20.0, 38.0, 60.0, 65.0, 66.0]);
        assert_eq!((found.concurrency, found.reached), (8, true));
    }

    #[test]
    fn a_ladder_that_ends_while_it_grows_says_so() {
        let found = knee(&[10.0, 20.0, 38.0, 60.0]);
        assert_eq!((found.concurrency, found.reached), (8, false));
        assert!(!knee(&[10.0]).reached);
    }

    #[test]
    fn a_replica_that_collapses_under_load_has_its_knee_before() {
        let found = knee(&[10.0, 20.0, 30.0, 12.0]);
        assert_eq!((found.concurrency, found.reached), (4, true));
    }

    #[test]
    fn no_rungs_have_no_knee() {
        assert_eq!(KneePoint::of(Mix::USUAL, &[]), None);
    }

    #[test]
    fn predicted_throughput_grows_and_then_stands() {
        let times = StepTimes::LLAMA_8B;
        let rate = |concurrency| predict_rate(&times, Mix::USUAL, concurrency);
        assert!(1.8 * rate(1) < rate(2) && rate(256) < 1.05 * rate(128));
        let knee = KneePoint::predict(&times, Mix::USUAL);
        assert!((64..=128).contains(&knee.concurrency) && knee.reached, "{knee:?}");
    }
}
