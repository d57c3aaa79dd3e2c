//! The endpoint picker of the Gateway API Inference Extension: a gateway's proxy (Envoy) asks for each request where it
//! goes, by external processing over gRPC, and carries the bytes itself. The room translates: what a request is, where
//! it goes and how it is settled is `proxy`'s to say (`PickedRequest`). No other room knows Envoy.

mod call;
mod health;
mod inbox;
mod messages;
mod server;
#[cfg(test)]
mod tests;
mod translate;

pub use server::PickerServer;
