//! The one binary: a table of contents. Each command is a room of its own.

mod admin;
mod assignment;
mod calibrate;
mod check_config;
mod demo;
mod epp;
mod explain;
mod files;
mod hardware;
mod manual;
mod membership;
mod mock;
mod plane;
mod replay;
mod scale;
mod serve;
mod simulate;
mod stopping;
mod stream;
mod style;
mod successor;
mod top;

use std::io;
use std::process::ExitCode;
use std::sync::LazyLock;

use clap::{Parser, Subcommand};
use cleave_io::telemetry;

/// What `--version` says; `-V` says the number alone.
static LONG_VERSION: LazyLock<String> = LazyLock::new(|| {
    let defaults = cleave_core::brain::Settings::default().summary();
    format!("{}\ndefaults: {defaults}", env!("CARGO_PKG_VERSION"))
});

/// The exit status of a command line or a configuration that cannot be used, as in sysexits.h.
const EX_USAGE: u8 = 64;

/// A router for LLM inference: sessions stay where their KV cache is, load is measured in work
#[derive(Debug, Parser)]
#[command(version, long_version = LONG_VERSION.as_str(), propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Serve),
    Epp(epp::Epp),
    CheckConfig(check_config::CheckConfig),
    Assignment(assignment::Args),
    Top(top::Args),
    Demo(demo::Args),
    MockReplica(mock::Args),
    Calibrate(calibrate::Args),
    Explain(explain::Args),
    Scale(scale::Args),
    Simulate(Box<simulate::Args>),
    Replay(Box<replay::Args>),
    Completions(manual::Completions),
    #[command(hide = true)]
    ManPages(manual::ManPages),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => args.run(),
        Command::Epp(args) => args.run(),
        Command::CheckConfig(args) => Ok(check_config::run(&args)),
        Command::Assignment(args) => args.run(),
        Command::Top(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Demo(args) => args.run(),
        Command::MockReplica(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Explain(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Scale(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Calibrate(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Simulate(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Replay(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::Completions(args) => args.run().map(|()| ExitCode::SUCCESS),
        Command::ManPages(args) => args.run().map(|()| ExitCode::SUCCESS),
    };
    done.unwrap_or_else(
        |error| if has_no_reader(&error) { ExitCode::SUCCESS } else { fail(&error) },
    )
}

/// Tells whether it only stopped because its output is not read any more, as in `cleave … | head`.
/// A connection that breaks is told with what was done on it, so it is never the outermost error.
fn has_no_reader(error: &anyhow::Error) -> bool {
    let outermost = error.chain().next().and_then(|it| it.downcast_ref::<io::Error>());
    outermost.is_some_and(|it| it.kind() == io::ErrorKind::BrokenPipe)
}

/// Says what went wrong, and waits no longer than a moment for the line to be read.
fn fail(error: &anyhow::Error) -> ExitCode {
    telemetry::last_words(&format!("error: {error:#}"));
    ExitCode::FAILURE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_says_which_parts_are_on_by_default() {
        let on = "defaults: policy priced, line on, gate off, subsets on, quarantine on, tries 3";
        assert!(LONG_VERSION.ends_with(on), "{}", *LONG_VERSION);
    }
}
