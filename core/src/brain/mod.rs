//! Brain.
mod settings;
pub use settings::{RetrySettings, SessionSettings, Settings};
