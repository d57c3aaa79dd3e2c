//! The comparison itself: every policy with every seed, the bounds beside them.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context as _;
use cleave_core::brain::TtftError;
use cleave_core::policy::PolicyKind;
use cleave_sim::bounds::Bounds;
use cleave_sim::measure::{ratio, real};
use cleave_sim::results::{MetricSummary, Results, summarize};
use indicatif::ProgressBar;

use super::args::What;
use super::output::{self, CompareDocument};
use super::plan::Plan;
use super::runs::{self, Run};
use super::table;
use super::{header, page};

#[derive(Debug, clap::Args)]
pub(crate) struct Compare {
    #[command(flatten)]
    what: What,
    /// Print JSON instead of tables
    #[arg(long, conflicts_with = "csv")]
    json: bool,
    /// Print one line of CSV for each run instead of tables
    #[arg(long)]
    csv: bool,
    /// Write a page with the comparison and its plots to this file
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// All that came of a plan.
pub(crate) struct Comparison {
    /// In the mean over seeds.
    pub(crate) bounds: Bounds,
    /// Policy by policy, the best first; of each, seed by seed.
    pub(crate) policies: Vec<(MetricSummary, Vec<Run>)>,
}

enum Job {
    Bounds { seed: u64 },
    Run { policy: PolicyKind, seed: u64 },
}

enum Done {
    Bounds(Box<Bounds>),
    Run(PolicyKind, Box<Run>),
}

impl Compare {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        self.what.refuse_range()?;
        let plan = Plan::settle(self.what.scenario()?)?;
        page::check(self.report.as_deref())?;
        let tables = !self.json && !self.csv;
        if tables {
            print(&header::text("simulate", &plan))?;
        }
        let comparison = compare(&plan)?;
        let all: Vec<&Results> =
            comparison.policies.iter().flat_map(|(_, runs)| runs).map(|it| &it.results).collect();
        let summaries: Vec<MetricSummary> =
            comparison.policies.iter().map(|(summary, _)| summary.clone()).collect();
        if self.json {
            print(&output::json(&CompareDocument {
                version: header::VERSION,
                seed: plan.seed,
                parameters: header::parameters(&plan),
                bounds: &comparison.bounds,
                policies: &summaries,
                runs: &all,
            })?)?;
        } else if self.csv {
            print(&output::csv(&all))?;
        } else {
            let firsts: Vec<&Results> =
                comparison.policies.iter().map(|(_, runs)| &runs[0].results).collect();
            print(&format!("\n{}\n", table::text(&summaries, &firsts, &comparison.bounds)))?;
        }
        say_walls(&comparison);
        match &self.report {
            Some(file) => page::write_with_ladder(file, &plan, &comparison),
            None => Ok(()),
        }
    }
}

/// Runs everything there is to compare.
pub(crate) fn compare(plan: &Plan) -> anyhow::Result<Comparison> {
    let mut jobs: Vec<Job> = plan.all_seeds().map(|seed| Job::Bounds { seed }).collect();
    for &policy in &plan.policies {
        jobs.extend(plan.all_seeds().map(|seed| Job::Run { policy, seed }));
    }
    let bar = runs::progress();
    bar.set_message(format!("{} runs", jobs.len()));
    let done = runs::parallel(&jobs, |job| do_job(plan, job, &bar));
    bar.finish_and_clear();
    let mut bounds = Vec::new();
    let mut of_policy: Vec<(PolicyKind, Vec<Run>)> =
        plan.policies.iter().map(|policy| (*policy, Vec::new())).collect();
    for done in done {
        match done? {
            Done::Bounds(it) => bounds.push(*it),
            Done::Run(policy, run) => {
                let place = of_policy.iter_mut().find(|(it, _)| *it == policy);
                place.expect("every run is of a policy").1.push(*run);
            }
        }
    }
    let summed = of_policy.into_iter().map(|(_, runs)| {
        let results: Vec<&Results> = runs.iter().map(|it| &it.results).collect();
        (summarize(&results), runs)
    });
    let mut policies: Vec<_> = summed.collect();
    policies.sort_by(|(a, _), (b, _)| {
        let good = b.good_share.mean.total_cmp(&a.good_share.mean);
        good.then(a.ttft_mean_s.mean.total_cmp(&b.ttft_mean_s.mean))
    });
    Ok(Comparison { bounds: Bounds::mean(&bounds), policies })
}

fn do_job(plan: &Plan, job: &Job, bar: &ProgressBar) -> anyhow::Result<Done> {
    match *job {
        Job::Bounds { seed } => {
            let bounds = runs::bound(plan, seed).context("the bounds")?;
            Ok(Done::Bounds(Box::new(bounds)))
        }
        Job::Run { policy, seed } => {
            Ok(Done::Run(policy, Box::new(runs::run(plan, policy, seed, bar)?)))
        }
    }
}

/// Says on standard error how long it took, which is no part of the result.
#[expect(clippy::print_stderr, reason = "wall times are kept apart from the results")]
fn say_walls(comparison: &Comparison) {
    for (summary, runs) in &comparison.policies {
        let wall_s: f64 = runs.iter().map(|it| it.wall.as_secs_f64()).sum();
        let requests: u64 = runs.iter().map(|it| it.results.requests).sum();
        let count: u64 = runs.iter().map(|it| it.decisions.count).sum();
        let nanos: u64 = runs.iter().map(|it| it.decisions.nanos).sum();
        eprintln!(
            "{:>24}: {:.2} s of one core, {:.0} requests/s, {:.0} decisions/s",
            summary.policy,
            wall_s,
            ratio(real(requests), wall_s),
            ratio(real(count) * 1e9, real(nanos)),
        );
        // Only this policy tells the books what is cached, so only its predictions mean something.
        if summary.policy == PolicyKind::PRICED.as_str() {
            say_ttft_error(runs);
        }
    }
}

/// Says how well first tokens were predicted at the decision.
#[expect(clippy::print_stderr, reason = "it is kept apart from the results, which policies share")]
fn say_ttft_error(runs: &[Run]) {
    let mut all = TtftError::default();
    for it in runs {
        all.merge(&it.ttft_error);
    }
    eprintln!(
        "{:>24}  first tokens predicted within {:.0} ms or {:.0}% (median), {:.0} ms or {:.0}% (p90)",
        "",
        all.error_ms(0.5),
        100.0 * all.error_share(0.5),
        all.error_ms(0.9),
        100.0 * all.error_share(0.9),
    );
}

/// Writes results out; a reader that has seen enough is no failure.
pub(crate) fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        written => Ok(written?),
    }
}
