//! Which replicas own which keys? An auto-sharder as a library, in the line of Slicer and Dicer: it
//! cuts a key space of 64 bits into slices, assigns each to one or more replicas, and follows the
//! load. It knows nothing of requests or language models, reads no clock and draws no chance: the
//! same round planned twice gives the same assignment.
//!
//! - A [`LoadMeter`] measures load by slice and hot keys while requests pass; a [`LoadMap`] adds up
//!   what several of them saw.
//! - The [`Planner`] takes load, fleet, rules and the last [`Assignment`] and makes the next one:
//!   it splits, merges, moves, swaps, replicates, dereplicates and drains. Beside the result stand
//!   its cost ([`Churn`]) and the best possible balance ([`Balance`]).
//! - A [`Lookup`] finds the holders of a key, without allocating, and the stand-in for a dead
//!   holder, the same everywhere.
//! - A [`Diff`] tells what changed; a [`Sizer`] tells how many replicas a workload needs.
//!
//! A fleet of map-tile caches, as an example. Tiles are keys; downtown is hot.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use cleave_core::domain::{Moment, Place, SliceKey};
//! use cleave_core::sharding::*;
//!
//! let cache = |name| FleetMember::new(Place::of(name), 1000.0); // tiles a second
//! let fleet = [cache("north:9000"), cache("south:9000"), cache("west:9000")];
//! let roster = fleet.map(|it| (it.place, it.capacity));
//! let planner = Planner::new(PlannerSettings::default());
//!
//! // No tile was asked for yet: every cache gets its part of the map.
//! let empty = Arc::new(Assignment::empty());
//! let first = planner.plan(Moment::ZERO, &empty, &fleet, &[], &LoadMap::default());
//! let lookup = Lookup::new(first.assignment.clone(), roster);
//! let tile = |x: u64, y: u64| SliceKey((x * 4096 + y).wrapping_mul(0x9E37_79B9_7F4A_7C15));
//! assert_eq!(lookup.holders(tile(17, 4)).len(), 1);
//!
//! // A minute of traffic, half of it for the tile of the town hall.
//! let mut meter = LoadMeter::new(MeterSettings::default());
//! meter.reshape(Moment::ZERO, &lookup);
//! let mut now = Moment::ZERO;
//! for request in 0..60_000 {
//!     now = now + Duration::from_millis(1);
//!     let asked = if request % 2 == 0 { tile(2048, 2048) } else { tile(request % 997, 3) };
//!     meter.add(now, &lookup, asked, 1.0, 0.0);
//! }
//! let next = planner.plan(now, &first.assignment, &fleet, &[], &meter.map(now));
//! let lookup = Lookup::new(next.assignment.clone(), roster);
//! assert!(1 < lookup.holders(tile(2048, 2048)).len(), "the town hall is in several caches now");
//! assert!(next.balance.imbalance < 0.06);
//! assert_eq!(Diff::between(&first.assignment, &next.assignment).apply(&first.assignment).unwrap(),
//!            *next.assignment);
//!
//! // One cache dies: every lookup sends its tiles to the same stand-ins, before the next plan.
//! let dead = fleet[0].place;
//! let asked = tile(17, 4);
//! assert_ne!(lookup.pick(asked, |it| it != dead), Some(dead));
//! ```

mod assignment;
mod balance;
mod bound;
mod carve;
mod churn;
mod constrain;
mod diff;
mod draft;
mod generation;
mod load;
mod lookup;
mod merge;
mod meter;
mod numbers;
mod open;
mod planner;
mod replicate;
mod reserve;
mod rule;
mod settings;
mod sizer;
mod sketch;
mod slice;
mod split;

pub use assignment::{Assignment, Flaw, Held, Row, SliceReason, covers_every_key_once};
pub use bound::Balance;
pub use churn::Churn;
pub use diff::{Diff, Mismatch};
pub use draft::PlanActions;
pub use generation::Generation;
pub use load::{KeyLoad, LoadMap, RangeLoad};
pub use lookup::Lookup;
pub use meter::{LoadMeter, MeterSettings};
pub use planner::{Plan, Planner};
pub use rule::{Bounds, FleetMember, Rule};
pub use settings::PlannerSettings;
pub use sizer::{Sizer, SizerSettings, expected_overlap};
pub use sketch::Sketch;
pub use slice::Slice;

#[cfg(test)]
mod tests;
