//! Bytes to meaning: what a request body says that matters for routing, what an answer says of its
//! cost and an engine of its load, how errors look in each API. The only room that knows JSON field
//! names. It reads in place and never rebuilds a client's body.

mod api;
mod content;
mod depth;
mod engine;
mod error;
mod frames;
mod inference_pool;
mod kept;
mod kubernetes;
mod kubernetes_scale;
mod kubernetes_store;
mod meter;
mod models;
mod opening;
mod outline;
mod paths;
mod peek;
mod resume;
mod session;
mod steering;
mod token;
mod usage;
mod word;

pub use api::{Api, ApiPath, BadPath, Effect};
pub use engine::{read_birth, read_report};
pub use error::{ErrorBody, ErrorKind, health_body};
pub use frames::Frames;
pub use inference_pool::{InferencePool, read_inference_pool};
pub use kept::{IdReader, KeptField, KeptPath};
pub use kubernetes::{
    ApiStatus, BadApiAnswer, NodeZones, Pod, PodChange, PodPage, PodPort, read_api_status,
    read_node_zones, read_pod_change, read_pods,
};
pub use kubernetes_scale::{ObjectScale, read_scale, write_deletion_cost_patch, write_scale_patch};
pub use kubernetes_store::{
    LeaseChange, MapChange, ObjectLease, ObjectMap, read_lease, read_map, write_lease, write_map,
};
pub use meter::Meter;
pub use models::{Model, read_models, write_models};
pub use paths::{AllowedPath, PathVerdict, path_verdict};
pub use peek::{BadBody, Edit, Peek, Salting, Steered, Urgency, peek, quoted};
pub use resume::{Continuation, EventAction, Resume, event_end};
pub use session::SessionId;
pub use steering::{
    Allowed, Care, ENGINE_FIELDS, ENGINE_HEADERS, EngineField, engine_field, engine_header,
    is_credential,
};
pub use token::token_requests;
