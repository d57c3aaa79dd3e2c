//! How many replicas does the work need? A [`Scaler`] is told what its pool was like every few seconds and says how
//! many replicas there should be, why, and every figure behind it. It starts and stops nothing: a router hands its
//! advice to what does, and the simulator plays it in virtual time.
//!
//! The unit is the one that routing has: model units a minute. What is needed is what will come at the moment when a
//! replica asked for now would be ready, with a margin by how wrong such forecasts were lately, over what one warm
//! replica does within its promises. Everything that takes time follows from the start-up time.

mod advice;
mod asked;
mod forecast;
mod history;
mod offered;
mod rules;
mod sample;
mod scaler;
mod start_up;
mod victims;

pub use advice::{Advice, ScaleReason as Reason, ScaleTerms as Terms};
pub use offered::{Offered, OfferedWork};
pub use rules::Rules;
pub use sample::Sample;
pub use scaler::Scaler;
pub use victims::{Holding, cache_value, victims};

#[cfg(test)]
mod tests;
