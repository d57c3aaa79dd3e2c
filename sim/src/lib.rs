//! Placeholder.

pub mod traces;
