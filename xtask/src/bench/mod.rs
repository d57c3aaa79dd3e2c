//! `cargo xtask bench`: measurements on one machine, most of whole processes. Load and replica are threads
//! with blocking sockets and ready-made bytes, because they share a core and must cost much less than
//! what they measure; an async runtime would be neither needed nor cheaper here.

mod agreement;
mod cluster;
mod decision;
mod figures;
mod instructions;
mod load;
mod meter;
mod mock;
mod overhead;
mod page;
mod planner;
mod policies;
mod processor;
mod proxies;
mod soak;
mod table;

use std::process;

use anyhow::Result;
use clap::Subcommand;

use crate::process::must;
use crate::repo;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure what a proxy costs: Cleave beside nginx, haproxy and, where installed, other routers
    Overhead(overhead::Args),
    /// Count the instructions of a request and of a streamed event, of one binary beside another
    Instructions(instructions::Args),
    /// Measure the processor time that settings cost at a steady rate of requests
    Processor(processor::Args),
    /// Hold ten thousand slow streams open while a thousand clients a second come and go
    Soak(soak::Args),
    /// Measure what it costs that routers tell each other everything
    Cluster(cluster::Args),
    /// Hold the mock replica behind HTTP in real time against the simulator on the same arrivals
    MockAgreement(agreement::Args),
    /// Measure the line: what it takes to let one of 100,000 in and to say which goes next
    Line,
    /// Measure what it costs to decide where a request goes
    Decision(decision::Args),
    /// Measure a round of the auto-sharder and a lookup
    Planner,
    /// Measure what a page that is looked at takes of a router with hundreds of replicas
    Page(page::Args),
    /// Replay the development traces near their knees under all policies and print the tables
    Policies(policies::Args),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Overhead(args) => overhead::run(args),
        Command::Instructions(args) => instructions::run(args),
        Command::Processor(args) => processor::run(args),
        Command::Soak(args) => soak::run(args),
        Command::Cluster(args) => cluster::run(args),
        Command::MockAgreement(args) => agreement::run(args),
        Command::Line => {
            let mut cargo = process::Command::new("cargo");
            cargo.args(["bench", "-p", "cleave-core", "--bench", "line"]);
            must(cargo.current_dir(repo::root()))
        }
        Command::Decision(args) => decision::run(args),
        Command::Planner => planner::run(),
        Command::Page(args) => page::run(args),
        Command::Policies(args) => policies::run(args),
    }
}
