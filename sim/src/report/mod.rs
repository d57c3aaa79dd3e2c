//! The page: a comparison for people, in one file that needs nothing from outside. It draws what it is
//! given and computes nothing.

mod page;
pub use page::{PageInput, PolicyCurves, SweepAxis, SweepPoint, page};
