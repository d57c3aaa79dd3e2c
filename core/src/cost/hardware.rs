//! What decisions need of one class of replicas: how long their steps take, what a request costs in
//! their time, and how much they get done. Shared by all replicas of the class. It is not the
//! `Coefficients` of a file, which also say where they come from and how far to trust them.

use super::{Coefficients, KneePoint, Mix, Origin, RequestCost, StepTimes};

const MINUTE_MS: f64 = 60_000.0;

/// What the reference class makes in a minute at its knee.
const REFERENCE_MU_PER_MIN: f64 = 100.0;

/// One class of replicas, by what work takes there.
#[derive(Clone, Debug, PartialEq)]
pub struct Hardware {
    pub class: String,
    pub step: StepTimes,
    pub cost: RequestCost,
    /// Model units a minute at the knee.
    pub capacity_mu_per_min: f64,
    /// What an answer's way to the client adds to its first token.
    pub overhead_ms: f64,
    /// Whether these figures were measured on such a replica, and are more than a guess.
    pub is_measured: bool,
}

impl Hardware {
    /// Turns time of this class, busy at its knee, into model units.
    pub fn mu(&self, busy_ms: f64) -> f64 {
        busy_ms / MINUTE_MS * self.capacity_mu_per_min
    }

    /// Knows nothing but step times: the knee is predicted, and the class is its own reference.
    pub fn of_steps(class: &str, step: StepTimes) -> Self {
        let knee = KneePoint::predict(&step, Mix::USUAL);
        Self {
            class: class.to_owned(),
            step,
            cost: RequestCost::at_knee(&step, knee.concurrency),
            capacity_mu_per_min: REFERENCE_MU_PER_MIN,
            overhead_ms: 0.0,
            is_measured: false,
        }
    }
}

/// The reference: a model of eight billion parameters on one H200. Where it is wrong it is wrong by
/// about the same factor on all replicas, which changes no comparison between them.
impl Default for Hardware {
    fn default() -> Self {
        Self::of_steps("h200", StepTimes::LLAMA_8B)
    }
}

impl From<&Coefficients> for Hardware {
    fn from(it: &Coefficients) -> Self {
        Self {
            class: it.class.clone(),
            step: it.step,
            cost: it.request_cost(),
            capacity_mu_per_min: it.capacity_mu_per_min,
            overhead_ms: it.overhead_ms,
            is_measured: it.origin == Origin::Replica,
        }
    }
}
