//! The comparison for a terminal: one table of what clients felt, one of why, and what was possible.

use cleave_sim::bounds::Bounds;
use cleave_sim::measure::ratio;
use cleave_sim::results::{Interval, MetricSummary, Results};
use comfy_table::{CellAlignment, Table, presets};

use super::groups;

/// Everything that is printed after the header.
pub(crate) fn text(summaries: &[MetricSummary], firsts: &[&Results], bounds: &Bounds) -> String {
    let mut text = format!(
        "What clients felt (times in seconds)\n{}\n\nWhy\n{}\n\n",
        felt(summaries, bounds),
        why(summaries, firsts, bounds),
    );
    text.push_str(&groups::text(summaries, bounds));
    text.push_str(&possible(bounds));
    text
}

fn felt(summaries: &[MetricSummary], bounds: &Bounds) -> Table {
    let mut table = table(&[
        "policy",
        "good",
        "good/s",
        "of pooled",
        "TTFT mean",
        "of bound",
        "p50",
        "p90",
        "p99",
        "TPOT mean",
        "p99",
        "end p50",
        "p99",
    ]);
    for it in summaries {
        table.add_row([
            it.policy.clone(),
            percent(it.good_share),
            number(it.good_per_s),
            share(ratio(it.good_per_s.mean, bounds.pooled.good_per_s)),
            number(it.ttft_mean_s),
            share(ratio(bounds.ttft_mean_s, it.ttft_mean_s.mean)),
            number(it.ttft_p50_s),
            number(it.ttft_p90_s),
            number(it.ttft_p99_s),
            number(it.tpot_mean_s),
            number(it.tpot_p99_s),
            number(it.end_to_end_p50_s),
            number(it.end_to_end_p99_s),
        ]);
    }
    let it = &bounds.pooled;
    table.add_row([
        "(pooled)".to_owned(),
        share(it.good_share),
        digits(it.good_per_s),
        share(1.0),
        digits(it.ttft_s.mean),
        share(ratio(bounds.ttft_mean_s, it.ttft_s.mean)),
        digits(it.ttft_s.p50),
        digits(it.ttft_s.p90),
        digits(it.ttft_s.p99),
        digits(it.tpot_s.mean),
        digits(it.tpot_s.p99),
        digits(it.end_to_end_s.p50),
        digits(it.end_to_end_s.p99),
    ]);
    right_align(table)
}

fn why(summaries: &[MetricSummary], firsts: &[&Results], bounds: &Bounds) -> Table {
    let mut table = table(&[
        "policy",
        "hit",
        "of pooled",
        "again: elsewhere",
        "evicted",
        "load max/mean",
        "KV mean",
        "max",
        "preempted",
        "moved",
        "fairness",
        "not served",
        "retries",
    ]);
    for (it, first) in summaries.iter().zip(firsts) {
        table.add_row([
            it.policy.clone(),
            percent(it.hit),
            share(ratio(it.hit.mean, bounds.pooled_hit)),
            percent(it.again_elsewhere),
            percent(it.again_evicted),
            number(it.load_max_over_mean),
            share(first.kv_mean),
            share(first.kv_max),
            first.preemptions.to_string(),
            number(it.sessions_moved),
            number(it.fairness),
            (first.cut + first.refused + first.too_long).to_string(),
            first.retries.to_string(),
        ]);
    }
    right_align(table)
}

fn possible(it: &Bounds) -> String {
    format!(
        "What is possible: hit {} with an endless cache, {} with one cache for all; \
         first token {} s in the mean on idle replicas (p50 {}, p99 {}), \
         and no fleet like this can have a mean below {} s.",
        share(it.infinite_hit),
        share(it.pooled_hit),
        digits(it.floor.mean),
        digits(it.floor.p50),
        digits(it.floor.p99),
        digits(it.ttft_mean_s),
    )
}

/// Three significant digits, and no more than four decimals.
pub(crate) fn digits(value: f64) -> String {
    match value.abs() {
        size if 100.0 <= size => format!("{value:.0}"),
        size if 10.0 <= size => format!("{value:.1}"),
        size if 1.0 <= size => format!("{value:.2}"),
        size if 0.1 <= size => format!("{value:.3}"),
        size if 0.0 < size => format!("{value:.4}"),
        _ => "0".to_owned(),
    }
}

pub(super) fn number(it: Interval) -> String {
    match it.half_width {
        None => digits(it.mean),
        Some(half) => format!("{} ±{}", digits(it.mean), digits(half)),
    }
}

pub(crate) fn share(value: f64) -> String {
    format!("{:.1}%", value * 100.0)
}

pub(super) fn percent(it: Interval) -> String {
    match it.half_width {
        None => share(it.mean),
        Some(half) => format!("{} ±{:.1}", share(it.mean), half * 100.0),
    }
}

pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED).set_header(header.to_vec());
    table
}

pub(crate) fn right_align(mut table: Table) -> Table {
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
