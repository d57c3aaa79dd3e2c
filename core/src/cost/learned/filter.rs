//! Coefficients that follow what is seen, one sighting at a time: an extended Kalman filter over the
//! logarithms of the terms. It needs no history, a fixed 240 bytes, and one pass of five by five for each
//! sighting. Logarithms keep the terms above zero and make errors relative, so a 5 ms step counts as much
//! as a 5 s one. What one sighting says is clipped at a few times what was to be expected, so that a prompt
//! that waited for something unseen pulls no harder than one that was a little late.
//!
//! At the start the terms are believed to be off together (another GPU is slower at everything) more than
//! one by one. So a term that the load does not show moves with those it does.

use super::sighting::{Sighting, TERMS, Vector};

/// How far all terms may be off together at the start, as a standard deviation of the logarithm: a
/// factor of eight.
const TOGETHER: f64 = 2.0;
/// How far each may be off by itself.
const APART: f64 = 0.8;
/// The way to the client does not depend on the hardware.
const OVERHEAD_APART: f64 = 1.5;
/// What is known never gets surer than this variance in the direction of what is seen: the filter keeps
/// following, with a memory of some tens of sightings.
const VARIANCE_MIN: f64 = 1e-3;
/// Sightings further off than this many standard deviations count as if they were this far.
const CLIP: f64 = 1.5;
/// No term leaves this factor around where it started.
const RANGE: f64 = 1_000.0;
/// A term that is zero at the start is taken to be this small; logarithms have no zero.
const LEAST: f64 = 1e-9;

/// The terms as they are believed now, and how sure that is.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    start: Vector,
    terms: Vector,
    variance: [Vector; TERMS],
}

impl Filter {
    pub(super) fn new(start: Vector) -> Self {
        let start = start.map(|it| if it.is_finite() { it.max(LEAST) } else { LEAST });
        Self { start, terms: start, variance: unsure(1.0) }
    }

    pub(super) const fn terms(&self) -> &Vector {
        &self.terms
    }

    /// Goes on from what was believed before; `share` is how unsure that is beside a start from nothing.
    pub(super) fn resume(&mut self, terms: Vector, share: f64) {
        self.terms = terms;
        self.bound();
        self.variance = unsure(share);
    }

    /// Believes less of what was learned: the engine is another now.
    pub(super) fn doubt(&mut self, share: f64) {
        self.variance = unsure(share);
    }

    /// Takes in a sighting whose kind is usually off by `noise`, in logarithms. Returns how much longer it
    /// took than was believed before, as a logarithm, and whether that belief was sure.
    pub(super) fn see(&mut self, sighting: &Sighting, noise: f64) -> (f64, bool) {
        let parts = sighting.parts(&self.terms);
        let predicted_ms: f64 = parts.iter().sum();
        let miss = (sighting.ms / predicted_ms).ln();
        if !miss.is_finite() {
            return (0.0, false);
        }
        let slope = parts.map(|it| it / predicted_ms);
        let pull: Vector = std::array::from_fn(|i| dot(&self.variance[i], &slope));
        let (unsure, noise) = (dot(&pull, &slope), noise * noise);
        let all = unsure + noise;
        let reach = CLIP * all.sqrt();
        let shown = miss.clamp(-reach, reach) / all;
        for (term, pull) in self.terms.iter_mut().zip(pull) {
            *term *= (pull * shown).exp();
        }
        self.bound();
        // As much surer as this makes it, but not surer than may be.
        let share = ((unsure - VARIANCE_MIN) * all / (unsure * unsure)).clamp(0.0, 1.0) / all;
        for (row, own) in self.variance.iter_mut().zip(pull) {
            for (it, other) in row.iter_mut().zip(pull) {
                *it -= share * own * other;
            }
        }
        (miss, unsure <= noise)
    }

    fn bound(&mut self) {
        for (term, start) in self.terms.iter_mut().zip(self.start) {
            let sound = if term.is_finite() { *term } else { start };
            *term = sound.clamp(start / RANGE, start * RANGE);
        }
    }
}

fn unsure(share: f64) -> [Vector; TERMS] {
    std::array::from_fn(|i| {
        std::array::from_fn(|j| {
            let is_way = i == TERMS - 1 || j == TERMS - 1;
            let together = if is_way { 0.0 } else { TOGETHER * TOGETHER };
            let own = if is_way { OVERHEAD_APART } else { APART };
            share * (together + if i == j { own * own } else { 0.0 })
        })
    })
}

fn dot(one: &Vector, other: &Vector) -> f64 {
    one.iter().zip(other).map(|(a, b)| a * b).sum()
}
