//! Costs as JSON, for `/load` and `/explain`: which coefficients price a class of replicas, and how far
//! off they and those they replaced were lately.

use std::collections::BTreeMap;

use cleave_core::cost::StepTimes;
use cleave_core::cost::learned::{Errors, Kind, Learned};
use serde::{Deserialize, Serialize};

/// The costs of one class.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CostFigures {
    pub class: String,
    /// `learned`, or `given` by the operator or built in.
    pub used: String,
    /// Times that were seen and learned from.
    pub seen_total: u64,
    /// How often the engine was found to be another than before.
    pub changes_total: u32,
    /// What was learned, whether it is used or not.
    pub learned: StepTimes,
    pub learned_overhead_ms: f64,
    /// By kind of time: `first_token`, `gaps`, `whole`.
    pub errors: BTreeMap<String, CostErrors>,
}

/// How far predictions were off lately, on average, as a share of the time it took.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct CostErrors {
    /// By the coefficients that were given.
    pub given: f64,
    /// By those that were learned.
    pub learned: f64,
}

impl CostFigures {
    pub(super) fn of(it: &Learned) -> Self {
        let errors = Kind::ALL.map(|kind| (kind, it.errors_of(kind)));
        let seen = errors.into_iter().filter(|it| 0 < it.1.seen);
        Self {
            class: it.class.clone(),
            used: if it.is_used { "learned" } else { "given" }.to_owned(),
            seen_total: it.seen,
            changes_total: it.changes,
            learned: it.step,
            learned_overhead_ms: it.overhead_ms,
            errors: seen
                .map(|(kind, it)| (kind.as_str().to_owned(), CostErrors::of(&it)))
                .collect(),
        }
    }
}

impl CostErrors {
    fn of(it: &Errors) -> Self {
        Self { given: Errors::share(it.given), learned: Errors::share(it.learned) }
    }
}
