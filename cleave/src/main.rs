//! The one binary: a table of contents. Each command is a room of its own.

mod calibrate;
mod hardware;
mod mock;
mod simulate;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// A router for LLM inference: sessions stay where their KV cache is, load is measured in work
#[derive(Debug, Parser)]
#[command(version, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    MockReplica(mock::Args),
    Calibrate(calibrate::Args),
    Simulate(Box<simulate::Args>),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::MockReplica(args) => args.run(),
        Command::Calibrate(args) => args.run(),
        Command::Simulate(args) => args.run(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&error),
    }
}

#[expect(clippy::print_stderr, reason = "the last word of a command that failed")]
fn fail(error: &anyhow::Error) -> ExitCode {
    eprintln!("error: {error:#}");
    ExitCode::FAILURE
}
