//! How a request did not fit its tenant's contract, as JSON.

use cleave_core::domain::span_ms;
use cleave_core::queue::OverContract;
use serde::{Deserialize, Serialize};

/// The limit that a refused request met first, and how it stood then.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ContractSeen {
    /// `mu`, `tokens` or `requests`; all figures but the last are in this unit.
    pub limit: String,
    pub per_min: f64,
    /// What may be used at once when nothing was used for long, and what of that was used.
    pub at_once: f64,
    pub used: f64,
    /// What the request was expected to use.
    pub needed: f64,
    /// Whether it is refused also while capacity is idle.
    pub hard: bool,
    /// When there was to be room for it.
    pub room_in_ms: f64,
    /// The same in a sentence.
    pub because: String,
}

impl ContractSeen {
    pub(super) fn of(it: &OverContract) -> Self {
        let OverContract { limit, per_min, at_once, used, needed, is_hard, retry_after, .. } = *it;
        Self {
            limit: limit.to_owned(),
            per_min,
            at_once,
            used,
            needed,
            hard: is_hard,
            room_in_ms: span_ms(retry_after),
            because: it.to_string(),
        }
    }
}
