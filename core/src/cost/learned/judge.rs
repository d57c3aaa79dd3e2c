//! Whether learned coefficients may be used: both they and the given ones predict every sighting before it
//! is learned from, and the running errors are compared. The learned ones must be clearly better in one kind
//! of sighting and worse in none; those that were given after a measurement are left only when they are
//! shown to be far off. So what is used is never much worse than what was given.

use serde::{Deserialize, Serialize};

use super::sighting::Kind;

/// How much the newest sighting counts.
const NEW_SHARE: f64 = 1.0 / 64.0;
/// The most that one sighting counts, in logarithms.
const ERROR_MAX: f64 = 2.0;
/// Sightings of a kind before it has a say.
const KIND_SEEN_MIN: u32 = 16;
/// Sightings of all kinds before anything is used.
const SEEN_MIN: u32 = 48;
/// Not worse: an error of no more than this many times the other.
const LEVEL: f64 = 1.05;
/// Where learned coefficients are in use, they are left only when they are this many times worse.
const LEVEL_IN_USE: f64 = 1.1;
/// A difference of logarithms that is not worth a change.
const SLIGHT: f64 = 0.02;

/// The mean logarithmic errors over one kind of sightings, the newest counting most.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Errors {
    pub seen: u32,
    /// Of the coefficients that were given.
    pub given: f64,
    /// Of those that were learned.
    pub learned: f64,
}

impl Errors {
    /// The mean error of the given or of the learned coefficients, as a share of the time it took.
    pub fn share(log_error: f64) -> f64 {
        log_error.exp_m1()
    }

    fn note(&mut self, given: f64, learned: f64) {
        // The first few are averaged, so that the very first does not linger.
        let share = NEW_SHARE.max(1.0 / (f64::from(self.seen) + 1.0));
        self.given += share * (given.abs().min(ERROR_MAX) - self.given);
        self.learned += share * (learned.abs().min(ERROR_MAX) - self.learned);
        self.seen = self.seen.saturating_add(1);
    }
}

/// How much better learned coefficients must be before they are used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Bar {
    /// Their error is at most this share of the given ones'.
    share: f64,
    /// And the given ones' is at least this.
    given_min: f64,
}

impl Bar {
    /// For coefficients that are built in or scaled.
    pub(super) const GUESS: Self = Self { share: 0.75, given_min: 0.2 };
    /// For those that were measured on such a replica.
    pub(super) const MEASURED: Self = Self { share: 0.5, given_min: 0.4 };
}

#[derive(Clone, Debug)]
pub(super) struct Judge {
    bar: Bar,
    pub(super) errors: [Errors; 3],
    pub(super) prefers_learned: bool,
}

impl Judge {
    pub(super) fn new(bar: Bar) -> Self {
        Self { bar, errors: [Errors::default(); 3], prefers_learned: false }
    }

    /// Notes how far off both predictions of a sighting were, as logarithms.
    pub(super) fn note(&mut self, kind: Kind, given: f64, learned: f64) {
        self.errors[kind.index()].note(given, learned);
        self.prefers_learned = self.decide();
    }

    fn decide(&self) -> bool {
        let seen: u32 = self.errors.iter().fold(0, |sum, it| sum.saturating_add(it.seen));
        if seen < SEEN_MIN {
            return self.prefers_learned;
        }
        let level = if self.prefers_learned { LEVEL_IN_USE } else { LEVEL };
        let mut known = self.errors.iter().filter(|it| KIND_SEEN_MIN <= it.seen);
        let is_level = |it: &Errors| it.learned <= level * it.given + SLIGHT;
        if !known.clone().all(is_level) {
            return false;
        }
        let bar = self.bar;
        let is_better =
            |it: &Errors| bar.given_min <= it.given && it.learned <= bar.share * it.given;
        self.prefers_learned || known.any(is_better)
    }
}
