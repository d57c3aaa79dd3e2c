//! Fleet.
mod breaker;
pub use breaker::BreakerSettings;
