//! Least squares in relative error, so that a 5 ms step counts as much as a 5 s one.
//! Levenberg–Marquardt over the logarithms of the coefficients: they stay positive by construction
//! and their very different sizes need no scaling. Five unknowns do not justify a linear algebra
//! crate.

use super::table::StepSample;
use super::{StepTimes, StepWork};

const TERMS: usize = 5;
const ROUNDS_MAX: usize = 200;

type Vector = [f64; TERMS];

/// What the times of all samples are made of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Solution {
    pub(super) times: StepTimes,
    /// What an answer's way to the client adds to its first token.
    pub(super) overhead_ms: f64,
}

impl Solution {
    pub(super) fn predict_ms(&self, sample: &StepSample) -> f64 {
        self.times.step_ms(&sample.work) + self.overhead_ms * sample.answers
    }

    /// Says by which share of the measured time the prediction is off.
    pub(super) fn residual(&self, sample: &StepSample) -> f64 {
        self.predict_ms(sample) / sample.ms - 1.0
    }
}

/// Finds the coefficients that make the sum of squared relative errors least.
pub(super) fn solve(samples: &[StepSample]) -> Solution {
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
    solution_of(&terms)
}

/// Starts from the largest value of each coefficient that no row contradicts by itself; a term that
/// no row exercises is zero and stays so.
fn start(samples: &[StepSample]) -> Vector {
    let bound = |load: fn(&StepSample) -> f64| {
        let bounds = samples.iter().filter(|it| 0.0 < load(it)).map(|it| it.ms / load(it));
        let least = bounds.fold(f64::INFINITY, f64::min);
        if least.is_finite() { least } else { 0.0 }
    };
    [
        bound(|_| 1.0),
        bound(|it| it.work.new_tokens),
        bound(|it| it.work.attention_pairs),
        bound(|it| it.work.context_tokens),
        bound(|it| it.answers),
    ]
}

fn solution_of(terms: &Vector) -> Solution {
    let [floor_ms, new_token_ms, attention_ms, context_ms, overhead_ms] = *terms;
    Solution { times: StepTimes { floor_ms, new_token_ms, attention_ms, context_ms }, overhead_ms }
}

fn loss_of(terms: &Vector, samples: &[StepSample]) -> f64 {
    let solution = solution_of(terms);
    samples.iter().map(|sample| solution.residual(sample).powi(2)).sum()
}

/// Solves `(JᵀJ + damping · diag(JᵀJ)) · step = −Jᵀr` for the logarithms of the terms.
fn damped_step(terms: &Vector, samples: &[StepSample], damping: f64) -> Vector {
    let solution = solution_of(terms);
    let mut normal = [[0.0; TERMS]; TERMS];
    let mut right = [0.0; TERMS];
    for sample in samples {
        let slope = slopes(&solution, sample).map(|it| it / sample.ms);
        let residual = solution.residual(sample);
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

/// Differentiates the predicted time by the logarithm of each term.
fn slopes(solution: &Solution, sample: &StepSample) -> Vector {
    let (times, work): (&StepTimes, &StepWork) = (&solution.times, &sample.work);
    let linear = times.new_token_ms * work.new_tokens;
    let bend = times.floor_ms.hypot(linear).max(f64::MIN_POSITIVE);
    [
        times.floor_ms * times.floor_ms / bend,
        linear * linear / bend,
        times.attention_ms * work.attention_pairs,
        times.context_ms * work.context_tokens,
        solution.overhead_ms * sample.answers,
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
