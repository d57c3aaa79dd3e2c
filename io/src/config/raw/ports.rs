//! The sections about the two ports: the operators', with its tokens, its certificate and its audit file, and
//! the clients', with its certificate and its paths.

use std::path::PathBuf;

use cleave_core::protocol::AllowedPath;
use schemars::JsonSchema;
use serde::Deserialize;

use super::text::{AdminRights, HostName, Text, TextValue};
use super::{Slots, slots};
use crate::admin::Secret;
use crate::config::problem::Wrong;

/// The port for operators: metrics, health and status. It has no business on a public network.
#[derive(Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct AdminSection {
    /// Address of the admin port. Only this machine can reach the default.
    pub listen: Text<std::net::SocketAddr>,
    /// Address where KEDA's external scaler asks over gRPC how many replicas pools should have. It asks for no token
    /// and tells nothing else.
    #[schemars(extend("x-default" = "none"))]
    pub keda_listen: Option<Text<std::net::SocketAddr>>,
    /// Bearer token that every admin request must carry.
    /// Prefer `token_file`, which keeps the secret out of this file.
    #[schemars(extend("writeOnly" = true))]
    pub token: Option<Text<Secret>>,
    /// File that holds the token, and nothing else. Give this or `token`, not both.
    pub token_file: Option<PathBuf>,
    /// Tokens with names, in place of the one above or beside it. Orders are signed with the name.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<AdminTokenSection>")]
    pub tokens: Slots<AdminTokenSection>,
    /// File to which every order and every reload is appended, as a line of JSON with the token's name. An
    /// order that cannot be written down is refused.
    pub audit_file: Option<PathBuf>,
    /// Serves the port over TLS.
    pub tls: TlsSection,
    /// Names by which the port may be asked, beside its addresses and `localhost`. A request for any other
    /// name is refused, because a page in an operator's browser may have sent it.
    /// Where there is a token, every name will do.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<HostName>>")]
    pub hosts: Slots<Text<HostName>>,
}

impl Default for AdminSection {
    fn default() -> Self {
        let listen = Text(([127, 0, 0, 1], 9090).into());
        let (keda_listen, token, token_file, tokens, audit_file, tls, hosts) = Default::default();
        Self { listen, keda_listen, token, token_file, tokens, audit_file, tls, hosts }
    }
}

/// One token of the admin port.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(in crate::config) struct AdminTokenSection {
    /// Names the token in events and in the audit file.
    #[schemars(length(min = 1, max = 100))]
    pub name: String,
    /// The token. Prefer `token_file`.
    #[schemars(extend("writeOnly" = true))]
    pub token: Option<Text<Secret>>,
    /// File that holds the token, and nothing else. Give this or `token`, not both.
    pub token_file: Option<PathBuf>,
    /// What it may do: `read` pages, or also `order` drains, pins and freezes.
    #[serde(default)]
    pub rights: Text<AdminRights>,
}

/// Serves clients over TLS. Leave the section out to serve plain HTTP.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct TlsSection {
    /// Certificate chain in PEM, the router's own certificate first. It is read again when the file changes;
    /// only to turn TLS on or off needs a restart.
    #[schemars(extend("x-applies" = "reload"))]
    pub cert: Option<PathBuf>,
    /// Private key of that certificate, in PEM.
    #[schemars(extend("x-applies" = "reload"))]
    pub key: Option<PathBuf>,
}

/// Which paths clients may use. Those of inference are open: chat, completions, responses, messages, embeddings,
/// rerank, score, classify, pooling, tokenize, detokenize, audio, images, models. Any other is answered with 404,
/// because engines keep their administration on the same port.
#[derive(Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in crate::config) struct PathsSection {
    /// Further paths, for one method or for all, passed on to an engine of the only pool. A `*` at the end stands
    /// for all that begins like it.
    #[serde(deserialize_with = "slots")]
    #[schemars(with = "Vec<Text<AllowedPath>>")]
    pub allow: Slots<Text<AllowedPath>>,
}

impl TextValue for AllowedPath {
    const FORMAT: &'static str = "allowed-path";
    const EXAMPLE: &'static str = "GET /version";

    fn read(text: &str) -> Result<Self, Wrong> {
        Self::read(text).ok_or_else(|| {
            Wrong::new("is not a path", "write it as /ping, GET /version or /docs/*")
        })
    }

    fn write(&self) -> String {
        self.write()
    }
}
