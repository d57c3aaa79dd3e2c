//! `cleave calibrate`: fits the cost model on a table of measured step times and prints how far it is
//! off. It only reads and prints; using the numbers is somebody else's business.

use std::path::PathBuf;

use anyhow::Context as _;
use cleave_core::cost::{ErrorQuantiles, Fit, H200_TABLE, fit, read_samples};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

/// Fit the cost model on measured step times and print its error
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Table of measurements (CSV, columns as in core/data/README.md) [default: one H200, built in]
    #[arg(long, value_name = "FILE")]
    table: Option<PathBuf>,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    model: &'a str,
    floor_ms: f64,
    new_token_ms: f64,
    attention_ms: f64,
    context_ms: f64,
    rows: usize,
    error: Quantiles,
    rows_held_out: usize,
    error_held_out: Quantiles,
}

#[derive(Serialize)]
struct Quantiles {
    p50: f64,
    p90: f64,
    p95: f64,
    max: f64,
}

impl From<ErrorQuantiles> for Quantiles {
    fn from(it: ErrorQuantiles) -> Self {
        Self { p50: it.p50, p90: it.p90, p95: it.p95, max: it.max }
    }
}

impl Args {
    #[expect(clippy::print_stdout, reason = "printing is what the command is for")]
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let text = match &self.table {
            None => H200_TABLE.to_owned(),
            Some(path) => std::fs::read_to_string(path)
                .with_context(|| format!("cannot read {}", path.display()))?,
        };
        let samples = read_samples(&text).context("the table of measurements")?;
        let fits: Vec<(&str, Fit)> =
            samples.iter().map(|(model, samples)| (model.as_str(), fit(samples))).collect();
        if self.json {
            let lines: Vec<Line<'_>> = fits.iter().map(|(model, fit)| line(model, fit)).collect();
            println!("{}", serde_json::to_string_pretty(&lines)?);
        } else {
            println!("{}\n\n{}", coefficients(&fits), errors(&fits));
        }
        Ok(())
    }
}

fn line<'a>(model: &'a str, fit: &Fit) -> Line<'a> {
    Line {
        model,
        floor_ms: fit.times.floor_ms,
        new_token_ms: fit.times.new_token_ms,
        attention_ms: fit.times.attention_ms,
        context_ms: fit.times.context_ms,
        rows: fit.rows,
        error: fit.error.into(),
        rows_held_out: fit.rows_held_out,
        error_held_out: fit.error_held_out.into(),
    }
}

fn coefficients(fits: &[(&str, Fit)]) -> Table {
    let mut table = table(&[
        "model",
        "floor ms",
        "µs / new token",
        "ns / attention pair",
        "ns / context token",
    ]);
    for (model, Fit { times, .. }) in fits {
        table.add_row([
            (*model).to_owned(),
            format!("{:.3}", times.floor_ms),
            format!("{:.3}", times.new_token_ms * 1e3),
            format!("{:.4}", times.attention_ms * 1e6),
            format!("{:.3}", times.context_ms * 1e6),
        ]);
    }
    right_align(table)
}

fn errors(fits: &[(&str, Fit)]) -> Table {
    let mut table = table(&["model", "relative error over", "rows", "p50", "p90", "p95", "max"]);
    for (model, fit) in fits {
        table.add_row(error_row(model, "all rows", fit.rows, fit.error));
        table.add_row(error_row(
            model,
            "every fifth, held out",
            fit.rows_held_out,
            fit.error_held_out,
        ));
    }
    right_align(table)
}

fn error_row(model: &str, what: &str, rows: usize, error: ErrorQuantiles) -> [String; 7] {
    let percent = |share: f64| format!("{:.1}%", share * 100.0);
    [
        model.to_owned(),
        what.to_owned(),
        rows.to_string(),
        percent(error.p50),
        percent(error.p90),
        percent(error.p95),
        percent(error.max),
    ]
}

fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header.to_vec());
    table
}

fn right_align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
