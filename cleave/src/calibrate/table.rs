//! Fits the cost model on a table of measured step times and prints how far it is off. A table says
//! nothing about load, so the knee in a file made from it is predicted.

use anyhow::Context as _;
use cleave_core::cost::{
    Coefficients, ErrorQuantiles, Fit, H200_TABLE, fit, from_table, read_samples,
};
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use super::{Args, file};

#[derive(Serialize)]
struct TableLine<'a> {
    model: &'a str,
    floor_ms: f64,
    new_token_ms: f64,
    attention_ms: f64,
    context_ms: f64,
    rows: usize,
    error: ErrorQuantiles,
    /// Of each row, by a fit to the four fifths it is not in.
    error_held_out: ErrorQuantiles,
}

#[expect(clippy::print_stdout, reason = "printing is what the command is for")]
pub(super) fn run(args: &Args) -> anyhow::Result<()> {
    let (text, source) = match &args.table {
        None => (H200_TABLE.to_owned(), "built-in table, one H200".to_owned()),
        Some(path) => {
            let name = path.display().to_string();
            (std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?, name)
        }
    };
    let samples = read_samples(&text).context("the table of measurements")?;
    let fits: Vec<(&str, Fit)> =
        samples.iter().map(|(model, samples)| (model.as_str(), fit(samples))).collect();
    if let Some(path) = &args.out {
        let entry = |(model, fit): &(&str, Fit)| Coefficients {
            class: args.class.clone(),
            ..from_table(model, fit, &source, &file::today())
        };
        file::add(path, fits.iter().map(entry).collect())?;
    }
    if args.json {
        let lines: Vec<TableLine<'_>> = fits.iter().map(|(model, fit)| line(model, fit)).collect();
        println!("{}", serde_json::to_string_pretty(&lines)?);
    } else {
        println!("{}\n\n{}", coefficients(&fits), errors(&fits));
    }
    Ok(())
}

fn line<'a>(model: &'a str, fit: &Fit) -> TableLine<'a> {
    TableLine {
        model,
        floor_ms: fit.times.floor_ms,
        new_token_ms: fit.times.new_token_ms,
        attention_ms: fit.times.attention_ms,
        context_ms: fit.times.context_ms,
        rows: fit.rows,
        error: fit.error,
        error_held_out: fit.error_held_out,
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
        table.add_row(error_row(model, "rows fitted on", fit.rows, fit.error));
        table.add_row(error_row(model, "rows not fitted on", fit.rows, fit.error_held_out));
    }
    right_align(table)
}

pub(super) fn error_row(
    model: &str,
    what: &str,
    rows: usize,
    error: ErrorQuantiles,
) -> [String; 7] {
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

pub(super) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header.to_vec());
    table
}

pub(super) fn right_align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
