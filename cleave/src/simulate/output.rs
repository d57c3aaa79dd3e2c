//! Results for programs: JSON with everything, CSV with one line for each run. Both are the same bytes
//! for the same seed, so neither holds anything that a clock said.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use cleave_sim::bounds::Bounds;
use cleave_sim::results::{MetricSummary, Results};
use serde::Serialize;

#[derive(Serialize)]
pub(crate) struct CompareDocument<'a> {
    pub(crate) version: &'static str,
    pub(crate) seed: u64,
    pub(crate) parameters: BTreeMap<&'static str, String>,
    /// In the mean over seeds.
    pub(crate) bounds: &'a Bounds,
    pub(crate) policies: &'a [MetricSummary],
    pub(crate) runs: &'a [&'a Results],
}

pub(crate) fn json(document: &impl Serialize) -> anyhow::Result<String> {
    Ok(serde_json::to_string_pretty(document)? + "\n")
}

type Column = (&'static str, fn(&Results) -> f64);

const COLUMNS: [Column; 22] = [
    ("ttft_mean_s", |it| it.ttft_s.mean),
    ("ttft_p50_s", |it| it.ttft_s.p50),
    ("ttft_p90_s", |it| it.ttft_s.p90),
    ("ttft_p99_s", |it| it.ttft_s.p99),
    ("ttft_max_s", |it| it.ttft_s.max),
    ("tpot_mean_s", |it| it.tpot_s.mean),
    ("tpot_p50_s", |it| it.tpot_s.p50),
    ("tpot_p90_s", |it| it.tpot_s.p90),
    ("tpot_p99_s", |it| it.tpot_s.p99),
    ("end_to_end_mean_s", |it| it.end_to_end_s.mean),
    ("end_to_end_p50_s", |it| it.end_to_end_s.p50),
    ("end_to_end_p90_s", |it| it.end_to_end_s.p90),
    ("end_to_end_p99_s", |it| it.end_to_end_s.p99),
    ("good_share", |it| it.good_share),
    ("good_per_s", |it| it.good_per_s),
    ("hit", |it| it.hit),
    ("again_elsewhere", |it| it.again_elsewhere),
    ("again_evicted", |it| it.again_evicted),
    ("load_max_over_mean", |it| it.load_max_over_mean),
    ("kv_mean", |it| it.kv_mean),
    ("fairness", |it| it.fairness),
    ("span_s", |it| it.span_s),
];

pub(crate) fn csv(runs: &[&Results]) -> String {
    let names = COLUMNS.map(|(name, _)| name).join(",");
    let mut text = format!(
        "policy,seed,requests,finished,cut,refused,too_long,retries,sessions_moved,struck,blast_radius,{names}\n"
    );
    for it in runs {
        let known = |it: Option<f64>| it.map_or_else(String::new, |it| it.to_string());
        let (struck, blast) = (known(it.struck), known(it.blast_radius));
        _ = write!(
            text,
            "{},{},{},{},{},{},{},{},{},{struck},{blast}",
            it.policy,
            it.seed,
            it.requests,
            it.finished,
            it.cut,
            it.refused,
            it.too_long,
            it.retries,
            it.sessions_moved,
        );
        for (_, figure) in COLUMNS {
            _ = write!(text, ",{}", figure(it));
        }
        text.push('\n');
    }
    text
}
