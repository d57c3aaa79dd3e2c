//! The input of a round: the replicas that exist, and how many of them which keys may have. The
//! planner treats all of it as given; rules are sized elsewhere (see [`super::Sizer`]).

use crate::domain::Place;

use super::slice::Slice;

/// One replica of the fleet to plan for. A replica that is not listed is gone.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetMember {
    pub place: Place,
    /// What it can carry, in the unit of load; above zero.
    pub capacity: f64,
    /// Where it can be lost together with others. All alike when zones do not matter.
    pub zone: u32,
    /// It is to lose everything it holds, because it will leave.
    pub draining: bool,
}

impl FleetMember {
    pub const fn new(place: Place, capacity: f64) -> Self {
        Self { place, capacity, zone: 0, draining: false }
    }
}

/// How many replicas hold a slice. A fleet smaller than the floor has the whole fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    pub floor: u32,
    /// For the keys of a rule it also bounds the replicas of all its slices together.
    pub cap: u32,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { floor: 1, cap: u32::MAX }
    }
}

/// What holds for a range of keys instead of the defaults, for instance for one workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    pub slice: Slice,
    pub bounds: Bounds,
    /// Never split: all its keys have the same holders.
    pub whole: bool,
    /// No other keys are where these are. Given up when too few replicas would be left.
    pub exclusive: bool,
}
