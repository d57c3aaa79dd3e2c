//! `cleave simulate sweep`: raises the load until the promise breaks and says for each policy where. From
//! the given rate it goes up by steps while enough requests are good, down while too few are, and
//! then halves the step between the last good rate and the first bad one. With a range of replicas it is the
//! fleet that grows, at one load (`sweep_replicas`).

use std::path::PathBuf;

use anyhow::ensure;
use cleave_core::policy::PolicyKind;
use cleave_sim::report::{SweepAxis, SweepPoint};
use cleave_sim::results::Results;
use cleave_sim::traces::Scale;
use indicatif::ProgressBar;
use serde::Serialize;

use super::args::What;
use super::compare::print;
use super::plan::Plan;
use super::table::{digits, right_align, share, table};
use super::{header, output, page, runs};

/// Raise the load until the promise breaks, and report where for each policy
#[derive(Debug, clap::Args)]
pub(crate) struct Sweep {
    #[command(flatten)]
    what: What,
    /// Share of requests that must be good
    #[arg(long, default_value_t = 0.9, value_parser = parse_share)]
    pub(super) good: f64,
    /// Factor between two rates on the way up
    #[arg(long, default_value_t = 1.25, value_parser = parse_step)]
    step: f64,
    /// How often to halve the step around the knee
    #[arg(long, default_value_t = 3)]
    halvings: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    pub(super) json: bool,
    /// Write a page with the plots to this file
    #[arg(long, value_name = "FILE")]
    pub(super) report: Option<PathBuf>,
}

/// Steps up or down after which the search gives up.
const STEPS_MAX: u32 = 24;

/// Where a policy's promise breaks.
#[derive(Debug, Serialize)]
struct Knee {
    policy: String,
    /// The highest rate scale that kept the promise; none when no rate did.
    rate_scale: Option<f64>,
    requests_per_s: f64,
    good_per_s: f64,
    good_share: f64,
    hit: f64,
    ttft_p99_s: f64,
}

#[derive(Serialize)]
struct SweepDocument<'a> {
    version: &'static str,
    seed: u64,
    parameters: std::collections::BTreeMap<&'static str, String>,
    good: f64,
    step: f64,
    halvings: u32,
    knees: &'a [Knee],
    points: &'a [SweepPoint],
}

impl Sweep {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let scenario = self.what.clone().scenario()?;
        let range = self.what.replica_range();
        ensure!(
            range.is_none() || scenario.workload.load.is_none(),
            "a load is a share of one fleet: give --rate-scale with a range of replicas"
        );
        let plan = Plan::settle(scenario)?;
        page::check(self.report.as_deref())?;
        if let Some(range) = range {
            return self.over_replicas(&plan, range);
        }
        if !self.json {
            print(&header::text("simulate sweep", &plan))?;
            print(&format!(
                "  good: {}\n  step: {}\n  halvings: {}\n",
                self.good, self.step, self.halvings
            ))?;
        }
        let bar = runs::progress();
        bar.set_message(format!("{} policies", plan.policies.len()));
        let found = runs::parallel(&plan.policies, |policy| self.climb(&plan, *policy, &bar));
        bar.finish_and_clear();
        let (mut knees, mut points) = (Vec::new(), Vec::new());
        for found in found {
            let tried = found?;
            knees.push(self.knee(&tried));
            points.extend(tried.iter().map(|(scale, it)| SweepPoint::of(*scale, it)));
        }
        let marks = knees.iter().filter_map(|it| Some((it.policy.clone(), it.rate_scale?)));
        let axis = SweepAxis {
            over: "rate_scale",
            knees: marks.collect(),
            good: Some(self.good),
            compared_at: None,
            remarks: Vec::new(),
        };
        knees.sort_by(|a, b| b.good_per_s.total_cmp(&a.good_per_s));
        if self.json {
            print(&output::json(&SweepDocument {
                version: header::VERSION,
                seed: plan.seed,
                parameters: header::parameters(&plan),
                good: self.good,
                step: self.step,
                halvings: self.halvings,
                knees: &knees,
                points: &points,
            })?)?;
        } else {
            print(&format!("\n{}\n", knee_table(&knees)))?;
        }
        match &self.report {
            Some(file) => page::write(file, &plan, points, axis),
            None => Ok(()),
        }
    }

    /// Tries rates until the knee is found; returns every rate tried, in rising order.
    fn climb(
        &self,
        plan: &Plan,
        policy: PolicyKind,
        bar: &ProgressBar,
    ) -> anyhow::Result<Vec<(f64, Results)>> {
        let mut tried = Vec::new();
        let mut attempt = |scale: f64| -> anyhow::Result<bool> {
            let results = run_at(plan, policy, scale, bar)?;
            let good = self.good <= results.good_share;
            tried.push((scale, results));
            Ok(good)
        };
        let mut scale = plan.replay.rate_scale.get();
        let up = attempt(scale)?;
        let factor = if up { self.step } else { 1.0 / self.step };
        let mut bracket = None;
        for _ in 0..STEPS_MAX {
            let next = scale * factor;
            let good = attempt(next)?;
            if good != up {
                bracket = Some((scale.min(next), scale.max(next)));
                break;
            }
            scale = next;
        }
        if let Some((mut good, mut bad)) = bracket {
            for _ in 0..self.halvings {
                let middle = (good * bad).sqrt();
                if attempt(middle)? { good = middle } else { bad = middle }
            }
        }
        tried.sort_by(|a, b| a.0.total_cmp(&b.0));
        Ok(tried)
    }

    fn knee(&self, tried: &[(f64, Results)]) -> Knee {
        let kept = tried.iter().rfind(|(_, it)| self.good <= it.good_share);
        let (scale, it) = kept.or(tried.first()).expect("at least one rate was tried");
        Knee {
            policy: it.policy.clone(),
            rate_scale: kept.map(|_| *scale),
            requests_per_s: if 0.0 < it.good_share { it.good_per_s / it.good_share } else { 0.0 },
            good_per_s: it.good_per_s,
            good_share: it.good_share,
            hit: it.hit,
            ttft_p99_s: it.ttft_s.p99,
        }
    }
}

/// Runs one policy at one rate.
pub(crate) fn run_at(
    plan: &Plan,
    policy: PolicyKind,
    scale: f64,
    bar: &ProgressBar,
) -> anyhow::Result<Results> {
    let mut plan = plan.clone();
    plan.replay.rate_scale = Scale::new(scale)?;
    Ok(runs::run(&plan, policy, plan.seed, bar)?.results)
}

fn knee_table(knees: &[Knee]) -> comfy_table::Table {
    let mut table = table(&[
        "policy",
        "knee at rate scale",
        "requests/s",
        "good/s",
        "good",
        "hit",
        "TTFT p99 s",
    ]);
    for it in knees {
        table.add_row([
            it.policy.clone(),
            it.rate_scale.map_or_else(|| "none".to_owned(), digits),
            digits(it.requests_per_s),
            digits(it.good_per_s),
            share(it.good_share),
            share(it.hit),
            digits(it.ttft_p99_s),
        ]);
    }
    right_align(table)
}

fn parse_share(text: &str) -> Result<f64, String> {
    let share: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if 0.0 < share && share <= 1.0 { Ok(share) } else { Err("must be above 0, at most 1".into()) }
}

fn parse_step(text: &str) -> Result<f64, String> {
    let step: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    if (1.01..=10.0).contains(&step) { Ok(step) } else { Err("must be from 1.01 to 10".into()) }
}
