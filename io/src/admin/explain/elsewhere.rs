//! Whose bookings made a replica expensive.

use cleave_core::brain::Considered;
use serde::{Deserialize, Serialize};

/// What one other router had booked at a replica when a request was decided.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouterShare {
    /// The router, by its id.
    pub router: String,
    pub in_flight: u32,
    pub work_ms: f64,
    /// Its part of all work that was booked there.
    pub share: f64,
}

pub(super) fn shares(it: &Considered) -> Vec<RouterShare> {
    let all = it.booked_ms.max(f64::MIN_POSITIVE);
    let shares = it.elsewhere.iter().map(|by| RouterShare {
        router: by.router.to_string(),
        in_flight: by.in_flight,
        work_ms: by.work_ms,
        share: (by.work_ms / all).clamp(0.0, 1.0),
    });
    let mut shares: Vec<RouterShare> = shares.collect();
    shares.sort_by(|a, b| b.work_ms.total_cmp(&a.work_ms));
    shares
}
