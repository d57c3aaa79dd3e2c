//! The data plane: clients in front, replicas behind, one request at a time in between. Follow
//! `exchange.rs` from top to bottom for the life of a request. It decides nothing itself: where a
//! request goes is the brain's word, asked under one lock per pool.

mod announce;
mod body;
mod clock;
mod exchange;
mod headers;
mod intake;
mod pool;
mod recall;
mod relay;
mod rescue;
mod resume;
mod router;
mod server;
mod settings;
mod table;
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
pub use tls::TlsError;
