//! Tables of some of the requests: classes and tenants where there are several, and requests that a
//! fault was not meant for. A run with one class, one tenant and no faults prints none of them.

use std::fmt::Write as _;

use cleave_sim::bounds::Bounds;
use cleave_sim::measure::ratio;
use cleave_sim::results::{GroupSummary, MetricSummary};
use comfy_table::Table;

use super::table::{digits, number, percent, right_align, share, table};

/// How many tenants a terminal shows; the rest is in the JSON.
const TENANTS_MAX: usize = 12;

/// All tables of groups that say anything, each with a blank line behind it.
pub(crate) fn text(summaries: &[MetricSummary], bounds: &Bounds) -> String {
    let mut text = String::new();
    let mut say = |title: &str, table: Table| {
        write!(text, "{title}\n{table}\n\n").expect("a string takes everything");
    };
    let most = |of: fn(&MetricSummary) -> &[GroupSummary]| {
        summaries.iter().map(|it| of(it).len()).max().unwrap_or(0)
    };
    if 1 < most(|it| &it.classes) {
        say("Classes", who_got_what("class", summaries, |it| &it.classes));
    }
    if !bounds.deadlines.is_empty() {
        say("Deadlines for a first token, by class", deadlines(summaries, bounds));
    }
    if (2..=TENANTS_MAX).contains(&most(|it| &it.tenants)) {
        say("Tenants", who_got_what("tenant", summaries, |it| &it.tenants));
    }
    if summaries.iter().any(|it| it.blast_radius.is_some()) {
        say(
            "What the faults did to others, held against the same runs without them",
            harm(summaries),
        );
    }
    text
}

fn who_got_what(
    kind: &str,
    summaries: &[MetricSummary],
    groups: fn(&MetricSummary) -> &[GroupSummary],
) -> Table {
    let mut table = table(&[
        "policy",
        kind,
        "requests",
        "good",
        "MU/min served",
        "TTFT p50",
        "p99",
        "wait p99",
        "MU while all wait",
        "refused",
        "for",
    ]);
    for it in summaries {
        for group in groups(it) {
            let reasons =
                group.refused_by.iter().map(|(reason, count)| format!("{reason} {count}"));
            table.add_row([
                it.policy.clone(),
                group.name.clone(),
                number(group.requests),
                percent(group.good_share),
                number(group.served_mu_per_min),
                number(group.ttft_p50_s),
                number(group.ttft_p99_s),
                number(group.wait_p99_s),
                group.contested_mu.map_or_else(|| "-".to_owned(), number),
                number(group.refused),
                reasons.collect::<Vec<_>>().join(", "),
            ]);
        }
    }
    right_align(table)
}

fn deadlines(summaries: &[MetricSummary], bounds: &Bounds) -> Table {
    let names = ["policy", "class", "met", "sent and missed", "of these in vain"];
    let mut table = table(&names);
    for it in summaries {
        for group in &it.classes {
            let (Some(met), Some(missed)) = (group.deadlines_met, group.deadlines_missed) else {
                continue;
            };
            let in_vain = number(group.sent_in_vain);
            table.add_row([
                it.policy.clone(),
                group.name.clone(),
                percent(met),
                percent(missed),
                in_vain,
            ]);
        }
    }
    for it in &bounds.deadlines {
        let most = format!("at most {}", share(it.met_max));
        table.add_row(["(any order)".to_owned(), it.class.clone(), most]);
    }
    right_align(table)
}

fn harm(summaries: &[MetricSummary]) -> Table {
    let mut table = table(&[
        "policy",
        "blast radius",
        "struck",
        "replicas reached",
        "others",
        "good without",
        "good with",
        "TTFT p99 without",
        "with",
        "times",
    ]);
    for it in summaries {
        let (Some(blast), Some(with), Some(without)) =
            (it.blast_radius, &it.others, &it.others_calm)
        else {
            continue;
        };
        table.add_row([
            it.policy.clone(),
            percent(blast),
            it.struck.map_or_else(|| "-".to_owned(), percent),
            it.reached.map_or_else(|| "-".to_owned(), number),
            number(with.requests),
            percent(without.good_share),
            percent(with.good_share),
            number(without.ttft_p99_s),
            number(with.ttft_p99_s),
            digits(ratio(with.ttft_p99_s.mean, without.ttft_p99_s.mean)),
        ]);
    }
    right_align(table)
}
