//! What Cleave does: thin shells around the core. Everything that decides lives in `cleave-core`;
//! here are the sockets, the clock, the metrics and the file that configures them.

pub mod admin;
pub mod config;
pub mod coordination;
pub mod discovery;
pub mod picker;
pub mod proxy;
pub mod replicas;
pub mod scaling;
pub mod telemetry;
pub mod tls;
pub mod tokenizer;
