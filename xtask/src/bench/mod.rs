//! `cargo xtask bench`: measurements of whole processes on one machine. Load and replica are threads
//! with blocking sockets and ready-made bytes, because they share a core and must cost much less than
//! what they measure; an async runtime would be neither needed nor cheaper here.

mod figures;
mod load;
mod meter;
mod mock;
mod overhead;
mod proxies;
mod soak;
mod table;

use anyhow::Result;
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Measure what a proxy costs: Cleave beside nginx, haproxy and, where installed, other routers
    Overhead(overhead::Args),
    /// Hold ten thousand slow streams open while a thousand clients a second come and go
    Soak(soak::Args),
}

pub(crate) fn run(command: &Command) -> Result<()> {
    match command {
        Command::Overhead(args) => overhead::run(args),
        Command::Soak(args) => soak::run(args),
    }
}
