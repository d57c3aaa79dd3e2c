//! Where should it go?
mod name;
pub use name::{PolicyName, UnknownPolicy};
