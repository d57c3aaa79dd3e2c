//! The data plane: clients in front, replicas behind, one request at a time in between. Follow
//! `exchange.rs` from top to bottom for the life of a request. It decides nothing itself: where a
//! request goes is the brain's word, asked under one lock per pool.

mod announce;
mod assignment_file;
mod body;
mod buffers;
mod callers;
mod cancel;
mod chance;
mod claim;
mod client;
mod clock;
mod costs_file;
mod exchange;
mod explanations;
mod flow;
mod guard;
mod headers;
mod intake;
mod kept_ids;
mod life;
mod listener;
mod news_board;
mod open_connections;
mod orders;
mod outgoing;
mod panics;
mod peer_desk;
mod pick;
mod picked;
mod pool;
mod relay;
mod rescue;
mod resume;
mod router;
mod salts;
mod scale;
mod sending;
mod server;
mod settings;
mod sharing;
mod stuck;
mod table;
mod tenants;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;
mod vetting;
mod visit;
mod worker;
mod workloads;

pub(crate) use explanations::equal_in_constant_time;
pub use explanations::{Explanations, KeptDecision, KeptFor, KeptLife, KeptTry, RequestOutcome};
pub use flow::{FlowHistory, FlowMeter, FlowSample, Lately, RefusedKind, ReplicaFlow};
pub(crate) use guard::{Guard, Socket};
pub use listener::{BindError, Listener};
pub use news_board::{NewsReader, PoolNews};
pub use orders::{Given, Pin, StandingOrders};
pub(crate) use panics::{Panicked, contained};
pub use peer_desk::{PeerDesk, PeerQuestion};
pub use picked::{BodyState, Destination, HeaderChanges, OwnAnswer, PickedRequest, Picking};
pub use pool::{LiveMember, Pool, ScaledReplica};
pub use router::{NotAudited, NotKept, NotOrdered, NotRecorded, OnlyInForce, Router};
pub use salts::CacheSecret;
pub use scale::{
    Actuator, KubernetesScale, LedSize, ScaleBoard, ScaleCommand, ScaleKind, ScaleMode, ScalePoint,
    ScaleState, ScaleStep, ScaleTarget, ScalingSettings,
};
pub use server::Server;
pub use settings::{
    CacheScope, ExplainSettings, HardwareClasses, Hosting, Limits, Passing, PoolSettings,
    ProxySettings, ReplicaSettings, Timeouts, default_session_headers,
};
pub use sharing::{PeerView, Sharing, StoreStanding};
pub use tenants::{KeyHash, TenantSettings, Tenants, UnknownKeys};
pub use workloads::WorkloadNames;
