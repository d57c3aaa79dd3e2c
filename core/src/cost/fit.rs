//! Coefficients found on measurements, and how far they are off: judged on rows that the judged fit
//! has not seen, because a fit always likes its own rows. Finding them is `solve`'s business.

use serde::{Deserialize, Serialize};

use super::StepTimes;
use super::solve::{Solution, solve};
use super::table::StepSample;

/// Every fold is judged by a fit to the others.
const FOLDS: usize = 5;

/// Coefficients and how far they are off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub times: StepTimes,
    /// What an answer's way to the client adds to its first token; zero without such rows.
    pub overhead_ms: f64,
    pub rows: usize,
    /// Relative error over all rows, of the fit to all rows.
    pub error: ErrorQuantiles,
    /// Relative error over all rows, each predicted by a fit to the four fifths it is not in.
    pub error_held_out: ErrorQuantiles,
}

/// Quantiles of |predicted / measured − 1|.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ErrorQuantiles {
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub max: f64,
}

/// Fits the step times of one model on one kind of hardware.
pub fn fit(samples: &[StepSample]) -> Fit {
    let solution = solve(samples);
    let held_out = (0..FOLDS).flat_map(|fold| judge(samples, fold)).collect();
    let own = samples.iter().map(|it| solution.residual(it)).collect();
    Fit {
        times: solution.times,
        overhead_ms: solution.overhead_ms,
        rows: samples.len(),
        error: ErrorQuantiles::of(own),
        error_held_out: ErrorQuantiles::of(held_out),
    }
}

/// Returns the errors over one fold of a fit to the others. Neighbours in a table are alike, so a
/// fold takes every fifth row, not a fifth of the table.
fn judge(samples: &[StepSample], fold: usize) -> Vec<f64> {
    let (judges, teachers): (Vec<_>, Vec<_>) =
        samples.iter().enumerate().partition(|(at, _)| at % FOLDS == fold);
    let teachers: Vec<StepSample> = teachers.into_iter().map(|(_, sample)| *sample).collect();
    let solution = solve(&teachers);
    judges.into_iter().map(|(_, sample)| solution.residual(sample)).collect()
}

impl Fit {
    /// Predicts what a sample should have taken.
    pub fn predict_ms(&self, sample: &StepSample) -> f64 {
        Solution { times: self.times, overhead_ms: self.overhead_ms }.predict_ms(sample)
    }
}

