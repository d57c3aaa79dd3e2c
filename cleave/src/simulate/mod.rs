//! `cleave simulate`: the brain that serves, replayed on recorded or generated workloads against
//! simulated engines, compared with every other policy and with what is possible. Results go to
//! standard output and are the same bytes for the same seed; progress and wall times go to standard
//! error.

mod args;
pub(crate) mod compare;
mod groups;
mod header;
mod load;
pub(crate) mod output;
mod page;
mod plan;
pub(crate) mod routers;
pub(crate) mod runs;
mod scale;
mod scale_plot;
mod scale_table;
pub(crate) mod scenario;
mod subsets;
mod subsets_plot;
mod swarm;
mod sweep;
mod sweep_replicas;
pub(crate) mod table;

/// Replay a workload in virtual time and compare policies with each other and with what is possible
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    compare: compare::Compare,
}

#[derive(Debug, clap::Subcommand)]
enum Command {
    Sweep(Box<sweep::Sweep>),
    Swarm(swarm::Swarm),
    Subsets(Box<subsets::Subsets>),
    Scale(Box<scale::Scale>),
}

impl Args {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        match self.command {
            None => self.compare.run(),
            Some(Command::Sweep(sweep)) => sweep.run(),
            Some(Command::Swarm(swarm)) => swarm.run(),
            Some(Command::Subsets(subsets)) => subsets.run(),
            Some(Command::Scale(scale)) => scale.run(),
        }
    }
}
