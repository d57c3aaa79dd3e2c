//! Figures for people and programs: what a run was like as plain numbers with their units in their
//! names, curves for plots, several seeds as one figure with its interval, and the page. It computes
//! from measures and never runs anything.

mod intervals;
mod page;
pub use intervals::{Interval, Summary, summarize};
pub use page::{PageInput, PolicyCurves, SweepPoint, page};
