//! `cleave mock-replica`: the command line of one mock replica in a process of its own.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use anyhow::Context as _;
use cleave_sim::engine;
use tokio::net::TcpListener;

use crate::hardware::Hardware;

use super::{Ended, Faults, Settings};

/// Run a replica without a GPU: vLLM's APIs, an H200's timing, made-up text
///
/// Faults can also be replaced while it runs: POST /mock/faults with a JSON object of any of
/// fail_rate, hang_rate, truncate_rate, short_rate, garbage_rate, stall_rate, slow_factor,
/// unhealthy, metrics_frozen, poison; what is absent is no fault, so {} takes them all away. All but unhealthy and metrics_frozen strike requests that generate or embed, never /health or
/// /metrics.
#[derive(Debug, clap::Args)]
#[expect(
    clippy::doc_markdown,
    reason = "this text is shown on a terminal, where backticks are noise"
)]
pub(crate) struct Args {
    /// Port to listen on; 0 picks a free one, printed when ready
    #[arg(long)]
    port: u16,
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    host: IpAddr,
    /// Name sent with every answer as x-mock-replica [default: host:port]
    #[arg(long)]
    name: Option<String>,
    /// Model to serve; give it several times for several names
    #[arg(long = "model", value_name = "NAME", default_value = "mock-8b")]
    models: Vec<String>,
    /// The model and GPU whose step times the engine has, as fitted on measurements
    #[arg(long, value_enum, default_value_t = Hardware::Llama8b)]
    hardware: Hardware,
    /// How much faster than real time; inf does not wait at all
    #[arg(long, default_value_t = 1.0, value_parser = parse_speed)]
    speed: f64,
    /// Room in the KV cache
    #[arg(long, default_value_t = 524_288, value_parser = clap::value_parser!(u32).range(16..))]
    kv_tokens: u32,
    /// Sequences running at once at most
    #[arg(long, default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..))]
    max_seqs: u32,
    /// Tokens computed in one step at most
    #[arg(long, default_value_t = 8192, value_parser = clap::value_parser!(u32).range(1..))]
    batched_tokens: u32,
    /// Replicas with one seed give one answer to one prompt
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Share of requests answered with 500
    #[arg(long, default_value_t = 0.0, value_parser = parse_share)]
    fail_rate: f64,
    /// Share of requests never answered and never closed
    #[arg(long, default_value_t = 0.0, value_parser = parse_share)]
    hang_rate: f64,
    /// Share of answers cut in the middle
    #[arg(long, default_value_t = 0.0, value_parser = parse_share)]
    truncate_rate: f64,
    /// Listen only after this time, as an engine that loads its model does: 30s, 2m
    #[arg(long, value_name = "DURATION", default_value = "0s", value_parser = humantime::parse_duration)]
    start_delay: Duration,
    /// Stretch every step of the engine
    #[arg(long, default_value_t = 1.0, value_parser = parse_slow_factor)]
    slow_factor: f64,
}

fn parse_speed(text: &str) -> Result<f64, String> {
    let speed: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if 0.001 <= speed { Ok(speed) } else { Err("must be 0.001 or more".to_owned()) }
}

fn parse_slow_factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if 0.0 < factor { Ok(factor) } else { Err("must be above 0".to_owned()) }
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (0.0..=1.0).contains(&share) { Ok(share) } else { Err("must be from 0 to 1".to_owned()) }
}

impl Args {
    /// Serves until Ctrl-C, or until the crash it was set to.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let ended = runtime.block_on(self.serve())?;
        match ended {
            Ended::ShutDown => Ok(()),
            // A crash is asked for to see what a real one does, so it must be one.
            Ended::Crashed => std::process::abort(),
        }
    }

    async fn serve(self) -> anyhow::Result<Ended> {
        // Each waiting client holds a descriptor; a lower limit only means fewer of them.
        _ = rlimit::increase_nofile_limit(u64::MAX);
        tokio::time::sleep(self.start_delay).await;
        let listener = TcpListener::bind((self.host, self.port))
            .await
            .with_context(|| format!("cannot listen on {}:{}", self.host, self.port))?;
        announce(&listener.local_addr()?.to_string());
        let stop = async { _ = tokio::signal::ctrl_c().await };
        Ok(super::run(listener, self.into_settings(), stop).await?)
    }

    fn into_settings(self) -> Settings {
        Settings {
            name: self.name,
            models: self.models,
            engine: engine::EngineSettings {
                times: self.hardware.times(),
                kv_tokens: self.kv_tokens,
                batched_tokens_max: self.batched_tokens,
                seqs_max: self.max_seqs,
                ..engine::EngineSettings::default()
            },
            speed: self.speed,
            seed: self.seed,
            faults: Faults {
                fail_rate: self.fail_rate,
                hang_rate: self.hang_rate,
                truncate_rate: self.truncate_rate,
                slow_factor: self.slow_factor,
                ..Faults::default()
            },
        }
    }
}

#[expect(clippy::print_stdout, reason = "the address is read here by the caller")]
fn announce(address: &str) {
    println!("mock replica listening on http://{address}");
}
