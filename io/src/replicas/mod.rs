//! Replicas.
mod settings;
pub use settings::{BadOrigin, Origin, ProbeSettings};
