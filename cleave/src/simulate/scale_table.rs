//! Rules that size a fleet, for a terminal: a table for each start-up time.

use std::fmt::Write as _;

use super::scale::{POINTS, ScaleRun, ScalerKind};
use super::table::{digits, right_align, share, table};

pub(super) fn text(runs: &[ScaleRun], price: f64) -> String {
    let mut text = String::new();
    let mut rest = runs;
    while let Some(first) = rest.first() {
        let is_same = |it: &&ScaleRun| (it.start_up_s - first.start_up_s).abs() < 1e-9;
        let (these, others) = rest.split_at(rest.iter().take_while(is_same).count());
        rest = others;
        let peak = these.iter().find(|it| it.scaler == ScalerKind::Static);
        let mut rows = table(&[
            "scaler",
            "good",
            "points",
            "TTFT p99",
            "cold",
            "refused",
            "replica hours",
            "cost",
            "saved",
            "of clairvoyant",
            "most",
            "reversals",
        ]);
        for it in these {
            let points = peak.map(|peak| 100.0 * (it.good_share - peak.good_share));
            let known = |it: Option<f64>| it.map_or_else(String::new, share);
            rows.add_row([
                it.scaler.as_str().to_owned(),
                share(it.good_share),
                points.map_or_else(String::new, |it| format!("{it:+.2}")),
                digits(it.ttft_p99_s),
                share(it.cold_share),
                it.refused.to_string(),
                digits(it.replica_hours),
                digits(it.cost),
                known(it.saved),
                it.of_clairvoyant.map_or_else(String::new, |it| format!("{it:.2}x")),
                it.replicas_max.to_string(),
                it.reversals.to_string(),
            ]);
        }
        _ = write!(text, "Start-up {} s\n{}\n\n", first.start_up_s, right_align(rows));
    }
    _ = write!(
        text,
        "good: requests that kept the promise; points: against the static peak, the smallest fleet within {} points of \
         the largest.\ncold: first tokens of prompts seen before that found nothing cached. cost: at {price} a replica \
         hour, from asking for a replica until it has left.\nreversals: steps that undid one of less than three \
         start-ups before, the most in three start-ups.",
        100.0 * POINTS
    );
    text
}
