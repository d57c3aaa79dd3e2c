//! `cleave simulate swarm`: random worlds with every invariant on. A seed that fails is printed with
//! the command that runs it alone.

use cleave_sim::swarm::{Survived, Trial, describe};

use super::compare::print;
use super::{header, runs};

/// Run random fleets, loads and faults with every invariant checked at every step
#[derive(Debug, clap::Args)]
pub(crate) struct Swarm {
    /// Seeds to run
    #[arg(long, value_name = "COUNT", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

impl Swarm {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        print(&format!(
            "cleave {} simulate swarm\n  seed: {}\n  seeds: {}\n",
            header::VERSION,
            self.seed,
            self.seeds
        ))?;
        let seeds: Vec<u64> = (0..self.seeds).map(|it| self.seed.wrapping_add(it)).collect();
        let bar = runs::progress();
        bar.set_message("worlds");
        let ended = runs::parallel(&seeds, |&seed| {
            let trial = Trial::new(seed);
            let what = describe(&trial.settings);
            let survived = trial.run();
            bar.inc(survived.as_ref().map_or(0, |it| it.requests));
            (seed, what, survived)
        });
        bar.finish_and_clear();
        let mut sum = Survived::default();
        let mut failed = 0;
        for (seed, what, survived) in ended {
            match survived {
                Ok(it) => {
                    if self.seeds == 1 {
                        print(&format!("seed {seed}: {what}: {it:?}\n"))?;
                    }
                    add(&mut sum, it);
                }
                Err(failure) => {
                    failed += 1;
                    print(&format!(
                        "seed {seed} fails: {failure}\n  {what}\n  alone: cleave simulate swarm --seed {seed}\n"
                    ))?;
                }
            }
        }
        print(&format!(
            "{} worlds, {failed} failed; {} requests: {} finished, {} cut, {} refused, {} too long; {} retries; books of routers compared {} times\n",
            self.seeds,
            sum.requests,
            sum.finished,
            sum.cut,
            sum.refused,
            sum.too_long,
            sum.retries,
            sum.books_compared
        ))?;
        anyhow::ensure!(failed == 0, "{failed} of {} seeds fail", self.seeds);
        Ok(())
    }
}

fn add(sum: &mut Survived, it: Survived) {
    sum.requests += it.requests;
    sum.finished += it.finished;
    sum.cut += it.cut;
    sum.refused += it.refused;
    sum.too_long += it.too_long;
    sum.retries += it.retries;
    sum.books_compared += it.books_compared;
}
