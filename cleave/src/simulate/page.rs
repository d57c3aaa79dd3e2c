//! Writes the page: the comparison at the plan's rate, and figures over a ladder of rates.

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::Context as _;
use cleave_sim::report::{self, PageInput, PolicyCurves, SweepAxis, SweepPoint};

use super::compare::{Comparison, compare};
use super::plan::Plan;
use super::{header, runs, sweep};

/// Rates of the plots over load, as multiples of the plan's.
const LADDER: [f64; 5] = [0.5, 0.7, 1.0, 1.4, 2.0];

/// Finds out whether the page can be written, before hours are spent on what is in it.
pub(crate) fn check(file: Option<&Path>) -> anyhow::Result<()> {
    let Some(file) = file else { return Ok(()) };
    let opened = OpenOptions::new().create(true).append(true).open(file);
    opened.map(|_| ()).with_context(|| format!("cannot write {}", file.display()))
}

/// Runs the comparison and writes the page with figures over load that are there already.
pub(crate) fn write(
    file: &Path,
    plan: &Plan,
    points: Vec<SweepPoint>,
    axis: SweepAxis,
) -> anyhow::Result<()> {
    let comparison = compare(plan)?;
    write_comparison(file, plan, &comparison, points, axis)
}

/// Writes the page for a comparison; figures over load come from a ladder of rates around it.
pub(crate) fn write_with_ladder(
    file: &Path,
    plan: &Plan,
    comparison: &Comparison,
) -> anyhow::Result<()> {
    let base = plan.replay.rate_scale.get();
    let jobs: Vec<_> = plan
        .policies
        .iter()
        .flat_map(|policy| LADDER.map(|factor| (*policy, base * factor)))
        .collect();
    let bar = runs::progress();
    bar.set_message(format!("{} runs for the plots over load", jobs.len()));
    let done = runs::parallel(&jobs, |&(policy, scale)| {
        sweep::run_at(plan, policy, scale, &bar).map(|it| SweepPoint::of(scale, &it))
    });
    bar.finish_and_clear();
    let points = done.into_iter().collect::<anyhow::Result<_>>()?;
    let axis = SweepAxis {
        over: "rate_scale",
        knees: Vec::new(),
        good: None,
        compared_at: None,
        remarks: Vec::new(),
    };
    write_comparison(file, plan, comparison, points, axis)
}

fn write_comparison(
    file: &Path,
    plan: &Plan,
    comparison: &Comparison,
    points: Vec<SweepPoint>,
    axis: SweepAxis,
) -> anyhow::Result<()> {
    let policies = comparison.policies.iter().map(|(summary, runs)| PolicyCurves {
        summary: summary.clone(),
        first: runs[0].results.clone(),
        curves: runs[0].curves.clone(),
    });
    let input = PageInput {
        version: header::VERSION,
        seed: plan.seed,
        parameters: header::parameters(plan),
        bounds: &comparison.bounds,
        policies: policies.collect(),
        points,
        axis,
    };
    std::fs::write(file, report::page(input)?)
        .with_context(|| format!("cannot write {}", file.display()))
}
