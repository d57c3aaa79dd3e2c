//! The admin port.
mod settings;
pub use settings::{Secret, Settings};
