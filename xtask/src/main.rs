//! The automation of this repository, called as `cargo xtask COMMAND`. Everything that would be a
//! script of more than a line is a command here, because Rust is the one language every reader of
//! this repository knows, and because a checked program breaks earlier than a script.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool speaks")]

mod answer;
#[expect(
    clippy::disallowed_types,
    reason = "bodies of attackers and pages of the admin port are searched, whatever they hold"
)]
mod attack;
mod bench;
mod chaos;
mod debian;
mod dependencies;
mod dist;
mod e2e_envoy;
mod e2e_kube;
mod e2e_scale;
mod e2e_vllm;
mod finding;
mod fuzz;
mod http1;
mod layers;
mod observe;
mod package;
mod page;
mod process;
mod python;
mod repo;
mod rig;
mod same_bytes;
mod server;
mod source;
mod test;
mod tidy;
mod watch;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Automation of this repository")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Check what rustfmt and Clippy do not see: lengths, headers, leftovers, words
    Tidy,
    /// Check which crate and module may use which
    Layers,
    /// Run everything that must hold before a change lands
    Test(test::Args),
    /// Throw random inputs at what reads bytes from the network
    Fuzz(fuzz::Args),
    /// Torment a router and eight mock replicas, and count what clients notice
    Chaos(chaos::Args),
    /// Attack a router as clients, browsers and replicas could, and count what bystanders notice
    Attack(attack::Args),
    /// Show that no decision differs from another revision's, by what simulations print
    SameBytes(same_bytes::Args),
    /// Build the release binary without symbols, and its symbols apart
    Dist,
    /// Make a picture of every view of the page
    Shots(page::ShotsArgs),
    /// Check every panel and every alert with a real Prometheus
    Observe(observe::Args),
    /// Make packages of the release binary, and try each
    Package(package::Args),
    /// Measure whole processes on this machine
    #[command(subcommand)]
    Bench(bench::Command),
    /// Check the endpoint picker beside a real Envoy
    E2eEnvoy(e2e_envoy::Args),
    /// Check the router against a real API server of Kubernetes on this machine
    E2eKube(e2e_kube::Args),
    /// Check a router that starts and stops mock replicas as the work needs them
    E2eScale(e2e_scale::Args),
    /// Check the router in front of two real vLLM replicas on this machine's processor
    E2eVllm(e2e_vllm::Args),
}

fn main() -> ExitCode {
    let outcome = match Cli::parse().command {
        Command::Tidy => tidy::run(),
        Command::Layers => layers::run(),
        Command::Test(args) => return test::run(&args),
        Command::Fuzz(args) => fuzz::run(&args),
        Command::Chaos(args) => chaos::run(&args),
        Command::Attack(args) => attack::run(&args),
        Command::SameBytes(args) => same_bytes::run(&args),
        Command::Dist => dist::run(),
        Command::Shots(args) => page::shots(&args),
        Command::Observe(args) => observe::run(&args),
        Command::Package(args) => package::run(&args),
        Command::Bench(command) => bench::run(&command),
        Command::E2eEnvoy(args) => e2e_envoy::run(&args),
        Command::E2eKube(args) => e2e_kube::run(&args),
        Command::E2eScale(args) => e2e_scale::run(&args),
        Command::E2eVllm(args) => e2e_vllm::run(&args),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