impl ErrorQuantiles {
    /// Takes the quantiles of relative errors of either sign.
    pub fn of(mut errors: Vec<f64>) -> Self {
        for error in &mut errors {
            *error = error.abs();
        }
        errors.sort_by(f64::total_cmp);
        let Some(&max) = errors.last() else { return Self::default() };
        // The smallest error that at least this share of the rows does not exceed.
        let rank = |percent: usize| errors[(errors.len() * percent).div_ceil(100).max(1) - 1];
        Self { p50: rank(50), p90: rank(90), p95: rank(95), max }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{H200_TABLE, StepWork, read_samples};

    fn close(one: f64, other: f64, tolerance: f64) -> bool {
        (one - other).abs() <= tolerance * other.abs()
    }

    fn assert_same(found: &StepTimes, wanted: &StepTimes, tolerance: f64) {
        let same = close(found.floor_ms, wanted.floor_ms, tolerance)
            && close(found.new_token_ms, wanted.new_token_ms, tolerance)
            && close(found.attention_ms, wanted.attention_ms, tolerance)
            && close(found.context_ms, wanted.context_ms, tolerance);
        assert!(same, "{found:?} is not {wanted:?}");
    }

    #[test]
    fn the_built_in_coefficients_are_the_fit_to_the_built_in_table() {
        let samples = read_samples(H200_TABLE).unwrap();
        assert_same(&fit(&samples["llama-8b"]).times, &StepTimes::LLAMA_8B, 1e-4);
        assert_same(&fit(&samples["llama-70b-tp1-of-80"]).times, &StepTimes::LLAMA_70B, 1e-4);
    }

    #[test]
    fn half_of_the_measured_steps_are_predicted_within_three_percent() {
        for (model, samples) in read_samples(H200_TABLE).unwrap() {
            let fit = fit(&samples);
            assert!(fit.error.p50 < 0.03 && fit.error.p95 < 0.14, "{model}: {fit:?}");
            assert!(fit.error_held_out.p50 < 0.04, "{model}: {fit:?}");
        }
    }

    #[test]
    fn coefficients_that_made_the_times_are_found_again() {
        let truth =
            StepTimes { floor_ms: 4.0, new_token_ms: 0.01, attention_ms: 3e-6, context_ms: 5e-5 };
        let samples: Vec<StepSample> = [1, 64, 512, 4096, 16384]
            .into_iter()
            .flat_map(|new| [0, 100, 10_000, 100_000].map(|cached| (new, cached)))
            .map(|(new, cached)| {
                let mut work = StepWork::default();
                work.add(new, cached);
                StepSample { work, answers: 0.0, ms: truth.step_ms(&work) }
            })
            .collect();
        assert_same(&fit(&samples).times, &truth, 1e-6);
    }

    #[test]
    fn a_term_without_rows_is_zero() {
        let mut work = StepWork::default();
        work.add(8, 0);
        let found = fit(&[StepSample { work, answers: 0.0, ms: 2.0 }; 3]).times;
        assert!(found.context_ms.abs() < f64::MIN_POSITIVE);
        assert!(close(found.step_ms(&work), 2.0, 1e-6));
    }

    #[test]
    fn no_rows_give_no_fit_and_no_panic() {
        assert_eq!(fit(&[]).rows, 0);
    }

    /// What a client sees of a replica: first tokens of prompts, and gaps between tokens in batches,
    /// each off by up to `noise`, evenly to both sides and the same in every run.
    fn seen_from_outside(truth: &StepTimes, overhead_ms: f64, noise: f64) -> Vec<StepSample> {
        let prompts = [16, 128, 1024, 4096, 16384]
            .into_iter()
            .flat_map(|new| [0, 2048, 16384].map(|cached| (1, new, cached, 1.0)));
        let batches = [1, 4, 16, 64]
            .into_iter()
            .flat_map(|batch| [128, 1024, 4096].map(|context| (batch, 1, context, 0.0)));
        let cells = prompts.chain(batches).enumerate();
        let seen = cells.map(|(at, (batch, new, cached, answers))| {
            let mut work = StepWork::default();
            (0..batch).for_each(|_| work.add(new, cached));
            // Steps of a golden section fill an interval evenly.
            let swing = f64::from(u32::try_from(at).unwrap()) * 0.618_034 % 1.0 * 2.0 - 1.0;
            let exact = truth.step_ms(&work) + answers * overhead_ms;
            StepSample { work, answers, ms: exact * (1.0 + noise * swing) }
        });
        seen.collect()
    }

    #[test]
    fn what_a_client_sees_is_enough_to_find_steps_and_overhead() {
        for truth in [StepTimes::LLAMA_8B, StepTimes::LLAMA_70B] {
            let found = fit(&seen_from_outside(&truth, 6.0, 0.0));
            assert_same(&found.times, &truth, 1e-3);
            assert!(close(found.overhead_ms, 6.0, 1e-3), "{found:?}");
        }
    }

    #[test]
    fn noise_of_five_percent_leaves_predictions_of_steps_within_four() {
        let truth = StepTimes::LLAMA_8B;
        let found = fit(&seen_from_outside(&truth, 6.0, 0.05));
        assert!(found.error_held_out.p50 < 0.04 && found.error_held_out.max < 0.12, "{found:?}");
        // Steps that no row was like.
        for (batch, new, cached) in
            [(1, 2_000, 500), (1, 8_000, 30_000), (8, 1, 2_000), (96, 1, 700)]
        {
            let mut work = StepWork::default();
            (0..batch).for_each(|_| work.add(new, cached));
            let (found, wanted) = (found.times.step_ms(&work), truth.step_ms(&work));
            assert!(close(found, wanted, 0.04), "{batch} × {new} over {cached}: {found} {wanted}");
        }
    }
}
