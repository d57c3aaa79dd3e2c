//! What the router does with requests: carries them itself (`serve`), or tells another proxy where they go (`epp`).
//! All else, from the configuration to the drain, is the same for both.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cleave_io::config::Config;
use cleave_io::picker::PickerServer;
use cleave_io::proxy::{BindError, Listener, Router, Server};
use tokio_util::sync::CancellationToken;
use tracing::info;

use crate::files::connections_that_fit;

/// Which of both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Role {
    #[default]
    Proxy,
    Picker,
}

impl Role {
    /// Leaves out of a configuration what only the one that sends can do: a second try, and going on with a stream
    /// that broke off.
    pub(crate) fn adapt(self, mut config: Config) -> Config {
        if self == Self::Picker {
            for pool in &mut config.pools {
                pool.brain.retries.tries_max = 1;
                pool.resume = false;
            }
        }
        config
    }

    /// How the listener's address is written.
    pub(crate) const fn scheme(self, is_secure: bool) -> &'static str {
        match (self, is_secure) {
            (Self::Proxy, false) => "http",
            (Self::Proxy, true) => "https",
            (Self::Picker, false) => "grpc",
            (Self::Picker, true) => "grpcs",
        }
    }

    /// Serves until `stop`, then drains until `hurry`, and ends unless the socket is `taken` by another process;
    /// returns how many requests were cut.
    pub(crate) async fn serve(
        self,
        listener: Listener,
        router: Arc<Router>,
        [stop, hurry, taken]: [CancellationToken; 3],
    ) -> io::Result<usize> {
        match self {
            Self::Proxy => Server::new(router, listener).run(stop, hurry, taken).await,
            Self::Picker => PickerServer::new(router, listener).run(stop, hurry, taken).await,
        }
    }
}

/// Binds the listener, or takes the `given` one, which another process has bound.
pub(crate) fn bind(config: &Config, given: Option<OwnedFd>) -> Result<Listener, BindError> {
    let fitting = connections_that_fit(config.proxy.limits.connections_max);
    Listener::bind(config.proxy.listen, fitting, given)
}

/// Says where everything is: once on standard output for people and scripts, once in the log.
pub(crate) fn announce(
    role: Role,
    config: &Config,
    listen: SocketAddr,
    (admin_listen, keda_listen): (SocketAddr, Option<SocketAddr>),
) -> anyhow::Result<()> {
    let data = role.scheme(config.proxy.tls.is_some());
    let admin = Role::Proxy.scheme(config.admin.tls.is_some());
    let keda = keda_listen.map(|it| format!(", KEDA on grpc://{it}")).unwrap_or_default();
    let mut out = io::stdout();
    writeln!(
        out,
        "cleave listening on {data}://{listen}, admin on {admin}://{admin_listen}{keda}"
    )?;
    out.flush()?;
    for pool in &config.pools {
        let (replicas, policy) = (pool.replicas.len(), pool.brain.policy);
        info!(pool = pool.name, replicas, %policy, models = pool.models.join(","), "pool");
    }
    Ok(())
}
