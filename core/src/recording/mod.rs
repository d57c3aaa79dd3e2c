//! The form of a recording: what is written down of requests, so that they can be replayed. There is no text in it.
//! Tenants and sessions are codes that the writer makes with a secret of its own, and blocks of prompts are
//! numbers in the order in which they were first seen, which tell what two prompts share and nothing else.
//!
//! A file is lines of JSON: a [`FileHead`], then [`PoolLine`]s, which say how the fleet stood, and
//! [`RequestLine`]s, in the order in which requests ended. The first key of a line says which of them it is.

mod lines;
mod numbering;

pub use lines::{
    ClassLine, CostLine, FileHead, PoolLine, ReplicaLine, RequestLine, UnknownVersion, VERSION,
};
pub use numbering::{BlockNumbers, NumberedRun};
