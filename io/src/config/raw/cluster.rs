//! How this router finds others and knows them.

use std::net::SocketAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Slots, Text, TextValue, slots};
use crate::admin::Secret;
use crate::config::problem::Wrong;
use crate::coordination::PeerAddress;

/// Several routers that decide as one: each tells the others what it does. Leave the section out for a router that is
/// alone.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct ClusterSection {
    /// Address where other routers connect. Needed for this router to take part.
    pub listen: Option<Text<SocketAddr>>,
    /// Address that other routers are told, where `listen` is not the one that reaches this router.
    pub advertise: Option<Text<PeerAddress>>,
    /// Other routers, each `HOST:PORT`. One that is there is enough: it tells of the rest.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<PeerAddress>>")]
    pub peers: Slots<Text<PeerAddress>>,
    /// What all routers know and no other process does, of 16 characters or more. Needed unless all of them are on
    /// this machine. Prefer `secret_file`, which keeps it out of this file.
    #[schemars(extend("writeOnly" = true))]
    pub secret: Option<Text<Secret>>,
    /// File that holds the secret, and nothing else. Give this or `secret`, not both.
    pub secret_file: Option<PathBuf>,
}

impl TextValue for PeerAddress {
    const FORMAT: &'static str = "peer-address";
    const EXAMPLE: &'static str = "router-2.internal:7400";

    fn read(text: &str) -> Result<Self, Wrong> {
        let remedy = "give HOST:PORT, for example router-2.internal:7400";
        Self::read(text).ok_or_else(|| Wrong::new("is not the address of a router", remedy))
    }

    fn write(&self) -> String {
        self.as_str().to_owned()
    }
}
