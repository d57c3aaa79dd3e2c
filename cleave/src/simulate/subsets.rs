//! `cleave simulate subsets`: one scenario with subsets of several sizes, to see what a size costs in
//! calm times and what it saves when a tenant does harm. Every size has the same seeds and the same
//! requests, so that rows can be held against each other.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use cleave_core::brain::SubsetSettings;
use cleave_sim::measure::ratio;
use cleave_sim::results::{Interval, MetricSummary, Results, summarize};
use comfy_table::Table;
use serde::Serialize;

use super::args::What;
use super::compare::print;
use super::plan::Plan;
use super::table::{number, percent, right_align, share, table};
use super::{header, output, page, runs, subsets_plot};

/// Compare sizes of subsets: what they cost in calm times, and what they save when a tenant does harm
#[derive(Debug, clap::Args)]
pub(crate) struct Subsets {
    #[command(flatten)]
    what: What,
    /// The fewest replicas of a workload, with commas between them: a number, `auto` (as routers
    /// choose it by the size of the pool) or `none` (no subsets)
    #[arg(long, value_delimiter = ',', default_value = "none,1,2,3,4,8,auto", value_parser = parse_floor)]
    floors: Vec<Floor>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
    /// Draw the table as an SVG
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// One size to try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Floor {
    None,
    Auto,
    Of(u32),
}

/// What one size came to.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) floor: String,
    pub(super) summary: MetricSummary,
}

#[derive(Serialize)]
struct SubsetsDocument<'a> {
    version: &'static str,
    seed: u64,
    parameters: std::collections::BTreeMap<&'static str, String>,
    rows: &'a [Row],
}

impl Subsets {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        self.what.refuse_range()?;
        let plan = Plan::settle(self.what.scenario()?)?;
        ensure!(plan.policies.len() == 1, "give one policy: sizes are compared, not policies");
        page::check(self.plot.as_deref())?;
        if !self.json {
            print(&header::text("simulate subsets", &plan))?;
        }
        let rows = measure(&plan, &self.floors)?;
        if self.json {
            print(&output::json(&SubsetsDocument {
                version: header::VERSION,
                seed: plan.seed,
                parameters: header::parameters(&plan),
                rows: &rows,
            })?)?;
        } else {
            print(&format!("\n{}\n", text(&rows)))?;
        }
        match &self.plot {
            Some(file) => std::fs::write(file, subsets_plot::draw(&rows, &title(&plan)))
                .with_context(|| format!("cannot write {}", file.display())),
            None => Ok(()),
        }
    }
}

/// Runs every size with every seed.
fn measure(plan: &Plan, floors: &[Floor]) -> anyhow::Result<Vec<Row>> {
    let jobs: Vec<(Floor, u64)> =
        floors.iter().flat_map(|it| plan.all_seeds().map(|seed| (*it, seed))).collect();
    let bar = runs::progress();
    bar.set_message(format!("{} runs", jobs.len()));
    let done = runs::parallel(&jobs, |(floor, seed)| {
        let mut plan = plan.clone();
        let subsets = &mut plan.settings.brain.subsets;
        subsets.floor = match floor {
            Floor::None => SubsetSettings::undivided().floor,
            Floor::Auto => None,
            Floor::Of(floor) => Some(*floor),
        };
        runs::run(&plan, plan.policies[0], *seed, &bar)
    });
    bar.finish_and_clear();
    let results = done.into_iter().map(|it| it.map(|it| it.results));
    let results: Vec<Results> = results.collect::<anyhow::Result<_>>()?;
    // Figures of no request would be zeros that look like findings.
    ensure!(
        results.iter().all(measured_somebody),
        "nothing was measured: no request came after the warm-up, or after the first fault; play \
         more of them (--requests, --until)"
    );
    let seeds = results.len() / floors.len().max(1);
    let of_floor = results.chunks(seeds.max(1)).map(|it| summarize(&it.iter().collect::<Vec<_>>()));
    let row = |(floor, summary): (&Floor, MetricSummary)| Row { floor: floor.to_string(), summary };
    Ok(floors.iter().zip(of_floor).map(row).collect())
}

/// Tells whether there was any request whose figures a row would show.
fn measured_somebody(it: &Results) -> bool {
    let groups = [&it.others, &it.others_calm];
    0 < it.requests && groups.into_iter().flatten().all(|it| 0 < it.requests)
}

/// Shows the rows; figures of others where a tenant did harm, else of all.
fn text(rows: &[Row]) -> Table {
    let mut table = table(&[
        "floor",
        "good, calm",
        "TTFT p99, calm",
        "of none",
        "good, harmed",
        "TTFT p99, harmed",
        "rise",
        "good lost",
        "struck",
        "replicas reached",
        "hit, calm",
    ]);
    let none = rows.iter().find(|it| it.floor == Floor::None.to_string());
    for row in rows {
        let it = Figures::of(&row.summary);
        let some = |it: Option<Interval>, show: fn(Interval) -> String| {
            it.map_or_else(|| "-".to_owned(), show)
        };
        let rise = it.p99_harmed_s.map(|harmed| ratio(harmed.mean, it.p99_s.mean) - 1.0);
        let of_none = none.map(|none| ratio(it.p99_s.mean, Figures::of(&none.summary).p99_s.mean));
        table.add_row([
            row.floor.clone(),
            percent(it.good),
            number(it.p99_s),
            of_none.map_or_else(|| "-".to_owned(), share),
            some(it.good_harmed, percent),
            some(it.p99_harmed_s, number),
            rise.map_or_else(|| "-".to_owned(), share),
            some(row.summary.blast_radius, percent),
            some(row.summary.struck, percent),
            some(row.summary.reached, number),
            percent(it.hit),
        ]);
    }
    right_align(table)
}

/// The figures of a row, whether or not anything went wrong.
pub(super) struct Figures {
    pub(super) good: Interval,
    pub(super) p99_s: Interval,
    pub(super) hit: Interval,
    pub(super) good_harmed: Option<Interval>,
    pub(super) p99_harmed_s: Option<Interval>,
}

impl Figures {
    pub(super) fn of(it: &MetricSummary) -> Self {
        let calm = it.others_calm.as_ref();
        Self {
            good: calm.map_or(it.good_share, |it| it.good_share),
            p99_s: calm.map_or(it.ttft_p99_s, |it| it.ttft_p99_s),
            hit: it.hit_calm.unwrap_or(it.hit),
            good_harmed: it.others.as_ref().map(|it| it.good_share),
            p99_harmed_s: it.others.as_ref().map(|it| it.ttft_p99_s),
        }
    }
}

fn title(plan: &Plan) -> String {
    let replicas = plan.settings.replicas.len();
    let policy = plan.policies[0].as_str();
    format!("{replicas} replicas, {policy}, {} seeds from {}", plan.seeds, plan.seed)
}

impl std::fmt::Display for Floor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("none"),
            Self::Auto => f.write_str("auto"),
            Self::Of(floor) => floor.fmt(f),
        }
    }
}

fn parse_floor(text: &str) -> Result<Floor, String> {
    match text {
        "none" => Ok(Floor::None),
        "auto" => Ok(Floor::Auto),
        _ => match text.parse() {
            Ok(floor) if 0 < floor => Ok(Floor::Of(floor)),
            _ => Err("give a number above 0, `auto` or `none`".to_owned()),
        },
    }
}
