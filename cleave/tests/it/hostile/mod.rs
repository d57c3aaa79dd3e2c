//! Clients and replicas that are hostile or broken: the right status, a clear error, and no
//! other request is affected.

mod admin;
mod bodies;
mod figures;
mod floods;
mod framing;
mod hangups;
mod idle;
mod logs;
mod paths;
mod readers;
mod replicas;
mod secrets;
mod steering;
mod tls;
mod uploads;

use crate::support::{Router, Scripted, json_answer};

/// A router in front of one sound replica.
async fn sound(settings: &str) -> (Router, Scripted) {
    let replica = Scripted::answering(json_answer(200, "{}")).await;
    let router = Router::start(&[replica.url()], settings).await;
    (router, replica)
}
