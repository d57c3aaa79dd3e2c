//! Finds the coefficients of a cost model by least squares in relative error, so that a 5 ms step
//! counts as much as a 5 s one. Levenberg–Marquardt over the logarithms of the coefficients: they
//! stay positive by construction and their very different sizes need no scaling. Four unknowns do
//! not justify a linear algebra crate.

use super::table::Sample;
use super::{StepTimes, StepWork};

const TERMS: usize = 4;
const ROUNDS_MAX: usize = 200;
/// Every fifth row is kept from the fit that is judged by it.
const HELD_OUT_EVERY: usize = 5;

type Vector = [f64; TERMS];

/// Coefficients and how far they are off.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Fit {
    pub times: StepTimes,
    pub rows: usize,
    /// Relative error over all rows, of the fit to all rows.
    pub error: ErrorQuantiles,
    pub rows_held_out: usize,
    /// Relative error over every fifth row, of a fit to the other four.
    pub error_held_out: ErrorQuantiles,
}

/// Quantiles of |predicted / measured − 1|.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ErrorQuantiles {
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub max: f64,
}

/// Fits the step times of one model.
pub fn fit(samples: &[Sample]) -> Fit {
    let held_out = |at: usize| at % HELD_OUT_EVERY == HELD_OUT_EVERY - 1;
    let (judges, teachers): (Vec<_>, Vec<_>) =
        samples.iter().enumerate().partition(|&(at, _)| held_out(at));
    let judges: Vec<Sample> = judges.into_iter().map(|(_, sample)| *sample).collect();
    let teachers: Vec<Sample> = teachers.into_iter().map(|(_, sample)| *sample).collect();
    let times = solve(samples);
    Fit {
        times,
        rows: samples.len(),
        error: ErrorQuantiles::of(&times, samples),
        rows_held_out: judges.len(),
        error_held_out: ErrorQuantiles::of(&solve(&teachers), &judges),
    }
}

impl ErrorQuantiles {
    fn of(times: &StepTimes, samples: &[Sample]) -> Self {
        let mut errors: Vec<f64> = samples.iter().map(|it| residual(times, it).abs()).collect();
        errors.sort_by(f64::total_cmp);
        let Some(&max) = errors.last() else { return Self::default() };
        // The smallest error that at least this share of the rows does not exceed.
        let rank = |percent: usize| errors[(errors.len() * percent).div_ceil(100).max(1) - 1];
        Self { p50: rank(50), p90: rank(90), p95: rank(95), max }
    }
}

fn residual(times: &StepTimes, sample: &Sample) -> f64 {
    times.step_ms(&sample.work) / sample.ms - 1.0
}

fn solve(samples: &[Sample]) -> StepTimes {
    let mut terms = start(samples);
    let mut loss = loss_of(&terms, samples);
    let mut damping = 1e-3;
    for _ in 0..ROUNDS_MAX {
        let step = damped_step(&terms, samples, damping);
        let next = std::array::from_fn(|i| terms[i] * step[i].exp());
        let next_loss = loss_of(&next, samples);
        if next_loss < loss {
            let settled = loss - next_loss <= 1e-15 * loss;
            (terms, loss) = (next, next_loss);
            damping = f64::max(damping / 10.0, 1e-12);
            if settled {
                break;
            }
        } else if 1e12 < damping {
            break;
        } else {
            damping *= 10.0;
        }
    }
    times_of(&terms)
}

/// Starts from the largest value of each coefficient that no row contradicts by itself; a term that
/// no row exercises is zero and stays so.
fn start(samples: &[Sample]) -> Vector {
    let bound = |load: fn(&StepWork) -> f64| {
        let bounds =
            samples.iter().filter(|it| 0.0 < load(&it.work)).map(|it| it.ms / load(&it.work));
        let least = bounds.fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { 0.0 }
    };
    [
        bound(|_| 1.0),
        bound(|it| it.new_tokens),
        bound(|it| it.attention_pairs),
        bound(|it| it.context_tokens),
    ]
}

fn times_of(terms: &Vector) -> StepTimes {
    let [floor_ms, new_token_ms, attention_ms, context_ms] = *terms;
    StepTimes { floor_ms, new_token_ms, attention_ms, context_ms }
}

fn loss_of(terms: &Vector, samples: &[Sample]) -> f64 {
    let times = times_of(terms);
    samples.iter().map(|sample| residual(&times, sample).powi(2)).sum()
}

/// Solves `(JᵀJ + damping · diag(JᵀJ)) · step = −Jᵀr` for the logarithms of the terms.
fn damped_step(terms: &Vector, samples: &[Sample], damping: f64) -> Vector {
    let times = times_of(terms);
    let mut normal = [[0.0; TERMS]; TERMS];
    let mut right = [0.0; TERMS];
    for sample in samples {
        let slope = slopes(&times, &sample.work).map(|it| it / sample.ms);
        let residual = residual(&times, sample);
        for i in 0..TERMS {
            right[i] -= slope[i] * residual;
            for j in 0..TERMS {
                normal[i][j] += slope[i] * slope[j];
            }
        }
    }
    for (i, row) in normal.iter_mut().enumerate() {
        // The constant keeps a term without rows solvable: its step is zero.
        row[i] += damping * row[i] + 1e-12;
    }
    eliminate(normal, right)
}

/// Differentiates the step time by the logarithm of each term.
fn slopes(times: &StepTimes, work: &StepWork) -> Vector {
    let linear = times.new_token_ms * work.new_tokens;
    let bend = times.floor_ms.hypot(linear).max(f64::MIN_POSITIVE);
    [
        times.floor_ms * times.floor_ms / bend,
        linear * linear / bend,
        times.attention_ms * work.attention_pairs,
        times.context_ms * work.context_tokens,
    ]
}

/// Solves a positive definite system by Gaussian elimination; such a one needs no pivoting.
fn eliminate(mut left: [Vector; TERMS], mut right: Vector) -> Vector {
    for i in 0..TERMS {
        for below in i + 1..TERMS {
            let share = left[below][i] / left[i][i];
            let above = left[i];
            for (it, above) in left[below].iter_mut().zip(above) {
                *it -= share * above;
            }
            right[below] -= share * right[i];
        }
    }
    let mut solution = [0.0; TERMS];
    for i in (0..TERMS).rev() {
        let known: f64 = (i + 1..TERMS).map(|j| left[i][j] * solution[j]).sum();
        solution[i] = (right[i] - known) / left[i][i];
    }
    solution
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::{H200_TABLE, read_samples};

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
        let samples: Vec<Sample> = [1, 64, 512, 4096, 16384]
            .into_iter()
            .flat_map(|new| [0, 100, 10_000, 100_000].map(|cached| (new, cached)))
            .map(|(new, cached)| {
                let mut work = StepWork::default();
                work.add(new, cached);
                Sample { work, ms: truth.step_ms(&work) }
            })
            .collect();
        assert_same(&fit(&samples).times, &truth, 1e-6);
    }

    #[test]
    fn a_term_without_rows_is_zero() {
        let mut work = StepWork::default();
        work.add(8, 0);
        let found = fit(&[Sample { work, ms: 2.0 }; 3]).times;
        assert!(found.context_ms.abs() < f64::MIN_POSITIVE);
        assert!(close(found.step_ms(&work), 2.0, 1e-6));
    }

    #[test]
    fn no_rows_give_no_fit_and_no_panic() {
        assert_eq!(fit(&[]).rows, 0);
    }
}
