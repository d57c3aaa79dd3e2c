//! The data plane.
mod settings;
pub use settings::{
    Limits, PoolSettings, ReplicaSettings, Settings, Timeouts, TlsSettings, default_session_headers,
};
