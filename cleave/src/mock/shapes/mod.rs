//! The APIs, one file each: how a request is read and how its answer is written. Nothing here knows
//! about time or the engine.

pub(super) mod chat;
pub(super) mod completions;
pub(super) mod embeddings;
pub(super) mod messages;
pub(super) mod prompts;
pub(super) mod responses;
