//! The APIs, one file each: how a request is read and how its answer is written. Nothing here knows
//! about time or the engine.

pub(super) mod chat;
pub(super) mod completions;
pub(super) mod messages;
pub(super) mod pooling;
pub(super) mod responses;
pub(super) mod tokens;
