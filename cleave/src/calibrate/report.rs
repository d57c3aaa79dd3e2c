//! Tells what a calibration found: tables for people, the same as JSON for programs.

use cleave_core::cost::{Coefficients, ErrorQuantiles, predict_rate};
use comfy_table::Table;
use serde::Serialize;

use super::Args;
use super::replica::Calibration;
use super::table::{error_row, right_align, table};

#[derive(Serialize)]
struct CalibrationDocument<'a> {
    coefficients: &'a Coefficients,
    request: Request,
    cells: Vec<ReportLine>,
    /// Of the cells, of the fit to all of them.
    error_fitted: ErrorQuantiles,
    ladder: Vec<Rung>,
    notes: &'a [String],
}

/// The coefficients of DESIGN's formula, by their letters.
#[derive(Serialize)]
#[expect(clippy::struct_field_names, reason = "units stand last in a name")]
struct Request {
    a_new_token_ms: f64,
    b_attention_ms: f64,
    c_output_token_ms: f64,
    d_output_context_ms: f64,
}

#[derive(Serialize)]
struct ReportLine {
    cell: String,
    new_tokens: f64,
    attention_pairs: f64,
    context_tokens: f64,
    measured_ms: f64,
    predicted_ms: f64,
}

#[derive(Serialize)]
struct Rung {
    concurrency: u32,
    requests_per_min: f64,
    predicted_per_min: f64,
}

#[expect(clippy::print_stdout, reason = "printing is what the command is for")]
pub(super) fn print(calibration: &Calibration, args: &Args) -> anyhow::Result<()> {
    if args.json {
        println!("{}", serde_json::to_string_pretty(&document(calibration))?);
        return Ok(());
    }
    let Calibration { coefficients, fit, findings } = calibration;
    println!("{}\n", costs(coefficients));
    let mut errors = table(&["model", "relative error over", "cells", "p50", "p90", "p95", "max"]);
    let model = &coefficients.model;
    errors.add_row(error_row(model, "cells fitted on", fit.rows, fit.error));
    errors.add_row(error_row(model, "cells not fitted on", fit.rows, fit.error_held_out));
    println!("{}\n\n{}\n", right_align(errors), ladder(calibration));
    println!("{}", conclusion(coefficients));
    for note in &findings.notes {
        println!("note: {note}");
    }
    if let Some(path) = &args.out {
        println!("written to {}", path.display());
    }
    Ok(())
}

fn document(calibration: &Calibration) -> CalibrationDocument<'_> {
    let Calibration { coefficients, fit, findings } = calibration;
    let cost = coefficients.request_cost();
    let cells = findings.cells.iter().map(|it| ReportLine {
        cell: it.cell.to_string(),
        new_tokens: it.sample.work.new_tokens,
        attention_pairs: it.sample.work.attention_pairs,
        context_tokens: it.sample.work.context_tokens,
        measured_ms: it.sample.ms,
        predicted_ms: fit.predict_ms(&it.sample),
    });
    CalibrationDocument {
        coefficients,
        request: Request {
            a_new_token_ms: cost.new_token_ms,
            b_attention_ms: cost.attention_ms,
            c_output_token_ms: cost.output_token_ms,
            d_output_context_ms: cost.output_context_ms,
        },
        cells: cells.collect(),
        error_fitted: fit.error,
        ladder: rungs(calibration),
        notes: &findings.notes,
    }
}

fn rungs(calibration: &Calibration) -> Vec<Rung> {
    let Calibration { fit, findings, .. } = calibration;
    let rungs = findings.rungs.iter().map(|it| Rung {
        concurrency: it.concurrency,
        requests_per_min: it.requests_per_min,
        predicted_per_min: predict_rate(&fit.times, findings.mix, it.concurrency),
    });
    rungs.collect()
}

fn costs(coefficients: &Coefficients) -> Table {
    let mut table = table(&["what", "costs"]);
    let (step, cost) = (&coefficients.step, coefficients.request_cost());
    let rows = [
        ("a step at least", format!("{:.3} ms", step.floor_ms)),
        ("a first token beside its step", format!("{:.3} ms", coefficients.overhead_ms)),
        ("a: a new prompt token", format!("{:.3} µs", cost.new_token_ms * 1e3)),
        ("b: a token attended to", format!("{:.4} ns", cost.attention_ms * 1e6)),
        ("c: an output token", format!("{:.3} µs", cost.output_token_ms * 1e3)),
        ("d: a token of its context", format!("{:.3} ns", cost.output_context_ms * 1e6)),
        ("1,000 new tokens and 200 of answer", {
            format!("{:.1} ms", cost.cost_ms(1_000, 0, 200, 1_100))
        }),
        ("the same with 900 cached", format!("{:.1} ms", cost.cost_ms(100, 900, 200, 1_100))),
    ];
    for (what, costs) in rows {
        table.add_row([what.to_owned(), costs]);
    }
    right_align(table)
}

fn ladder(calibration: &Calibration) -> Table {
    let mut table = table(&["clients", "requests / min", "predicted"]);
    for rung in rungs(calibration) {
        table.add_row([
            rung.concurrency.to_string(),
            format!("{:.0}", rung.requests_per_min),
            format!("{:.0}", rung.predicted_per_min),
        ]);
    }
    right_align(table)
}

fn conclusion(coefficients: &Coefficients) -> String {
    let Coefficients { model, class, knee, capacity_mu_per_min, .. } = coefficients;
    let at = if knee.reached { "at" } else { "at or above" };
    let (mix, cost) = (knee.mix(), coefficients.request_cost());
    let priced_ms = cost.cost_ms(mix.prompt_tokens, 0, mix.output_tokens, mix.context_tokens());
    format!(
        "{model} on {class}: knee {at} {} requests at a time ({:.0} a minute of {} + {} tokens), \
         {capacity_mu_per_min:.1} MU a minute\n\
         such a request is priced at {priced_ms:.1} ms and takes {:.1} ms of the replica there",
        knee.concurrency,
        knee.requests_per_min,
        knee.prompt_tokens,
        knee.output_tokens,
        60_000.0 / knee.requests_per_min,
    )
}
