//! `cleave calibrate`: finds out what requests cost, on a live replica from outside or on a table of
//! measured step times, and keeps the answer in a file. It measures and writes; using the numbers is
//! the router's business. The engine is never asked how it works, so any `OpenAI`-compatible one will
//! do, and what a client cannot see does not count.

mod client;
mod engine_metrics;
mod file;
mod grid;
mod ladder;
mod measure;
mod opening;
mod plot;
mod prompts;
mod replica;
mod report;
mod table;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

const EXAMPLES: &str = "\
Examples:
  cleave calibrate --replica http://gpu-0:8000 --class h200 --out costs.toml --plot costs.svg
  cleave calibrate --replica http://127.0.0.1:8001 --quick
  cleave calibrate --table steps.csv --out costs.toml";

/// Find out what requests cost: on a live replica, or on a table of step times
///
/// With --replica, a designed grid of requests is sent to one replica: prompts of several lengths, with
/// and without a cached prefix, batches of answers over several contexts, and a ladder of concurrencies.
/// From the times at which tokens arrive it fits the cost model by non-negative least squares, judges it
/// on requests that the fit has not seen, and finds the knee: the concurrency beyond which throughput
/// stops growing. Any OpenAI-compatible engine will do.
///
/// Take the replica out of rotation first: with other traffic on it the numbers mean nothing, so a
/// replica that is busy is refused unless --force is given. It takes some minutes (--quick: under two)
/// and never more than ten; Ctrl-C ends it early and keeps what was measured.
///
/// Without --replica, the model is fitted on a table of step times (one H200, built in).
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(
    clippy::doc_markdown,
    reason = "this text is shown on a terminal, where backticks are noise"
)]
pub(crate) struct Args {
    /// Replica to measure, as in http://gpu-0:8000
    #[arg(long, value_name = "URL", conflicts_with = "table")]
    replica: Option<String>,
    /// Model to ask for [default: the one the replica serves]
    #[arg(long, value_name = "NAME", requires = "replica")]
    model: Option<String>,
    /// Name for replicas with the same hardware and engine settings
    #[arg(long, value_name = "NAME", default_value = "default")]
    class: String,
    /// Table of measurements (CSV, columns as in core/data/README.md) [default: one H200, built in]
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Keep the coefficients in this file (TOML); other classes and models in it stay
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Draw predicted beside measured times, and throughput over concurrency
    #[arg(long, value_name = "FILE.svg", requires = "replica")]
    plot: Option<PathBuf>,
    /// Fewer and shorter requests: under two minutes, a rougher answer
    #[arg(long, requires = "replica")]
    quick: bool,
    /// Measure although the replica is serving others
    #[arg(long, requires = "replica")]
    force: bool,
    /// Print JSON instead of tables
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match &self.replica {
            Some(url) => replica::run(url, &self),
            None => table::run(&self),
        }
    }
}
