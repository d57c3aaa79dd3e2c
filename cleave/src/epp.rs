//! `cleave epp`: the same router for a gateway that carries the bytes itself, as the endpoint picker of the Gateway
//! API Inference Extension.

use std::process::ExitCode;

use crate::plane::Role;
use crate::serve::Serve;

/// Pick endpoints for a gateway: Envoy asks by gRPC where each request goes
///
/// The file is that of `cleave serve`; `listen` is where the gateway connects, by external processing (`ext_proc`).
/// Replicas are named by their IP addresses, because that is what gateways take.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Epp {
    #[command(flatten)]
    serve: Serve,
}

impl Epp {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        self.serve.run_as(Role::Picker)
    }
}
