//! How `cleave serve` ends when it is told to: the first signal drains, the second does not wait.

use std::sync::Arc;
use std::time::Duration;

use cleave_io::proxy::Router;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

/// How the process ends.
pub(crate) struct Stopping {
    pub(crate) router: Arc<Router>,
    /// How long connections are still accepted after SIGTERM.
    pub(crate) delay: Option<Duration>,
    pub(crate) stop: CancellationToken,
    pub(crate) hurry: CancellationToken,
}

impl Stopping {
    /// The first signal drains, the second does not wait. Load balancers are told before the port closes.
    pub(crate) async fn wait(self: Arc<Self>) -> anyhow::Result<()> {
        let (mut term, mut interrupt) =
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
        let mut next = async || {
            tokio::select! {
                _ = term.recv() => "SIGTERM",
                _ = interrupt.recv() => "SIGINT",
            }
        };
        let name = next().await;
        self.router.start_draining();
        let delay = self.delay.filter(|_| name == "SIGTERM");
        let mut is_second = false;
        if let Some(delay) = delay {
            info!(signal = name, ?delay, "not ready: connections are accepted for a while");
            is_second = timeout(delay, next()).await.is_ok();
        }
        info!(signal = name, "draining: no new connections, streams finish");
        self.stop.cancel();
        if !is_second {
            next().await;
        }
        warn!("second signal: ending at once");
        self.hurry.cancel();
        Ok(())
    }
}
