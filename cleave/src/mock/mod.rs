//! A replica without a GPU: the simulated engine in real time behind the APIs of vLLM, for demos
//! and tests. Timing, batching, prefix cache and token counts are the engine's; the text is
//! deterministic noise. Faults can be switched on from the command line and while it runs. It never
//! pretends to understand: stop sequences, sampling and log probabilities are accepted and ignored.

#[cfg(test)]
mod agreement;
mod answer;
mod args;
mod ask;
mod driver;
mod events;
mod faults;
mod metrics;
mod refusal;
mod routes;
mod shapes;
mod stored;
#[cfg(test)]
mod tests;
mod text;

pub(crate) use args::Args;
pub(crate) use faults::Faults;

use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use cleave_sim::engine;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use driver::{Clock, Driver};
use faults::FaultBox;

/// What a mock replica is and how it misbehaves.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Sent with every answer as `x-mock-replica`; the address when there is none.
    pub(crate) name: Option<String>,
    /// Names it serves; the first is the one it uses when a request names none.
    pub(crate) models: Vec<String>,
    pub(crate) engine: engine::EngineSettings,
    /// How much faster than an H200 time passes; infinity runs steps without waiting at all.
    pub(crate) speed: f64,
    /// Replicas with one seed give one answer to one prompt.
    pub(crate) seed: u64,
    pub(crate) faults: Faults,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            name: None,
            models: vec!["mock-8b".to_owned()],
            engine: engine::EngineSettings::default(),
            speed: 1.0,
            seed: 0,
            faults: Faults::default(),
        }
    }
}

/// Why a replica ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    ShutDown,
    /// The crash that was asked for; a process of its own should now abort.
    Crashed,
}

/// One mock replica; clones are the same one.
#[derive(Clone, Debug)]
pub(crate) struct Replica {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    models: Vec<String>,
    author: text::Author,
    block_tokens: u32,
    driver: Arc<Driver>,
    faults: FaultBox,
    stored: stored::Store,
    crash: CancellationToken,
    started_at: SystemTime,
}

/// Serves one replica until `shutdown` or the crash it was set to. Either way every connection is
/// closed at once: a router must live with that, so its tests should see it.
pub(crate) async fn run(
    listener: TcpListener,
    settings: Settings,
    shutdown: impl Future<Output = ()>,
) -> io::Result<Ended> {
    let name = match &settings.name {
        Some(name) => name.clone(),
        None => listener.local_addr()?.to_string(),
    };
    Ok(Replica::new(name, settings).serve(listener, shutdown).await)
}

impl Replica {
    pub(crate) fn new(name: String, settings: Settings) -> Self {
        let driver = Driver::new(settings.engine, Clock::new(settings.speed));
        driver.set_slow_factor(settings.faults.slow_factor);
        let shared = Shared {
            name,
            models: settings.models,
            author: text::Author { seed: settings.seed },
            block_tokens: settings.engine.block_tokens,
            driver: Arc::new(driver),
            faults: FaultBox::new(settings.faults, settings.seed),
            stored: stored::Store::default(),
            crash: CancellationToken::new(),
            started_at: SystemTime::now(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// Reports what the engine is doing.
    pub(crate) fn stats(&self) -> engine::Stats {
        self.shared.driver.stats()
    }

    pub(crate) async fn serve(
        &self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> Ended {
        let service = TowerToHyperService::new(routes::router(self.clone()));
        // Dropping the set ends every task in it, and with them every connection.
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&self.shared.driver).drive());
        tokio::pin!(shutdown);
        loop {
            tokio::select! {
                () = &mut shutdown => return Ended::ShutDown,
                () = self.shared.crash.cancelled() => return Ended::Crashed,
                Some(_) = tasks.join_next() => {}
                accepted = listener.accept() => match accepted {
                    Ok((stream, _)) => {
                        // A failure to set the option leaves a slower connection, not a broken one.
                        _ = stream.set_nodelay(true);
                        let connection = http1::Builder::new()
                            .timer(TokioTimer::new())
                            .serve_connection(TokioIo::new(stream), service.clone());
                        tasks.spawn(async move { _ = connection.await });
                    }
                    // Out of file descriptors, as a rule: connections must end before others come.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                },
            }
        }
    }
}
