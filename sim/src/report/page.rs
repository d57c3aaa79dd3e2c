//! The page: one file without network, drawn by its own small script from the data put into it. The
//! markup lies in `page.html`, what is shown in `page.js`; colours and drawing are those of the admin port's
//! page, in `web/`, put into the file so that it needs no other. Here is what goes in.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::bounds::Bounds;

use crate::results::{Curves, MetricSummary, Results};

const TEMPLATE: &str = include_str!("page.html");
const MARK: &str = "/*DATA*/null";
const STYLE: (&str, &str) = ("/*STYLE*/", include_str!("../../../web/draw.css"));
const SCRIPT_MARK: &str = "/*SCRIPT*/";
/// Those that use others come after them.
const SCRIPTS: [&str; 3] = [
    include_str!("../../../web/dom.js"),
    include_str!("../../../web/plot.js"),
    include_str!("page.js"),
];
/// Points of one curve; more would not be seen.
const CDF_POINTS_MAX: usize = 160;

/// Everything the page shows.
#[derive(Debug, Serialize)]
pub struct PageInput<'a> {
    pub version: &'static str,
    pub seed: u64,
    pub parameters: BTreeMap<&'static str, String>,
    pub bounds: &'a Bounds,
    pub policies: Vec<PolicyCurves>,
    pub points: Vec<SweepPoint>,
    pub axis: SweepAxis,
}

/// What the points are over, and where policies have their knee.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepAxis {
    /// `rate_scale` or `replicas`.
    pub over: &'static str,
    pub knees: Vec<(String, f64)>,
    /// The share of requests that must be good, where knees were looked for.
    pub good: Option<f64>,
    /// Replicas of the fleet that policies are compared on, where fleets of several sizes were tried.
    pub compared_at: Option<usize>,
    /// What makes a result an artefact of how it was asked for.
    pub remarks: Vec<String>,
}

/// One policy: its figures over all seeds, and the first seed's run.
#[derive(Debug, Serialize)]
pub struct PolicyCurves {
    pub summary: MetricSummary,
    pub first: Results,
    pub curves: Curves,
}

/// One policy at one rate.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SweepPoint {
    pub policy: String,
    pub rate_scale: f64,
    pub replicas: usize,
    pub good_share: f64,
    pub good_per_s: f64,
    pub hit: f64,
    pub ttft_p99_s: f64,
}

impl SweepPoint {
    pub fn of(rate_scale: f64, it: &Results) -> Self {
        Self {
            policy: it.policy.clone(),
            rate_scale,
            replicas: it.replicas.len(),
            good_share: it.good_share,
            good_per_s: it.good_per_s,
            hit: it.hit,
            ttft_p99_s: it.ttft_s.p99,
        }
    }
}

/// Writes the page.
pub fn page(mut input: PageInput<'_>) -> Result<String, serde_json::Error> {
    for it in &mut input.policies {
        thin(&mut it.curves.ttft_cdf);
    }
    // Inside a script element nothing may look like its end.
    let data = serde_json::to_string(&input)?.replace("</", "<\\/");
    let page = TEMPLATE.replacen(STYLE.0, STYLE.1, 1).replacen(SCRIPT_MARK, &script(), 1);
    Ok(page.replacen(MARK, &data, 1))
}

/// Makes one script of several modules: in one file there is nothing to import.
fn script() -> String {
    let lines = SCRIPTS.iter().flat_map(|it| it.lines()).filter(|it| !it.starts_with("import "));
    lines.map(|it| it.strip_prefix("export ").unwrap_or(it)).collect::<Vec<_>>().join("\n")
}

/// Keeps points at equal distances of rank, and both ends.
fn thin(points: &mut Vec<(f64, f64)>) {
    let step = points.len().div_ceil(CDF_POINTS_MAX).max(1);
    let last = points.last().copied();
    let mut kept: Vec<_> = points.iter().copied().step_by(step).collect();
    if kept.last().copied() != last {
        kept.extend(last);
    }
    *points = kept;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_template_has_one_place_for_the_data() {
        assert_eq!(TEMPLATE.matches(MARK).count(), 1);
        assert!(!TEMPLATE.contains("http://") && !TEMPLATE.contains("https://"));
        let script = script();
        for mark in [STYLE.0, SCRIPT_MARK] {
            assert_eq!(TEMPLATE.matches(mark).count(), 1, "{mark}");
        }
        // The one address is the name of a format, which nothing is fetched from.
        assert_eq!(script.matches("://").count(), 1);
        assert!(!script.contains("import ") && !script.contains("\nexport "));
        assert!(!script.contains("</") && !script.contains(MARK));
        assert!(!script.contains("innerHTML"));
    }

    #[test]
    fn thinning_keeps_both_ends() {
        let mut points: Vec<_> = (0..1_000).map(|it| (f64::from(it), f64::from(it))).collect();
        thin(&mut points);
        assert!(points.len() <= CDF_POINTS_MAX + 1);
        let ends = points.first().zip(points.last()).map(|(first, last)| (first.0, last.0));
        assert_eq!(ends, Some((0.0, 999.0)));
    }
}
