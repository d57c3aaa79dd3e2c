//! Replicas at the other end of a socket: HTTP/1.1 connections that are kept while they are fresh,
//! and health checks. It never chooses a replica and never retries: a failure is told, not hidden,
//! or it would escape the books.

mod access;
mod answer;
mod connection;
mod framing;
mod idle;
mod probe;
mod settings;
mod stream;
mod trouble;
mod upload;

pub use access::{Access, EngineKey, Target};
pub use answer::{Answer, AnswerBody};
pub use connection::{Connection, OutgoingBody, Payload, SendError};
pub use framing::BadAnswer;
pub use idle::IdleConnections;
pub use probe::{Finding, Listed, Token, ask_models, ask_report, ask_token, probe};
pub use settings::{BadOrigin, Origin, ProbeSettings};
pub use trouble::Trouble;
pub use upload::{BodyError, Upload, UploadLimits};
