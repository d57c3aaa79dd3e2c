//! How the figures are shown: one block per cell, one line per proxy, with what the proxy adds to
//! the direct way and its ratio to nginx and haproxy; and the same as JSON for the record.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use anyhow::{Context as _, Result};
use serde::Serialize;

use super::figures::Figures;
use super::overhead::OverheadOutcome;

/// One line of the record.
#[derive(Debug, Serialize)]
struct TableRow<'a> {
    cell: &'a str,
    proxy: &'a str,
    #[serde(flatten)]
    figures: Figures,
    added_ms_p50: f64,
    added_ms_p99: f64,
    cpu_over_nginx: Option<f64>,
    cpu_over_haproxy: Option<f64>,
}

impl<'a> TableRow<'a> {
    fn new(outcome: &'a OverheadOutcome, all: &[OverheadOutcome]) -> Self {
        let beside = |proxy: &str| {
            all.iter().find(|it| it.cell == outcome.cell && it.proxy == proxy).map(|it| it.figures)
        };
        let own = outcome.figures;
        let direct = beside("direct").unwrap_or_default();
        let over = |proxy: &str| {
            beside(proxy)
                .map(|it| own.cpu_ms_per_thousand / it.cpu_ms_per_thousand)
                .filter(|it| it.is_finite())
        };
        let added = if outcome.streams {
            [
                own.first_chunk_ms_p50 - direct.first_chunk_ms_p50,
                own.first_chunk_ms_p99 - direct.first_chunk_ms_p99,
            ]
        } else {
            [own.latency_ms_p50 - direct.latency_ms_p50, own.latency_ms_p99 - direct.latency_ms_p99]
        };
        Self {
            cell: &outcome.cell,
            proxy: outcome.proxy,
            figures: own,
            added_ms_p50: added[0],
            added_ms_p99: added[1],
            cpu_over_nginx: over("nginx"),
            cpu_over_haproxy: over("haproxy"),
        }
    }
}

/// Prints one block per cell. Latency under saturation is queueing and not the proxy's own time, so
/// what a proxy adds is shown where the load is light.
pub(super) fn print(outcomes: &[OverheadOutcome]) {
    let mut cell = "";
    for outcome in outcomes {
        let row = TableRow::new(outcome, outcomes);
        if cell != outcome.cell {
            cell = &outcome.cell;
            let (unit, first) = if outcome.streams {
                ("chunks/s", "first chunk")
            } else {
                ("requests/s", "latency")
            };
            let per = if outcome.streams { "µs/chunk" } else { "µs/request" };
            println!("\n{cell}");
            println!(
                "{:<14} {unit:>11} {per:>11} {:>7} {:>8} {:>9} {:>22} {:>8} {:>7}",
                "",
                "core, %",
                "× nginx",
                "× haproxy",
                format!("added {first}, ms"),
                "RSS, MB",
                "errors"
            );
        }
        let rate = if outcome.streams {
            row.figures.chunks_per_second
        } else {
            row.figures.requests_per_second
        };
        let added = if outcome.saturated {
            "–".to_owned()
        } else {
            format!("{:.3} / {:.3}", row.added_ms_p50, row.added_ms_p99)
        };
        println!(
            "{:<14} {rate:>11.0} {:>11.2} {:>7.0} {:>8} {:>9} {added:>22} {:>8.1} {:>7}",
            row.proxy,
            row.figures.cpu_ms_per_thousand,
            row.figures.core_percent,
            ratio(row.cpu_over_nginx),
            ratio(row.cpu_over_haproxy),
            row.figures.resident_mb,
            row.figures.errors,
        );
    }
    println!(
        "\nadded: p50 / p99 beyond the direct way; µs of processor time per item = ms per 1,000"
    );
}

fn ratio(value: Option<f64>) -> String {
    value.map_or_else(|| "–".to_owned(), |it| format!("{it:.2}"))
}

pub(super) fn write_json(file: &Path, outcomes: &[OverheadOutcome]) -> Result<()> {
    let rows: Vec<TableRow<'_>> = outcomes.iter().map(|it| TableRow::new(it, outcomes)).collect();
    let out = File::create(file).with_context(|| format!("create {}", file.display()))?;
    serde_json::to_writer_pretty(BufWriter::new(out), &rows).context("write the figures")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(proxy: &'static str, cpu: f64, latency: f64) -> OverheadOutcome {
        let figures =
            Figures { cpu_ms_per_thousand: cpu, latency_ms_p50: latency, ..Figures::default() };
        OverheadOutcome {
            proxy,
            cell: "1 KB".to_owned(),
            streams: false,
            saturated: false,
            figures,
        }
    }

    #[test]
    fn ratios_and_additions_are_taken_inside_one_cell() {
        let all = [
            outcome("direct", 0.0, 1.0),
            outcome("nginx", 20.0, 1.5),
            outcome("cleave", 30.0, 1.25),
        ];
        let row = TableRow::new(&all[2], &all);
        assert!((row.cpu_over_nginx.unwrap() - 1.5).abs() < 1e-9);
        assert!((row.added_ms_p50 - 0.25).abs() < 1e-9);
        assert_eq!(row.cpu_over_haproxy, None);
    }
}
