//! What the router does with requests: carries them itself (`serve`), or tells another proxy where they go (`epp`).
//! All else, from the configuration to the drain, is the same for both.

use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use cleave_io::config::Config;
use cleave_io::picker::PickerServer;
use cleave_io::proxy::{BindError, Router, Server};
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

/// A listener of one of both, bound.
pub(crate) enum DataPlane {
    Proxy(Server),
    Picker(Box<PickerServer>),
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
}

impl DataPlane {
    pub(crate) fn bind(
        role: Role,
        config: &Config,
        router: &Arc<Router>,
        given: Option<OwnedFd>,
    ) -> Result<Self, BindError> {
        let (router, fitting) =
            (Arc::clone(router), connections_that_fit(config.proxy.limits.connections_max));
        Ok(match role {
            Role::Proxy => Self::Proxy(Server::bind(router, given)?.with_connections_max(fitting)),
            Role::Picker => {
                let picker = PickerServer::bind(&config.proxy, router, given)?;
                Self::Picker(Box::new(picker.with_connections_max(fitting)))
            }
        })
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Proxy(it) => it.local_addr(),
            Self::Picker(it) => it.local_addr(),
        }
    }

    pub(crate) fn share_listener(&self) -> io::Result<OwnedFd> {
        match self {
            Self::Proxy(it) => it.share_listener(),
            Self::Picker(it) => it.share_listener(),
        }
    }

    /// Serves until `stop`, then drains until `hurry`; returns how many requests were cut.
    pub(crate) async fn run(
        self,
        stop: CancellationToken,
        hurry: CancellationToken,
        taken: CancellationToken,
    ) -> io::Result<usize> {
        match self {
            Self::Proxy(it) => it.run(stop, hurry, taken).await,
            Self::Picker(it) => it.run(stop, hurry, taken).await,
        }
    }
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
