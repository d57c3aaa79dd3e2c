//! What the planner aims at. The defaults are those of Cleave; each is a share, a count or a time,
//! none depends on the unit of load.

use std::time::Duration;

use super::rule::Bounds;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlannerSettings {
    /// Holders per replica below which slices are split even when they are cool: with few slices,
    /// balance is coarse.
    pub slices_min: u32,
    /// Holders per replica above which slices are merged.
    pub slices_max: u32,
    /// How far from the mean a replica may be, as a share of its capacity, before anything moves.
    pub band: f64,
    /// Load that is assumed everywhere, as a share of all capacity.
    pub reservation: f64,
    /// The share of all state that may move by choice in one round. What a failure, a drain or a
    /// new replica moves is not bounded by it.
    pub churn_max: f64,
    /// How long a slice that changed holders is not moved by choice.
    pub cool_down: Duration,
    /// For keys that no rule is about.
    pub bounds: Bounds,
    /// How many of a key's last bits never part it from others: keys that differ only there have the
    /// same holders, unless a rule says otherwise. For keys of two halves, the second one's bits.
    pub grain_bits: u32,
}

impl Default for PlannerSettings {
    fn default() -> Self {
        Self {
            slices_min: 32,
            slices_max: 64,
            band: 0.05,
            reservation: 0.01,
            churn_max: 0.1,
            cool_down: Duration::from_secs(60),
            bounds: Bounds::default(),
            grain_bits: 0,
        }
    }
}
