//! The data plane: clients in front, replicas behind, one request at a time in between. Follow
//! `exchange.rs` from top to bottom for the life of a request. It decides nothing itself: where a
//! request goes is the brain's word, asked under one lock per pool.

mod body;
mod claim;
mod clock;
mod exchange;
mod headers;
mod intake;
mod pool;
mod relay;
mod rescue;
mod router;
mod server;
mod settings;
mod table;
mod tenants;
mod tls;
mod visit;
mod worker;

pub use pool::Pool;
pub use router::Router;
pub use server::{BindError, Server};
pub use settings::{
    CacheScope, Limits, PoolSettings, ReplicaSettings, Settings, Timeouts, TlsSettings,
    default_session_headers,
};
pub use tenants::{KeyHash, TenantSettings, Tenants, UnknownKeys};
pub use tls::TlsError;
