//! Telemetry.
mod settings;
pub use settings::{LogFormat, Settings};
